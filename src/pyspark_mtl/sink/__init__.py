"""The sink: from rows on the executors to contents in stages, and from stages to one commit.

Read `sink.py` first: the classes that Spark calls. `writing.py` writes one partition on an executor.
"""
