"""The broker: a deterministic core, and a loop with sockets, threads and the clock around it.

Read `core.py` first: inputs in, actions out. The packages, from the edge inwards:

    runtime     the process: loop, sockets, threads, clock, configuration
    storage     the data directory: logs, records, recovery
    commands    control requests and their replies
    access      sessions, log-ins, rights
    stages      staged contents and their commit
    queues      consumers, settlement, dead letters
    reading     readers, cursors of groups
    writing     resources, the intake of a log, writers
    leases      what every lease has
"""
