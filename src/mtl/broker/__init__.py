"""The broker: a deterministic core, and the loop with sockets, threads and the clock around it.

Read `core.py` first: inputs in, actions out. The packages, from the edge inwards:

    runtime     the process: loop, sockets, threads, clock, configuration
    commands    control requests and their replies
    access      sessions, log-ins, rights
    stages      staged contents and their commit
    queues      consumers, settlement, dead letters
    reading     readers, cursors of groups
    writing     resources, the intake of a log, writers
    leases      the terms and the expiry of every lease
"""
