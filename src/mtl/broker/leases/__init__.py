"""Granted leases: their terms, their expiry, and the pauses of readers whose peer's queue is full.

Read `leases.py` first.
"""
