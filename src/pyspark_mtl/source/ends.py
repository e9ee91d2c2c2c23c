"""The end of a bounded stream in each resource: a backfill by endingOffsets or endingTimestamp.

An end is a sequence in the options, or the first content at or after a time. An end by time is unknown until such a
content exists; until then the stream continues to read. The checkpoint does not store the end, because the broker's
answer to the same request never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mtl.errors import OptionError
from mtl.wire.control import Description
from pyspark_mtl.options.kinds import LATEST, ReadPlace, ReadPlaces

Place = tuple[Description, ReadPlace]
"""A place in a resource."""

Locate = Callable[[Sequence[Place]], list[int]]
"""Returns the end (exclusive) for each place, at most `next`. For a time after all contents it is `next`."""


class Ends:
    """The ends of one query run. A place LATEST in `places` means that the stream has no end."""

    def __init__(self, places: ReadPlaces, locate: Locate) -> None:
        self._places = places
        self._locate = locate
        self._found: dict[tuple[str, str], int] = {}
        self._present: dict[str, int] = {}
        """The last located end of each resource."""

    def known_end(self, resource: str, incarnation: str) -> int | None:
        """The end (exclusive), if it is known_end already. Sends no request."""
        place = self._places.of(resource, LATEST)
        return place.value if place.kind == "sequence" else self._found.get((resource, incarnation))

    def look_up(self, found: Sequence[Description]) -> None:
        """Locate the ends of these resources together, for `bound`."""
        wanted = [(description, self._places.of(description.resource, LATEST)) for description in found]
        unknown = [
            (description, place)
            for description, place in wanted
            if place.kind != "latest"
            and self.known_end(description.resource, description.incarnation) is None
        ]
        for (description, _), end in zip(unknown, self._locate(unknown), strict=True):
            if end < description.next:
                self._found[description.resource, description.incarnation] = end
            self._present[description.resource] = end

    def bound(self, found: Description) -> int | None:
        """The present end (exclusive), after a `look_up` with the same description; None without an end.

        An end by time below `next` is final, because new contents are only appended. It is kept.
        """
        place = self._places.of(found.resource, LATEST)
        if place.kind == "latest":
            return None
        known = self.known_end(found.resource, found.incarnation)
        return self._present[found.resource] if known is None else known


def ends_too_early(resource: str, first: int, until: int) -> OptionError:
    """The error for a read whose end lies before its start."""
    return OptionError(f"the read of {resource!r} ends ({until}) before it starts ({first})")
