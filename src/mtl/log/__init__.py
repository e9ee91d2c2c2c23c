"""Append-only logs of opaque chunks on a disk: segments, recovery, retention. The package depends on neither MTL
nor ZeroMQ.

Read writer.py and reader.py first. The formats are in chunk.py and segment.py, the repair after a crash in
recovery.py.
"""
