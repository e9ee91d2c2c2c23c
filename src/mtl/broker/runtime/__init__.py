"""The process around the core: loop, sockets, threads, clock and configuration.

Read `server.py` first.
"""
