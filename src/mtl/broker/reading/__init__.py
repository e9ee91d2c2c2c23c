"""Readers of logs, durable cursors of groups, and the fan-out of the `test` profile.

Read `readers.py` first.
"""
