"""The end of a bounded stream in each resource: a backfill by endingOffsets or endingTimestamp.

An end is a sequence in the options, or the first content at or after a time. An end by time is unknown until such a
content exists; until then the stream continues to read. The checkpoint does not store the end, because the broker's
answer to the same request never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mtl.errors import OptionError
from mtl.wire.control import Description
from pyspark_mtl.options.kinds import LATEST, ReadPosition, ReadPositions

ResourcePosition = tuple[Description, ReadPosition]
"""A resource and a position in it."""

Locate = Callable[[Sequence[ResourcePosition]], list[int]]
"""Returns the end (exclusive) for each position, at most `next`. For a time after all contents it is `next`."""


class Ends:
    """The ends of one query run. A position LATEST in `positions` means that the stream has no end."""

    def __init__(self, positions: ReadPositions, locate: Locate) -> None:
        self._positions = positions
        self._locate = locate
        self._final: dict[tuple[str, str], int] = {}
        self._present: dict[str, int] = {}
        """The last located end of each resource."""

    def end_if_known(self, resource: str, incarnation: str) -> int | None:
        """The end (exclusive), if it is known already. Sends no request."""
        position = self._positions.of(resource, LATEST)
        return position.value if position.kind == "sequence" else self._final.get((resource, incarnation))

    def look_up(self, descriptions: Sequence[Description]) -> None:
        """Locate the ends of these resources together, for `bound`."""
        wanted = [
            (description, self._positions.of(description.resource, LATEST)) for description in descriptions
        ]
        unknown = [
            (description, position)
            for description, position in wanted
            if position.kind != "latest"
            and self.end_if_known(description.resource, description.incarnation) is None
        ]
        for (description, _), end in zip(unknown, self._locate(unknown), strict=True):
            if end < description.next:
                self._final[description.resource, description.incarnation] = end
            self._present[description.resource] = end

    def bound(self, description: Description) -> int | None:
        """The present end (exclusive), after a `look_up` with the same description; None without an end.

        An end by time below `next` is final, because new contents are only appended. It is kept.
        """
        position = self._positions.of(description.resource, LATEST)
        if position.kind == "latest":
            return None
        known = self.end_if_known(description.resource, description.incarnation)
        return self._present[description.resource] if known is None else known


def ends_too_early(resource: str, first: int, until: int) -> OptionError:
    """The error for a read whose end lies before its start."""
    return OptionError(f"the read of {resource!r} ends ({until}) before it starts ({first})")
