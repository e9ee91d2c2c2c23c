"""A whole system in one thread, simulated within a second: clients, networks, a broker and its disk, driven by one
seed.

The broker's core, log, storage and sender and the client's flows are real; their environment is simulated: sockets
(network.py), time and random numbers (world.py), the disk and the records (tests/support). faults.py injects every kind
of failure, checks.py verifies the guarantees afterwards. `python -m tests.simulator`.
"""
