"""The process around the core: the loop, sockets, threads, the clock, and the configuration.

Read `server.py` first.
"""
