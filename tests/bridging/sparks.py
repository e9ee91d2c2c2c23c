"""Spark between two ends of every protocol: one running query copies from the producers to the consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import mtl
from tests.bridging.ends import ENDS, MTL, End, taken
from tests.bridging.matrix import bodies
from tests.support.doors import PROPERTIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class Passage:
    """The contents that one protocol sent into the query and received from it."""

    name: str
    rows: int
    properties: int
    """The number of properties of each row, and of each content that was received."""
    shown: int


def into(end: End) -> str:
    """The resource of its producer."""
    return f"into-spark-from-{end.name}"


def out_of(end: End) -> str:
    """The resource of its consumer."""
    return f"out-of-spark-to-{end.name}"


async def pass_through(places: Mapping[str, str], spark: SparkSession, checkpoint: Path) -> list[Passage]:
    """Send into the query and receive out of it, all at once. Raises `AssertionError` for any difference."""
    with mtl.connect(places[MTL]) as c:
        for end in ENDS.values():
            c.create_resource(into(end))
            c.create_resource(out_of(end))
    query = _query(spark, places[MTL], checkpoint)
    try:
        return list(await asyncio.gather(*(_pass(places, end) for end in ENDS.values())))
    finally:
        query.stop()


def _query(spark: SparkSession, endpoint: str, checkpoint: Path) -> StreamingQuery:
    from pyspark.sql import functions as f  # noqa: PLC0415 the matrix needs no Spark

    rows = spark.readStream.format("mtl").options(
        endpoint=endpoint,
        resources=",".join(into(end) for end in ENDS.values()),
        startingOffsets="earliest",
        includeProperties=True,
    )
    there = f.regexp_replace("resource", "^into-spark-from-", "out-of-spark-to-").alias("resource")
    copied = rows.load().select(there, "body", "properties")
    writer = copied.writeStream.format("mtl").option("checkpointLocation", str(checkpoint))
    return writer.option("endpoint", endpoint).start()


async def _pass(places: Mapping[str, str], end: End) -> Passage:
    sent = bodies(end.name)
    mtl_end = ENDS[MTL]
    async with (
        end.connect(places[end.name]) as c,
        end.reader(c, out_of(end), "earliest") as reader,
        mtl_end.connect(places[MTL]) as broker_client,
        mtl_end.reader(broker_client, out_of(end), "earliest") as witness,
    ):
        async with end.writer(c, into(end)) as writer:
            for body in sent:
                await end.put(writer, body, PROPERTIES)
        rows = await taken(witness, len(sent))
        received = await taken(reader, len(sent))
    carried, expected = mtl_end.expected_properties(PROPERTIES, end), end.expected_properties(PROPERTIES, end)
    assert [bytes(row.body) for row in rows] == sent
    assert all(row.properties == carried for row in rows)
    assert [bytes(content.body) for content in received] == sent
    assert all(dict(content.properties) == expected for content in received)
    return Passage(end.name, len(rows), len(carried), len(expected))


def table(passages: list[Passage]) -> str:
    """The results as a table."""
    lines = ["| protocol | into Spark | out of Spark |", "|---|---|---|"]
    for passage in passages:
        row = f"{passage.rows} rows, {passage.properties or 'no'} properties"
        lines.append(
            f"| {passage.name} | {row} | {passage.rows} contents, {passage.shown or 'no'} properties |"
        )
    return "\n".join(lines)
