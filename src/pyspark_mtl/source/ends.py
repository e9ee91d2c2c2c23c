"""The end of a bounded stream in each resource: a backfill by endingOffsets or endingTimestamp.

An end is a sequence in the options, or the first content at or after a time. An end by time is unknown until such a
content exists; until then the stream continues to read. The checkpoint does not store the end, because the broker's
answer to the same request never changes.
"""

from __future__ import annotations

from collections.abc import Callable

from mtl.errors import OptionError
from mtl.wire.control import Description
from pyspark_mtl.options.kinds import LATEST, ReadPlace, ReadPlaces

Locate = Callable[[Description, ReadPlace], int]
"""Returns the end (exclusive) for a place, at most `next`. For a time after all contents it is `next`."""


class Ends:
    """The ends of one query run. A place LATEST in `places` means that the stream has no end."""

    def __init__(self, places: ReadPlaces, locate: Locate) -> None:
        self._places = places
        self._locate = locate
        self._found: dict[tuple[str, str], int] = {}

    def known_end(self, resource: str, incarnation: str) -> int | None:
        """The end (exclusive), if it is known_end already. Sends no request."""
        place = self._places.of(resource, LATEST)
        return place.value if place.kind == "sequence" else self._found.get((resource, incarnation))

    def bound(self, found: Description) -> int | None:
        """The present end (exclusive); None without an end.

        An end by time below `next` is final, because new contents are only appended. It is kept.
        """
        place = self._places.of(found.resource, LATEST)
        if place.kind == "latest":
            return None
        known = self.known_end(found.resource, found.incarnation)
        if known is not None:
            return known
        end = self._locate(found, place)
        if end < found.next:
            self._found[found.resource, found.incarnation] = end
        return end


def ends_too_early(resource: str, first: int, until: int) -> OptionError:
    """The error for a read whose end lies before its start."""
    return OptionError(f"the read of {resource!r} ends ({until}) before it starts ({first})")
