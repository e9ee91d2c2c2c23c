"""The lag of a query, from its progress report in Spark: contents, stored octets, seconds. Pure.

In the report, `latestOffset` has the end of each resource (`n`). For a resource with unread contents it also has their
stored octets (`bytes`) and the time at which the oldest of them was appended (`since`, µs since 1970):

    {"resources": {"orders": {"bytes": 8192, "i": "9f2c", "n": 4001, "since": 1769860800000000}}, "version": 1}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mtl.errors import OffsetError
from mtl.wire.quantities import microseconds
from pyspark_mtl.source import offsets


@dataclass(frozen=True)
class Lag:
    """Unread contents of a resource after a batch: their number, stored octets, and the age of the oldest."""

    contents: int = 0
    bytes: int = 0
    seconds: float = 0.0


def lags(sources: Iterable[Mapping[str, Any]], timestamp: str) -> dict[str, Lag]:
    """The lag in each resource, from the `sources` and the `timestamp` (ISO 8601) of a query's progress.

    If several sources read a resource (a self-join), the larger lag counts. Sources of other formats, and sources
    without a first query of the broker, have no lag.
    """
    by_name: dict[str, Lag] = {}
    for source in sources:
        for name, lag in _of_source(source, microseconds(timestamp)).items():
            by_name[name] = max(lag, by_name.get(name, lag), key=lambda candidate: candidate.contents)
    return by_name


def _of_source(source: Mapping[str, Any], now_us: int) -> dict[str, Lag]:
    latest = _decoded(source.get("latestOffset"))
    try:
        end, ends = offsets.parse(_decoded(source.get("endOffset"))), offsets.parse(latest)
    except OffsetError:
        return {}
    by_name = {}
    for name, last in ends.resources.items():
        reached = end.resources.get(name)
        if reached is not None and reached.incarnation == last.incarnation:
            reported = latest["resources"][name]
            since = reported.get("since", now_us)
            by_name[name] = Lag(
                max(0, last.next - reached.next), reported.get("bytes", 0), max(0, now_us - since) / 1e6
            )
    return by_name


def _decoded(offset: object) -> Any:
    """An offset's value. Spark's progress objects have it as JSON text ("null" if absent), its JSON as a value."""
    if not isinstance(offset, str):
        return offset
    try:
        return json.loads(offset)
    except ValueError:
        return None
