"""The data directory: logs, records, and their recovery.

Read `local.py` first: it carries out the actions of the core. `sqlite.py` keeps the records, `records.py` defines them.
"""
