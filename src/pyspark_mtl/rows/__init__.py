"""Conversion between contents and rows: columns, properties, typed rows. Pure.

Read `columns.py` first: the columns of a content. `frames.py` converts packs to record batches, and back; `typed.py`
does so with the formats of `bodyFormat`, which are in the package `bodies`.
"""
