"""Spark through a broker that wants a password and encryption: read and written, and no secret shown."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import mtl.testing
from mtl.broker.accounts import Right
from mtl.broker.records import GrantRecord
from mtl.broker.users import Users, new_password
from mtl.net.curve import write_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SECRET = "open sesame"


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """How to reach a broker with one user; all but the password."""
    place: Path = tmp_path_factory.mktemp("secure")
    private, public = write_keys(place / "broker")
    config, data, password = place / "broker.toml", place / "data", place / "password"
    config.write_text(f'[authentication]\nanonymous = false\n[curve]\nkey-file = "{private}"\n')
    password.write_text(SECRET)
    with Users(data) as users:
        users.add("etl", new_password(SECRET, lambda n: b"s" * n, 4096), [])
        users.grant("etl", [GrantRecord("/", right.value, "events.*") for right in Right])
    with mtl.testing.broker(data, config) as running:
        yield {"endpoint": running.endpoint, "user": "etl", "curveServerKey": str(public)}


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
    with pytest.raises(PySparkException, match="may not"):
        rows(password=SECRET, resources="salaries")
