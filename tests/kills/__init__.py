"""Exactly once, whatever is killed: every process of a query at every step of a trigger; `python -m tests.kills`."""
