"""Sessions, log-ins and rights of principals.

Read `sessions.py` first.
"""
