"""Stages, and the commit of several of them in one step (PROTOCOL.md 5.5).

Read `stages.py` first, then `commits.py` and `commit.py`.
"""
