"""Readers of logs, their reads of what is not in memory, groups' cursors, and the fan-out of the `test` profile.

Read `readers.py` first, then `reads.py`.
"""
