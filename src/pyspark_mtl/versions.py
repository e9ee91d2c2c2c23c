"""The versions of Spark that the connector works with, and the features that older ones lack. Pure.

Spark 4.2 and newer have all features. 4.0 and 4.1 pass no limits to a source (SPARK-55304), and the connector does not
imitate them, since Trigger.AvailableNow would stop after one limited batch. Options of limits are errors there.
"""

from __future__ import annotations

import re

from mtl.errors import OptionError, SparkMissing
from pyspark_mtl.options.settings import Given

OLDEST = (4, 0)
"""The first version with streaming Python data sources that read and write record batches."""

LIMITS = (4, 2)
"""The first version that passes limits and the start of a batch to readers, and supports Trigger.AvailableNow."""

INSTALL = "pip install 'pyspark-mtl[spark]', or use the PySpark that your platform brings"

NEED_LIMITS = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
"""Options that need a Spark that passes limits to sources."""


def number(version: str) -> tuple[int, int]:
    """(4, 2) of "4.2.1". SparkMissing if this version of PySpark is too old, or is not a version."""
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None or (int(match[1]), int(match[2])) < OLDEST:
        raise SparkMissing(
            f"format mtl needs PySpark {OLDEST[0]}.{OLDEST[1]} or newer; this is {version}. {INSTALL}"
        )
    return int(match[1]), int(match[2])


def has_limits(version: str) -> bool:
    """Whether this version of Spark asks a stream for a batch within limits."""
    return number(version) >= LIMITS


def refuse_limits(given: Given, version: str) -> None:
    """OptionError for an option that this version of Spark cannot honour."""
    for name in NEED_LIMITS:
        if name in given:
            raise OptionError(
                f"option {name} needs Spark {LIMITS[0]}.{LIMITS[1]} or newer, which asks a source for a batch within "
                f"limits; this is Spark {version}. Leave it out: a batch then has all available contents"
            )


def missing(version: str) -> str:
    """A text about the features that an older version lacks; docs/how-to/spark-versions.md has it in detail."""
    return (
        f"Spark {version} asks a source for all available contents: batches have no limits, Trigger.AvailableNow is "
        "one batch, and the last batch of such a run is confirmed to its group by a later one. "
        f"Spark {LIMITS[0]}.{LIMITS[1]} does not have these restrictions"
    )
