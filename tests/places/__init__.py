"""The same cases in every deployment of Spark: each in a separate process (run.py), by scripts/places and the test
suite.
"""
