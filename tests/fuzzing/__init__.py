"""Arbitrary octets for every decoder: a table (`targets`) that scripts/fuzz and, briefly, the test suite run."""
