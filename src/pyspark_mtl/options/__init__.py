"""The options of `format("mtl")`: their table, the parsers of their values, and the settings made from them. Pure.

Read `table.py` first: one row for each option. `kinds.py` parses values. `settings.py` checks combinations of options
and makes the settings of a reader or a writer.
"""
