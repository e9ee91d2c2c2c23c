"""Contents of a resource that could not be read."""

from __future__ import annotations

from mtl.errors import Damaged, StorageError

_MAX_UNREAD = 100
"""Most ranges of a resource that are kept as unreadable; a dead disk would add one for every chunk."""


class Unread:
    """The contents of one resource that could not be read when they were last needed, and the reasons."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, int], StorageError] = {}

    def add(self, first: int, end: int, error: StorageError) -> bool:
        """Contents [first, end) could not be read; a `Damaged` has the range itself. Returns whether the range is
        new.
        """
        if isinstance(error, Damaged):
            first, end = error.first or first, error.end or end
        new = (first, end) not in self._places
        self._places[first, end] = error
        while len(self._places) > _MAX_UNREAD:
            del self._places[next(iter(self._places))]
        return new

    def covers(self, sequence: int) -> bool:
        """Whether this content is in one of the ranges."""
        return any(first <= sequence < end for first, end in self._places)

    def forget(self, sequence: int) -> None:
        """Forget ranges with this content: it could be read now."""
        self._places = {(f, e): why for (f, e), why in self._places.items() if not f <= sequence < e}

    @property
    def places(self) -> list[tuple[int, int]]:
        """The ranges: contents [first, end) each."""
        return list(self._places)

    @property
    def why(self) -> StorageError | None:
        """One of the reasons, if there are any."""
        return next(iter(self._places.values()), None)
