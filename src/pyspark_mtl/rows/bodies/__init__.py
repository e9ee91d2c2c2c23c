"""Typed bodies: conversion between bodies and columns, in the formats of `bodyFormat`. Pure.

shape       which columns of a schema belong to the body, and which to the content
values      Python types of column values, and rows of such values as columns
fitting     which of these values Arrow can take without a crash or a change
decoding    bodies to columns, Arrow bodies by `from_arrow`
arrow_types which types of Arrow bodies can be read as which columns
arrow_octets the octets of an Arrow body in memory, before they are allocated
encoding    columns to bodies

Only a query with a bodyFormat imports these modules: they put Python values into Arrow columns, which imports pandas.
"""
