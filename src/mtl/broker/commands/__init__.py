"""The control commands: from a decoded request to its reply.

Read `requests.py` first: it has a method for each request type. `granting*.py` grant leases, `authorization.py` checks
the rights that a request needs.
"""
