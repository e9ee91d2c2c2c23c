"""Benchmarks: every figure is a ratio to a peer or a limit that was measured in the same run."""
