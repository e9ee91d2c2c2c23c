"""Resources, the intake of contents into their logs, writers, and writer names.

Read `intake.py` first.
"""
