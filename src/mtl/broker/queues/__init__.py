"""Queues: the distribution of contents to consumers, their settlement, and dead letters.

Read `queue_state.py` first: the state of one queue, without leases and disks.
"""
