"""How far a query is behind, out of what Spark reports of it: contents, stored octets, seconds. Pure.

The source tells Spark's progress, as `latestOffset`, where each resource ends, and of one with contents that the batch
leaves, how many octets (`bytes`) those have and when the oldest was appended (`since`, µs):

    {"resources": {"orders": {"bytes": 8192, "i": "9f2c", "n": 4001, "since": 1769860800000000}}, "version": 1}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mtl.errors import OffsetError
from mtl.wire.times import microseconds
from pyspark_mtl.source import offsets


@dataclass(frozen=True)
class Lag:
    """What a batch left unread in a resource: contents, octets as stored, and the age of the oldest content then."""

    contents: int = 0
    bytes: int = 0
    seconds: float = 0.0


def lags(sources: Iterable[Mapping[str, Any]], timestamp: str) -> dict[str, Lag]:
    """The lag in each resource, of the `sources` of a query's progress and its `timestamp` (ISO 8601).

    Of a resource that several sources read (a self-join) the larger lag counts. Sources of other formats, and those
    that have not looked yet, have none.
    """
    found: dict[str, Lag] = {}
    for source in sources:
        for name, lag in _of_source(source, microseconds(timestamp)).items():
            found[name] = max(lag, found.get(name, lag), key=lambda one: one.contents)
    return found


def _of_source(source: Mapping[str, Any], now_us: int) -> dict[str, Lag]:
    latest = _decoded(source.get("latestOffset"))
    try:
        end, ends = offsets.parse(_decoded(source.get("endOffset"))), offsets.parse(latest)
    except OffsetError:
        return {}
    found = {}
    for name, last in ends.resources.items():
        reached = end.resources.get(name)
        if reached is not None and reached.incarnation == last.incarnation:
            told = latest["resources"][name]
            since = told.get("since", now_us)
            found[name] = Lag(
                max(0, last.next - reached.next), told.get("bytes", 0), max(0, now_us - since) / 1e6
            )
    return found


def _decoded(offset: object) -> Any:
    """Spark shows offsets as text, and in JSON as they are; one that is not there as "null"."""
    if not isinstance(offset, str):
        return offset
    try:
        return json.loads(offset)
    except ValueError:
        return None
