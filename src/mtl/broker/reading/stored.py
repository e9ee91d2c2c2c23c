"""Contents as they are stored: decoded, or the reason why they cannot be read.

This is the one place where the broker decodes what lies in a log. What is stored was verified before it was taken in.
If it does not decode all the same it is damage: an error of that resource and of those who read there, never of the
broker.
"""

from __future__ import annotations

from mtl.errors import Damaged, Malformed, StorageError
from mtl.storage.api import ChunkRef
from mtl.wire.fields import Buffer
from mtl.wire.packs import RecordBatch, trust_pack

_MAX_UNREAD = 100
"""Places of a resource that could not be read and are remembered; a dead disk would make one of every chunk."""


class Unread:
    """What of one resource could not be read when it was wanted last, and why."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, int], StorageError] = {}

    def add(self, first: int, end: int, error: StorageError) -> bool:
        """Contents [first, end) could not be read, damage says itself which; whether that is new."""
        if isinstance(error, Damaged):
            first, end = error.first or first, error.end or end
        new = (first, end) not in self._places
        self._places[first, end] = error
        while len(self._places) > _MAX_UNREAD:
            del self._places[next(iter(self._places))]
        return new

    def covers(self, sequence: int) -> bool:
        """Whether this content is among them."""
        return any(first <= sequence < end for first, end in self._places)

    def was_read(self, sequence: int) -> None:
        """This content could be read now."""
        self._places = {(f, e): why for (f, e), why in self._places.items() if not f <= sequence < e}

    @property
    def places(self) -> list[tuple[int, int]]:
        """Contents [first, end) each."""
        return list(self._places)

    @property
    def why(self) -> StorageError | None:
        """One reason, if there is any."""
        return next(iter(self._places.values()), None)


def stored_pack(ref: ChunkRef, body: Buffer) -> RecordBatch:
    """The contents of the chunk `ref`, whose body was read. Raises `Damaged`."""
    try:
        pack = trust_pack(body)
    except Malformed as e:
        raise _damaged(ref, str(e)) from e
    if pack.num_rows != ref.count:
        raise _damaged(ref, f"{pack.num_rows} contents")
    return pack


def _damaged(ref: ChunkRef, what: str) -> Damaged:
    message = (
        f"contents {ref.base} to {ref.end - 1} are stored as {what}; `mtl verify` tells what else is damaged"
    )
    return Damaged(message, first=ref.base, end=ref.end)
