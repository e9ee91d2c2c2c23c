"""Append-only logs of opaque chunks on a disk: segments, recovery, retention. Knows neither MTL nor ZeroMQ.

Start with writer.py and reader.py; the formats are in chunk.py and segment.py, the damage after a crash in recovery.py.
"""
