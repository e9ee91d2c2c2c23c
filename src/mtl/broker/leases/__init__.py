"""Leases that are granted: their terms, their time to live, and the pause of a flow whose peer does not read.

Read `leases.py` first.
"""
