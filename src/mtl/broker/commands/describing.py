"""Descriptions of resources, for Resource.Create, Resource.List and Resource.Describe."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mtl.broker import limits as broker_limits
from mtl.broker.outbox import Result
from mtl.broker.reading.reads import Reads
from mtl.broker.writing.resource import Resource
from mtl.errors import Refused
from mtl.storage.api import Range, RangeFrom
from mtl.wire import control as w


def describe(
    reads: Reads,
    found: Sequence[Resource],
    then: Callable[[list[w.Description]], None],
    *,
    history: bool = False,
) -> None:
    """Describe resources, with the epochs of their logs if asked for. Raises `Refused` 413 for too many.

    The time of the oldest content may have to be read. An error is left out here; readers get it.
    """
    if len(found) > broker_limits.MAX_DESCRIBED:
        raise Refused(413, w.TOO_LARGE, f"{len(found)} resources are too many for one answer; ask for fewer")
    filled = [r for r in found if r.log is not None and r.log.contents]

    def answered(oldest: list[Result]) -> None:
        times = {r: x.time_us for r, x in zip(filled, oldest, strict=True) if isinstance(x, Range)}
        then([r.describe(times.get(r), history=history) for r in found])

    reads.ask_all([(r, RangeFrom(r.earliest, contents=1)) for r in filled], answered)
