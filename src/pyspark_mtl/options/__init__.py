"""The options of `format("mtl")`: their table, the values of their kinds, and settings made of them. Pure.

Read `table.py` first: one row for each option. `kinds.py` turns texts into values. `settings.py` checks that options
fit together and makes the settings of a reader or a writer.
"""
