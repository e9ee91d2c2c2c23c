"""The control commands: from a decoded request to its reply.

Read `requests.py` first: it maps each request type to its handler. `granting*.py` grant leases, `authorization.py`
names the rights that a request needs.
"""
