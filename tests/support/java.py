"""Java in tests: its processes are short-lived, so that the optimizing compiler costs more than it saves."""

from __future__ import annotations

from pathlib import Path

VARIABLE = "JDK_JAVA_OPTIONS"
"""The variable with options that every `java` reads before its arguments, also one that Spark starts."""

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""Half the processor time for a Spark that does some small jobs, no threads except those of Spark, no file in /tmp."""


def options(scratch: Path) -> str:
    """Options of a short-lived JVM; its temporary files are in `scratch`, because it may be killed."""
    return f"-Djava.io.tmpdir={scratch} {SHORT_LIVED}"
