"""The client: `connect` to a broker, then read and write. Read connection.py first.

Applications import its names from `mtl`, which loads them when they are first used.
"""
