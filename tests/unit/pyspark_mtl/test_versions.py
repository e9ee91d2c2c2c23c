from __future__ import annotations

import pytest

from mtl.errors import OptionError, SparkMissing
from pyspark_mtl import versions
from pyspark_mtl.options.settings import parse


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0.dev1", "5.0.0"])
def test_newer_versions_of_spark_have_all_features(version: str) -> None:
    assert versions.has_limits(version)


@pytest.mark.parametrize("version", ["4.0.0", "4.1.4"])
def test_older_versions_of_spark_have_no_limits(version: str) -> None:
    assert not versions.has_limits(version)
    assert versions.missing(version).startswith(f"Spark {version} asks")


@pytest.mark.parametrize("version", ["3.5.4", "unknown"])
def test_a_spark_that_is_too_old_is_an_error_with_its_version(version: str) -> None:
    with pytest.raises(SparkMissing, match=rf"needs PySpark 4.0 or newer; this is {version}"):
        versions.number(version)


@pytest.mark.parametrize("name", versions.NEED_LIMITS)
def test_limits_are_refused_by_name(name: str) -> None:
    value = "5s" if name == "maxTriggerDelay" else "5"
    with pytest.raises(OptionError, match=f"option {name} needs Spark 4.2 or newer.*this is Spark 4.1.4"):
        versions.refuse_limits(parse({name.lower(): value, "resources": "a"}), "4.1.4")
    versions.refuse_limits(parse({"resources": "a"}), "4.1.4")
