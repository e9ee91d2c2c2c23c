"""The parts of `scripts/conformance --mutate` and `--sample`: whether a test notices a change of the code."""
