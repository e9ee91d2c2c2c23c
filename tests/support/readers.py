"""Readers of the connector without Spark: their settings and plans."""

from __future__ import annotations

from pyspark_mtl.options.settings import ReadSettings, parse, read_settings
from pyspark_mtl.source.offsets import INITIAL

BEGINNING = INITIAL.json()
"""The offset that Spark passes as the start of a query's first batch."""

EMPTY = {"resources": {}, "version": 1}
"""The offset in the checkpoint of a query that has started and found no resource."""


def settings(*, streaming: bool = True, **options: str) -> ReadSettings:
    source = {} if "resourcePattern" in options else {"resources": "a"}
    options = {**source, "startingOffsets": "earliest", **options}
    return read_settings(parse({name.lower(): value for name, value in options.items()}), streaming=streaming)


def tasks(partitions: object) -> list[tuple[str, int, int]]:
    assert isinstance(partitions, list)
    contents = [task.contents for partition in partitions for task in partition.tasks]
    return [(content.resource, content.first, content.until) for content in contents]
