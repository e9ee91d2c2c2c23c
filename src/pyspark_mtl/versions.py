"""The versions of Spark that the connector works with, and what the older of them lack. Pure.

Spark 4.2 and newer have all of it. 4.0 and 4.1 do not ask a source for a batch within limits (SPARK-55304), and nothing
here imitates that: Trigger.AvailableNow would stop after one limited batch. Limits are refused there, by name.
"""

from __future__ import annotations

import re

from mtl.errors import OptionError, SparkMissing
from pyspark_mtl.options.settings import Given

OLDEST = (4, 0)
"""Python data sources that stream, and record batches in and out of them."""

LIMITS = (4, 2)
"""Readers with limits, which are told where a batch starts and that a run is AvailableNow."""

INSTALL = "pip install 'pyspark-mtl[spark]', or use the PySpark that your platform brings"

NEED_LIMITS = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
"""Options that mean nothing where Spark does not ask for a batch within limits."""


def number(version: str) -> tuple[int, int]:
    """(4, 2) of "4.2.1". SparkMissing when this version of PySpark is too old, or is no version."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        raise SparkMissing(
            f"format mtl needs PySpark {OLDEST[0]}.{OLDEST[1]} or newer; this is {version}. {INSTALL}"
        )
    return int(found[1]), int(found[2])


def has_limits(version: str) -> bool:
    """Whether this version of Spark asks a stream for a batch within limits."""
    return number(version) >= LIMITS


def refuse_limits(given: Given, version: str) -> None:
    """OptionError for an option that this version of Spark cannot honour."""
    for name in NEED_LIMITS:
        if name in given:
            raise OptionError(
                f"option {name} needs Spark {LIMITS[0]}.{LIMITS[1]} or newer, which asks a source for a batch within "
                f"limits; this is Spark {version}. Leave it out: a batch is then all that there is"
            )


def missing(version: str) -> str:
    """What an older version lacks, for people. docs/how-to/spark-versions.md says the same."""
    return (
        f"Spark {version} asks a source for all that there is: batches have no limits, Trigger.AvailableNow is one "
        "batch, and the last batch of such a run is confirmed to its group by a later one. "
        f"Spark {LIMITS[0]}.{LIMITS[1]} has all of it"
    )
