"""The same cases wherever Spark runs: each place in a process of its own (run.py), by scripts/places and the suite."""
