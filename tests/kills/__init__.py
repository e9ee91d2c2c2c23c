"""Exactly once with kills of every process of a query at every step of a trigger; `python -m tests.kills`."""
