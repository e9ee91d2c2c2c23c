"""Hostile and unlucky peers against a real broker process; `python -m tests.hostile` prints what was measured."""
