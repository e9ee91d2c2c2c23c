"""The sink: executors write rows into stages, and the driver publishes the stages in one commit.

Read `sink.py` first: the classes that Spark calls. `writing.py` writes one partition on an executor.
"""
