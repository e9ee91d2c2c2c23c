"""Five protocols on one resource, and on both sides of Spark; `python -m tests.bridging` prints the results."""
