"""Each job of spark-submit-examples in the Spark of the tests. Their submission is in test_submit.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import copy_resource
import export_parquet
import import_parquet
import ingest_files
import mtl_job
import pytest
import split_batches
import windows

import mtl
import mtl.testing
from tests.support.contents import publish as append
from tests.support.contents import texts, visible
from tests.support.queries import forget_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Told = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mtl.testing.RunningBroker]:
    with mtl.testing.broker(data=tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture
def connection(broker: mtl.testing.RunningBroker) -> Iterator[mtl.Connection]:
    with mtl.connect(broker.endpoint) as connected:
        for resource in connected.list_resources():
            connected.delete_resource(resource.resource)
        yield connected


def publish(connection: mtl.Connection, resource: str, *bodies: str, **properties: str) -> None:
    connection.create_resource(resource, exist_ok=True)
    append(connection, resource, *bodies, **properties)


def contents(connection: mtl.Connection, resource: str) -> list[tuple[str, dict[str, str]]]:
    return [
        (content.body.decode(), {name: str(value) for name, value in content.properties.items()})
        for content in visible(connection, resource)
    ]


def checkpoint(place: Path) -> list[str]:
    return ["--checkpoint", str(place / "checkpoint")]


@pytest.mark.spark
def test_the_copy_job_copies_a_resource(
    spark: SparkSession, connection: mtl.Connection, tmp_path: Path, capsys: Told
) -> None:
    job = [
        "--endpoint",
        connection.endpoint,
        "--source",
        "orders",
        "--target",
        "copies",
        *checkpoint(tmp_path),
    ]
    publish(connection, "orders", "1", "2", country="NZ")
    copy_resource.main(job)
    publish(connection, "orders", "3")
    copy_resource.main(job)

    assert contents(connection, "copies") == [("1", {"country": "NZ"}), ("2", {"country": "NZ"}), ("3", {})]
    assert capsys.readouterr().out == "rows: 2, batches: 1\nrows: 1, batches: 1\n"


@pytest.mark.spark
def test_the_ingest_job_writes_files_into_a_resource(
    spark: SparkSession, connection: mtl.Connection, tmp_path: Path
) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    job = [
        "--endpoint",
        connection.endpoint,
        "--files",
        str(landing),
        "--target",
        "lines",
        *checkpoint(tmp_path),
    ]
    (landing / "a.txt").write_text("1\n\nthree\n")
    ingest_files.main(job)
    (landing / "b.txt").write_text("four\n")
    ingest_files.main(job)

    a, b = {"file": "a.txt"}, {"file": "b.txt"}
    assert contents(connection, "lines") == [("1", a), ("", a), ("three", a), ("four", b)]


@pytest.mark.spark
def test_the_windows_job_aggregates(spark: SparkSession, connection: mtl.Connection, tmp_path: Path) -> None:
    def reading(second: int, value: float) -> str:
        time = f"2026-01-31T12:{second // 60:02}:{second % 60:02}Z"
        return json.dumps({"time": time, "sensor": "north", "value": value})

    publish(
        connection,
        "readings",
        reading(1, 20.0),
        "no reading",
        reading(59, 21.0),
        reading(60, 5.0),
        reading(200, 0.0),
    )
    job = [
        "--endpoint",
        connection.endpoint,
        "--source",
        "readings",
        "--target",
        "minutes",
        *checkpoint(tmp_path),
    ]
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        windows.main([*job, "--partitions", "1"])
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))

    assert sorted(
        (json.loads(body) for body in texts(connection, "minutes")), key=lambda minute: minute["start"]
    ) == [
        {"start": "2026-01-31T12:00:00Z", "sensor": "north", "readings": 2, "mean": 20.5, "highest": 21.0},
        {"start": "2026-01-31T12:01:00Z", "sensor": "north", "readings": 1, "mean": 5.0, "highest": 5.0},
    ]
    assert texts(connection, "readings.bad") == ["no reading"]


@pytest.mark.spark
def test_the_split_job_writes_a_repeated_batch_once(
    spark: SparkSession, connection: mtl.Connection, tmp_path: Path
) -> None:
    publish(connection, "orders", "1", "2", country="NZ")
    publish(connection, "orders", "3", country="AU")
    publish(connection, "orders", "4")
    job = ["--endpoint", connection.endpoint, "--source", "orders", "--property", "country", "--value", "NZ"]
    job += ["--matching", "nz", "--others", "abroad", "--application", "split", *checkpoint(tmp_path)]
    split_batches.main(job)
    forget_commit(tmp_path / "checkpoint", 0)
    split_batches.main(job)

    assert texts(connection, "nz") == ["1", "2"]
    assert texts(connection, "abroad") == ["3", "4"]
    known = {
        application.application: (application.version, application.replays)
        for application in connection.stages().applications
    }
    assert known["split/nz"] == known["split/abroad"] == (0, 1)


@pytest.mark.spark
def test_a_resource_is_exported_to_parquet_and_imported(
    spark: SparkSession, connection: mtl.Connection, tmp_path: Path, capsys: Told
) -> None:
    publish(connection, "orders", "1", "2", country="NZ")
    files = str(tmp_path / "orders")
    export = ["--endpoint", connection.endpoint, "--source", "orders", "--files", files]
    export_parquet.main([*export, "--until", "2100-01-01T00:00:00Z", "--task-rows", "1"])
    export_parquet.main([*export, "--since", "2100-01-01T00:00:00Z"])
    publish(connection, "orders", "3")
    export_parquet.main(export)
    assert capsys.readouterr().out.splitlines() == [f"{rows} rows in {files}" for rows in (2, 0, 3)]

    load = [
        "--endpoint",
        connection.endpoint,
        "--files",
        files,
        "--target",
        "copies",
        "--application",
        "load",
    ]
    for version in ("1", "1", "2"):
        import_parquet.main([*load, "--version", version])
    once = [("1", {"country": "NZ"}), ("2", {"country": "NZ"}), ("3", {})]
    found = contents(connection, "copies")
    assert len(found) == 6
    for half in (found[:3], found[3:]):
        assert [
            (body, {k: v for k, v in properties.items() if k != "timestamp"}) for body, properties in half
        ] == once


def test_credentials_are_options_of_the_same_name() -> None:
    parser = mtl_job.parser(None)
    assert mtl_job.broker(parser.parse_args([])) == {"endpoint": "tcp://127.0.0.1:5975"}
    given = [
        "--endpoint",
        "tcp://a:1",
        "--user",
        "etl",
        "--password-file",
        "/run/p",
        "--curve-server-key",
        "broker.pub",
    ]
    assert mtl_job.broker(parser.parse_args(given)) == {
        "endpoint": "tcp://a:1",
        "user": "etl",
        "passwordFile": "/run/p",
        "curveServerKey": "broker.pub",
    }
    with pytest.raises(SystemExit):
        parser.parse_args(["--password", "secret"])


@pytest.mark.parametrize(("given", "options"), [("5", {"maxOffsetsPerTrigger": 5}), ("0", {})])
def test_a_limit_of_zero_is_omitted_for_older_spark(given: str, options: dict[str, int]) -> None:
    parser = mtl_job.parser("A job.")
    mtl_job.add_query(parser)
    assert mtl_job.limit(parser.parse_args(["--checkpoint", "c", "--limit", given])) == options
