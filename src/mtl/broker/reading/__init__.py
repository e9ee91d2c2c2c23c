"""Readers of logs, their reads of data outside memory, groups' cursors, and the fan-out of the `test` profile.

Read `readers.py` first, then `reads.py`.
"""
