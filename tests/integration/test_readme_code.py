"""The code in README.md does what it says: it is run, line by line, against a real broker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import mtl
from mtl.testing import RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

README = Path(__file__).parents[2] / "README.md"
ENDPOINT = "tcp://127.0.0.1:5975"


def _blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.spark
def test_the_ten_lines(
    spark: SparkSession, mtl_broker: RunningBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyspark.sql.functions import get_json_object  # noqa: PLC0415 only with Spark

    with mtl.connect(mtl_broker.endpoint) as connection:
        connection.create_resource("flights")
        with connection.writer("flights") as writer:
            for delay in (5, 61, 120):
                writer.send(b'{"dep_delay": %d}' % delay)
    code = _blocks()[0].replace(ENDPOINT, mtl_broker.endpoint)
    code = code.replace("late.checkpoint", str(tmp_path / "checkpoint"))

    exec(code, {"spark": spark, "get_json_object": get_json_object})

    late = spark.read.format("mtl").options(endpoint=mtl_broker.endpoint, resources="late").load()
    assert [bytes(row.body) for row in late.orderBy("sequence").collect()] == [
        b'{"dep_delay": 61}',
        b'{"dep_delay": 120}',
    ]
    assert "late" in capsys.readouterr().out


@pytest.mark.spark
def test_typed_bodies(spark: SparkSession, mtl_broker: RunningBroker, tmp_path: Path) -> None:
    with mtl.connect(mtl_broker.endpoint) as connection:
        for name in ("orders", "paid"):
            connection.create_resource(name)
        with connection.writer("orders") as writer:
            writer.send(b'{"id": 1, "items": ["tea"]}')
            writer.send(b'{"id": "one"}')
        code = next(x for x in _blocks() if "bodyFormat" in x)
        options = {"endpoint": mtl_broker.endpoint, "startingOffsets": "earliest"}
        found = {"spark": spark, "mtl": options}

        exec(code.split("\n\n")[0], found)
        options.pop("startingOffsets")
        exec(code.split("\n\n")[1], found)

        paid: Any = found["paid"]
        query = paid.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(60)
        with connection.reader("paid", start="earliest", until=2) as reader:
            assert [msgspec.msgpack.decode(x.body) for x in reader] == [{"id": 1, "items": ["tea"]}]
        with connection.reader("orders.bad", start="earliest", until=2) as reader:
            assert [bytes(x.body) for x in reader] == [b'{"id": "one"}']


def test_a_consumer(mtl_broker: RunningBroker) -> None:
    code = next(x for x in _blocks() if "c.consumer(" in x).replace(ENDPOINT, mtl_broker.endpoint)
    seen: list[bytes] = []

    def handle(body: bytes) -> None:
        seen.append(body)
        if body == b"bad":
            raise ValueError(body)
        if body == b"slow" and seen.count(body) == 1:
            raise TimeoutError
        if body == b"slow":
            raise KeyboardInterrupt  # the README's consumer goes on for ever

    with mtl.connect(mtl_broker.endpoint) as connection:
        connection.create_resource("orders")
        with connection.writer("orders") as writer:
            for body in (b"good", b"bad", b"slow"):
                writer.send(body)
        with pytest.raises(KeyboardInterrupt):
            exec(code, {"mtl": mtl, "handle": handle})
        assert seen == [b"good", b"bad", b"slow", b"slow"]
        assert connection.describe(pattern="orders[.]dead", after={}, wait=30), (
            "made with the first dead letter"
        )
        with connection.reader("orders.dead", start="earliest", until=2) as reader:
            assert [x.body for x in reader] == [b"bad"]


def test_without_spark(mtl_broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    code = _blocks()[1].replace(ENDPOINT, mtl_broker.endpoint)
    code = code.replace(
        'start="earliest"', 'start="earliest", until=2'
    )  # the README's reader follows for ever

    exec(code, {"mtl": mtl})

    assert capsys.readouterr().out == "1 b'{\"id\": 1}'\n"
