"""Readers of the connector made by hand: their settings, and what they planned."""

from __future__ import annotations

from pyspark_mtl.options import ReadSettings, parse, read_settings

EMPTY = {"resources": {}, "version": 1}


def settings(*, streaming: bool = True, **options: str) -> ReadSettings:
    options = {"resources": "a", "startingOffsets": "earliest", **options}
    return read_settings(parse({name.lower(): value for name, value in options.items()}), streaming=streaming)


def tasks(partitions: object) -> list[tuple[str, int, int]]:
    assert isinstance(partitions, list)
    contents = [partition.task.contents for partition in partitions]
    return [(one.resource, one.first, one.until) for one in contents]
