"""Where a bounded stream ends in each resource: a backfill by endingOffsets or endingTimestamp.

An end is a sequence that the options name, or the first content at or after a time. The latter is not known before such
a content is there; until then the stream reads on. It is never kept in the checkpoint: asked again, the broker answers
the same.
"""

from __future__ import annotations

from collections.abc import Callable

from mtl.errors import OptionError
from mtl.wire.control import Description
from pyspark_mtl.options.kinds import LATEST, Place, Places

Locate = Callable[[Description, Place], int]
"""The sequence to end before, at most `next`; `next` also for a time after all contents."""


class Ends:
    """The ends of one query run. `places` LATEST stands for no end: a stream reads on."""

    def __init__(self, places: Places, locate: Locate) -> None:
        self._places = places
        self._locate = locate
        self._found: dict[tuple[str, str], int] = {}

    def known(self, resource: str, incarnation: str) -> int | None:
        """The sequence to end before, where it is settled already; asks nobody."""
        place = self._places.of(resource, LATEST)
        return place.value if place.kind == "sequence" else self._found.get((resource, incarnation))

    def bound(self, found: Description) -> int | None:
        """The sequence that nothing may be read from on, for now; None without an end.

        An end by time that lies below what is there stays where it is: contents only ever come behind it.
        """
        place = self._places.of(found.resource, LATEST)
        if place.kind == "latest":
            return None
        known = self.known(found.resource, found.incarnation)
        if known is not None:
            return known
        end = self._locate(found, place)
        if end < found.next:
            self._found[found.resource, found.incarnation] = end
        return end


def ends_too_early(resource: str, first: int, until: int) -> OptionError:
    """The error for a read whose end lies before its start."""
    return OptionError(f"the read of {resource!r} ends ({until}) before it starts ({first})")
