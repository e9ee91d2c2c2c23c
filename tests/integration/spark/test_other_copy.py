"""A streaming query whose broker is restored from an older copy of its data, which then diverges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import mtl
import mtl.testing
from tests.support.contents import numbers, publish
from tests.support.copies import copy, put_back
from tests.support.queries import bodies, collect_now, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

OTHERS = [f"other {n}" for n in range(1, 21)]


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[mtl.testing.RunningBroker]:
    """A broker used by one test only."""
    with mtl.testing.broker(tmp_path / "broker") as running:
        yield running


@pytest.fixture
def orders(alone: mtl.testing.RunningBroker) -> Iterator[mtl.Connection]:
    with mtl.connect(alone.endpoint) as connected:
        connected.create_resource("orders")
        yield connected


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_query_detects_another_copy_of_the_log(
    spark: SparkSession,
    alone: mtl.testing.RunningBroker,
    orders: mtl.Connection,
    tmp_path: Path,
    stopped: bool,
    fails: str,
) -> None:
    """Without epochs the query read the contents behind its position, and did not report the lost ones."""
    publish(orders, "orders", *numbers(1, 5))
    copied = copy(alone, tmp_path / "copy", stopped=stopped)
    publish(orders, "orders", *numbers(6, 15))
    source = stream(spark, alone, resources="orders", startingOffsets="earliest", failOnDataLoss=fails)
    collect_now(source, tmp_path / "checkpoint", tmp_path / "out")
    put_back(alone, copied)
    publish(orders, "orders", *OTHERS)
    if fails == "true":
        with pytest.raises(PySparkException, match=r"contents 6 to 15 \(10 in all\) are gone"):
            collect_now(source, tmp_path / "checkpoint", tmp_path / "out")
        return
    collect_now(source, tmp_path / "checkpoint", tmp_path / "out")
    found = bodies(spark.read.parquet(str(tmp_path / "out")))
    assert sorted(found) == sorted([*numbers(1, 15), *OTHERS])


def test_a_checkpoint_without_epochs_continues(
    spark: SparkSession, alone: mtl.testing.RunningBroker, orders: mtl.Connection, tmp_path: Path
) -> None:
    publish(orders, "orders", *numbers(1, 5))
    source = stream(spark, alone, resources="orders", startingOffsets="earliest")
    collect_now(source, tmp_path / "checkpoint", tmp_path / "out")
    written = tmp_path / "checkpoint" / "offsets" / "0"
    *head, offset = written.read_text(encoding="utf-8").splitlines()
    value = json.loads(offset)
    assert value["resources"]["orders"].pop("e")
    written.write_text("\n".join([*head, json.dumps(value)]), encoding="utf-8")
    (written.parent / ".0.crc").unlink(missing_ok=True)
    alone.restart()
    publish(orders, "orders", *numbers(6, 9))
    collect_now(source, tmp_path / "checkpoint", tmp_path / "out")
    assert bodies(spark.read.parquet(str(tmp_path / "out"))) == numbers(1, 9)
