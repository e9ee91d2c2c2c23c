"""Queues: which consumer has which content, what is settled, and dead letters.

Read `queue_state.py` first: the state of one queue, without leases and disks.
"""
