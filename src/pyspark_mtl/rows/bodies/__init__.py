"""Typed bodies: between the body of a content and the columns of a row, in the formats of `bodyFormat`. Pure.

shape       which columns of a schema are the body's, and which the content's
values      what a column's value is in Python, and rows of such values as columns
from_*      bodies to columns; `decoding` chooses by the format
encoding    columns to bodies

Only a query with a bodyFormat imports them: Python values in Arrow columns cost a worker the import of pandas.
"""
