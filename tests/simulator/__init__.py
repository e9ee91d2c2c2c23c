"""A whole system in one thread and one second: clients, networks, a broker and its disk, all driven by one seed.

The broker's core and log, its storage and sender, and the client's flows are the real ones; what is around them is not:
sockets (network.py), time and chance (world.py), the disk and the records (tests/support). Everything that may go
wrong goes wrong (faults.py), and what was promised is checked afterwards (checks.py). `python -m tests.simulator`.
"""
