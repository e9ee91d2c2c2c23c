"""Packs that are told by their place: on one machine their octets need not travel.

Such a Content has an empty body and stands for exactly the body that would have been sent. To a reader that sees the
broker's files it says which of them (PROTOCOL.md 5.6): a `Place`, beside `mtl-count` and `mtl-timestamp`. From a writer
that shares memory with the broker it says where in it (PROTOCOL.md 5.7): a `Span`, beside `mtl-count`.
"""

from __future__ import annotations

from typing import NamedTuple, Self

from mtl.errors import Malformed
from mtl.wire.commands import COUNT, TIMESTAMP
from mtl.wire.fields import encode_table, known_table

FILE = "mtl-file"
"""Path of the file (`S`)."""

OFFSET = "mtl-offset"
"""First octet of the body in the file or memory (`l`)."""

SIZE = "mtl-size"
"""Octets of the body (`l`)."""

SHARED_FROM = 64
"""Where a writer's packs begin in memory that it shares with the broker: before are the key, a mark, and zeros."""

_FILE = FILE.encode()


class Place(NamedTuple):
    """`size` octets from `offset` on in `file`, an absolute path."""

    file: str
    offset: int
    size: int

    def properties(self, count: int, timestamp_us: int) -> bytes:
        """The properties of a pack of `count` contents that lies here."""
        return encode_table({
            COUNT: count,
            TIMESTAMP: timestamp_us,
            FILE: self.file,
            OFFSET: self.offset,
            SIZE: self.size,
        })  # fmt: skip

    @classmethod
    def of(cls, properties: bytes) -> Self | None:
        """Where the pack with these properties lies; None when it came itself. Malformed for half a place."""
        if _FILE not in properties:  # nearly always, and then nothing has to be decoded
            return None
        table = known_table(properties)
        if FILE not in table:
            return None
        file, offset, size = table[FILE], table.get(OFFSET), table.get(SIZE)
        if not isinstance(file, str) or type(offset) is not int or type(size) is not int:
            raise Malformed("a pack that is told by its place, without file, offset and size")
        if offset < 0 or size < 1 or not file.startswith("/"):
            raise Malformed(f"a pack that cannot lie in {file!r}, {size} octets at {offset}")
        return cls(file, offset, size)


class Span(NamedTuple):
    """`size` octets from `offset` on in the memory that goes with a lease."""

    offset: int
    size: int

    def properties(self, count: int) -> bytes:
        """The properties of a pack of `count` contents that lies here."""
        return encode_table({COUNT: count, OFFSET: self.offset, SIZE: self.size})

    @classmethod
    def of(cls, properties: bytes) -> Self:
        """Where the pack with these properties lies. Malformed when they do not say it."""
        table = known_table(properties)
        offset, size = table.get(OFFSET), table.get(SIZE)
        if type(offset) is not int or type(size) is not int or offset < 0 or size < 1:
            raise Malformed(f"a pack that lies nowhere: {size!r} octets at {offset!r}")
        return cls(offset, size)
