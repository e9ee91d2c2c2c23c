"""Append-only logs of opaque chunks on a disk: segments, recovery, retention. Knows neither MTL nor ZeroMQ.

Start with writer.py and reader.py; the formats are in chunk.py and segment.py, what a crash may leave in recovery.py.
"""
