"""Typed bodies: conversion between bodies and columns, in the formats of `bodyFormat`. Pure.

shape       which columns of a schema belong to the body, and which to the content
values      Python types of column values, and rows of such values as columns
decoding    bodies to columns, Arrow bodies by `from_arrow`
encoding    columns to bodies

Only a query with a bodyFormat imports these modules: they put Python values into Arrow columns, which imports pandas.
"""
