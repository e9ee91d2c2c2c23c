"""Hostile and faulty peers against a real broker process; `python -m tests.hostile` prints the measurements."""
