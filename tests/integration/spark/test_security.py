"""Spark through a broker that wants a password and encryption: read and written, and no secret shown."""

from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import mtl.testing
from mtl.broker.access.accounts import ON_RESOURCES
from mtl.broker.runtime.users import Users, new_password
from mtl.net.curve import write_keys
from mtl.storage.records import GrantRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SECRET = "open sesame 7Qz93xVb"
PATIENCE_S = 480


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[mtl.testing.RunningBroker, str]]:
    """A broker with one user, who has rights on resources and no others, and the file of its public key."""
    place: Path = tmp_path_factory.mktemp("secure")
    private, public = write_keys(place / "broker")
    config, data, password = place / "broker.toml", place / "data", place / "password"
    config.write_text(f'[authentication]\nanonymous = false\n[curve]\nkey-file = "{private}"\n')
    password.write_text(SECRET)
    with Users(data) as users:
        users.add("etl", new_password(SECRET, lambda n: b"s" * n, 4096), [])
        users.grant("etl", [GrantRecord("/", right, "events.*") for right in ON_RESOURCES])
    with mtl.testing.broker(data, config) as running:
        yield running, str(public)


@pytest.fixture(scope="module")
def options(secured: tuple[mtl.testing.RunningBroker, str]) -> dict[str, str]:
    """How to reach the broker; all but the password."""
    running, public = secured
    return {"endpoint": running.endpoint, "user": "etl", "curveServerKey": public}


@pytest.mark.parametrize("how", ["password", "passwordFile"])
def test_scram_and_curve(
    spark: SparkSession, options: dict[str, str], how: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("password") / "password"
    file.write_text(SECRET)
    login = options | {how: SECRET if how == "password" else str(file)}
    name = f"events-{how}"
    rows = spark.createDataFrame([(f"row {n}",) for n in range(100)], ["body"])
    rows.write.format("mtl").options(**login, resource=name, createResource="true").mode("append").save()
    read = spark.read.format("mtl").options(**login, resources=name).load()
    assert sorted(r.body.decode() for r in read.select("body").collect()) == sorted(
        f"row {n}" for n in range(100)
    )
    with redirect_stdout(io.StringIO()) as shown:
        read.explain("extended")
    assert SECRET not in shown.getvalue()


def test_a_wrong_password_and_a_resource_without_a_grant(
    spark: SparkSession, options: dict[str, str]
) -> None:
    def rows(**more: str) -> list[Any]:
        return spark.read.format("mtl").options(**options, **more).load().collect()

    with pytest.raises(PySparkException) as caught:
        rows(password="open barley", resources="events")
    assert "did not accept the password" in str(caught.value)
    assert "barley" not in str(caught.value)
    with pytest.raises(PySparkException, match=r"may not.*mtl grant etl --read salaries"):
        rows(password=SECRET, resources="salaries")


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_query_of_a_user_with_rights_on_resources_only(
    spark: SparkSession, options: dict[str, str], guarantee: str, tmp_path: Path
) -> None:
    """The names that the connector makes up are the user's own; of others the error says how they are granted."""
    login, source, copy = options | {"password": SECRET}, f"events.{guarantee}", f"events.copy-{guarantee}"
    rows = spark.createDataFrame([("x",)], ["body"])

    def written(**more: str) -> None:
        to = login | {"resource": source, "createResource": "true", "deliveryGuarantee": guarantee}
        rows.write.format("mtl").options(**to, **more).mode("append").save()

    def copied(**more: str) -> None:
        frame = spark.readStream.format("mtl").options(
            **login, resources=source, startingOffsets="earliest", group=more.pop("group", "etl.copy")
        )
        to = login | {"resource": copy, "createResource": "true", "deliveryGuarantee": guarantee} | more
        writer = frame.load().select("body").writeStream.format("mtl").options(**to)
        at = str(tmp_path / ("checkpoint" + "".join(more)))
        writer.option("checkpointLocation", at).trigger(availableNow=True).start().awaitTermination()

    for _ in range(2):
        written()
        copied()
    read = spark.read.format("mtl").options(**login, resources=copy).load()
    assert [row.body for row in read.collect()] == [b"x", b"x"]
    with pytest.raises(PySparkException, match=r"may not use the group.*mtl grant etl --group copies"):
        copied(group="copies")
    if guarantee == "exactly-once":
        with pytest.raises(PySparkException, match="mtl grant etl --application nightly"):
            written(txnAppId="nightly", txnVersion="1")
        written(txnAppId="etl.nightly", txnVersion="1")


def showing(secret: str, *places: Path) -> list[str]:
    """The files below these places that hold the secret, as it is or within BASE64 (as SASL's PLAIN has it)."""
    forms = [secret.encode(), secret.encode("utf-16-le")]
    forms += [base64.b64encode(b"\0" * before + secret.encode())[4:-4] for before in range(3)]
    files = [path for place in places for path in (place, *place.rglob("*")) if path.is_file()]
    return [str(path) for path in files if any(form in path.read_bytes() for form in forms)]


def test_a_planted_secret_is_nowhere_to_be_seen(
    secured: tuple[mtl.testing.RunningBroker, str], tmp_path: Path
) -> None:
    """Plans, event log, offsets, partitions, logs, errors, tracebacks, checkpoint, progress, web pages and REST."""
    running, public = secured
    password, place = tmp_path / "password", tmp_path / "shown"
    password.write_text(SECRET)
    place.mkdir()
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "MTL_PLANTED": SECRET,
    }
    arguments = [running.endpoint, public, str(password), str(place)]
    with (place / "log").open("wb") as log:
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.secret_app", *arguments],
            cwd=Path(__file__).parents[3],
            env=environment,
            stdout=log,
            stderr=log,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, (place / "log").read_text(errors="replace")[-3000:]
    assert showing(SECRET, place, running.data, running.log) == []

    assert showing(SECRET, tmp_path) == [str(password)], "what looks for it finds it"
    told = (place / "told.txt").read_text()
    for said in (
        "may not",
        "unknown option 'passwrod'",
        "contradict",
        "no answer from",
        "With mode=PERMISSIVE",
    ):
        assert said in told
    assert '"numInputRows":27' in told.replace(" ", ""), "9 rows, read with each of the three logins"
    events = b"".join(path.read_bytes() for path in (place / "events").rglob("events_*"))
    assert b"SparkListenerSQLExecutionStart" in events
    assert b"BatchScan" in events
    assert {path.name for path in place.iterdir()} >= {
        "page-0",
        "events-copy",
        "partitions.pickle",
    }
