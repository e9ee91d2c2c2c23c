"""Five protocols on one resource, and on both sides of Spark; `python -m tests.bridging` prints what was seen."""
