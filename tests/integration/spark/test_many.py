"""1,001 resources by pattern and by name, and in one write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mtl
import mtl.testing
from tests.support.queries import collect_now, read, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COUNT = 1_001
NAMES = [f"many.{number:04}" for number in range(COUNT)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mtl.testing.RunningBroker]:
    """A broker that creates the resources that a lease names: 1,001 with two requests."""
    config = tmp_path_factory.mktemp("many") / "broker.toml"
    config.write_text('auto-create = ["*"]\n')
    with mtl.testing.broker("memory:", config) as running:
        yield running


def publish(connection: mtl.Connection, body: bytes) -> None:
    for part in (NAMES[:1_000], NAMES[1_000:]):
        with connection.writer(part) as writer:
            for name in part:
                writer.send(body, resource=name)


def test_a_query_reads_1001_resources_and_confirms_in_all(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    tmp_path: Path,
) -> None:
    options = {"resourcePattern": r"many\..*", "startingOffsets": "earliest", "group": "g"}
    publish(connection, b"first")
    for expected in (1, 2):
        frame = stream(spark, broker, **options).coalesce(2)
        query = collect_now(frame, tmp_path / "checkpoint", tmp_path / "rows")
        assert query.exception() is None
        rows = spark.read.parquet(str(tmp_path / "rows"))
        assert rows.count() == expected * COUNT
        assert rows.select("resource").distinct().count() == COUNT
        publish(connection, b"second")
    assert {cursor.position for cursor in connection.cursors("g")} == {3}
    by_name = {"resources": ",".join(NAMES), "startingOffsets": "earliest"}
    assert read(spark, broker, **by_name).coalesce(2).count() == 3 * COUNT


def test_a_write_by_its_column_has_1001_resources(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection
) -> None:
    """13 tasks, none of which writes to more than 77 resources. (1,001 stages in a commit: test_listing.py.)"""
    rows = spark.range(0, COUNT, 1, 13).selectExpr(
        "format_string('written.%04d', id) resource", "cast(cast(id as string) as binary) body"
    )
    written = rows.write.format("mtl").option("endpoint", broker.endpoint).option("createResource", "true")
    written.mode("append").save()
    found = connection.describe(pattern=r"written\..*")
    assert [resource.contents for resource in found.values()] == [1] * COUNT
