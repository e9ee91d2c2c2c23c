"""The parts of `scripts/conformance --mutate` and `--sample`: whether a test notices that the code is another."""
