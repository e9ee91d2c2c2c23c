from __future__ import annotations

import subprocess
import sys

import pytest

import pyspark_mtl
from pyspark_mtl.datasource import MtlDataSource
from pyspark_mtl.listener import LagListener

HIDE = "import sys; sys.modules.update({name: None for name in ('pyspark', 'zmq')})"


def run(program: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", f"{HIDE}\n{program}"], capture_output=True, text=True, check=False
    )
    return result.stdout + result.stderr


def test_the_data_source_is_imported_on_access() -> None:
    assert pyspark_mtl.DefaultSource is pyspark_mtl.MtlDataSource is MtlDataSource


def test_the_listener_is_imported_on_access() -> None:
    assert pyspark_mtl.LagListener is LagListener
    assert "mtl.errors.SparkMissing" in run("import pyspark_mtl; pyspark_mtl.LagListener")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'pyspark_mtl' has no attribute 'Nothing'"):
        _ = pyspark_mtl.Nothing


def test_the_package_is_imported_without_spark_and_zmq() -> None:
    assert run("import pyspark_mtl; print(pyspark_mtl.__version__)").strip() == pyspark_mtl.__version__


def test_a_missing_spark_is_a_named_error() -> None:
    output = run("import pyspark_mtl; pyspark_mtl.DefaultSource")
    assert "mtl.errors.SparkMissing: format mtl needs PySpark 4.0 or newer" in output
    assert "pip install 'pyspark-mtl[spark]'" in output


def test_the_name_of_the_data_source_is_found_without_zmq() -> None:
    program = (
        "import sys; sys.modules.pop('pyspark'); import pyspark_mtl; print(pyspark_mtl.DefaultSource.name())"
    )
    assert run(program).strip() == "mtl"
