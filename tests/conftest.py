"""Fixtures for all tests. Spark starts once, with the first test that uses it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.support import java, spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]

# The duration of an example mainly shows the load of the machine.
settings.register_profile("mtl", deadline=None)
settings.load_profile("mtl")


def pytest_configure() -> None:
    """Handle SIGINT, which tests send. A process that a shell has started in the background ignores it, and so do its
    children.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run files with Spark first: they take longest, and must not start when the other process has finished."""
    slow = {item.path for item in items if item.get_closest_marker("spark")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session", autouse=True)
def cheap_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hundreds of processes live for seconds: they neither optimize Java nor compile Python each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(java.VARIABLE, java.SHORT_LIVED)
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        if any(item.get_closest_marker("spark") for item in request.session.items):
            patch.setenv(spark_home.VARIABLE, str(spark_home.compiled()))
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark with two task slots; all its files are under pytest's temporary directory."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 unit tests do not pay for this import

    place = tmp_path_factory.mktemp("spark")
    for directory in ("local", "tmp", "warehouse"):
        (place / directory).mkdir()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        # Workers unpickle functions of test modules by name.
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        patch.setenv("SPARK_CONF_DIR", str(ROOT / "conf"))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")

        session = (
            SparkSession.builder.master("local[2]")
            .appName("tests")
            .config("spark.driver.memory", "1g")
            .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={place / 'tmp'}")
            .config("spark.local.dir", str(place / "local"))
            .config("spark.sql.warehouse.dir", str(place / "warehouse"))
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        yield session
        session.stop()
