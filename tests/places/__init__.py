"""The same cases in every place where Spark runs: each place in a separate process (run.py), by scripts/places and the
suite.
"""
