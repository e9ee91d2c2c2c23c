"""Between contents and rows: columns of contents, properties, and typed rows. Pure.

Read `columns.py` first: the columns that a content has. `frames.py` makes record batches of packs, and packs of them;
`typed.py` does so with the formats of `bodyFormat`, which are in the package `bodies`.
"""
