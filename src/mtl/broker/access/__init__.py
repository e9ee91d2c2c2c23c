"""Sessions, log-ins, and the rights of principals.

Read `sessions.py` first.
"""
