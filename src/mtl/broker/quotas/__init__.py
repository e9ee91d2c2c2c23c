"""Shares: what all users use together, and the quota of each of them.

PROTOCOL.md 2.2. Read `quotas.py` first: it has the table; `pools.py` counts.
"""
