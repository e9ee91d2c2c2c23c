"""Resources and the way of a content into a log: the intake of each resource, writers, and their names.

Read `intake.py` first.
"""
