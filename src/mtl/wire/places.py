"""Packs that are told by their place: for a reader that sees the broker's files, the octets need not travel.

PROTOCOL.md 5.6. Such a Content has an empty body and, beside `mtl-count` and `mtl-timestamp`, the three properties of
a `Place`. What it stands for is exactly the body that would have been sent.
"""

from __future__ import annotations

from typing import NamedTuple, Self

from mtl.errors import Malformed
from mtl.wire.commands import COUNT, TIMESTAMP
from mtl.wire.fields import encode_table, known_table

FILE = "mtl-file"
"""Path of the file (`S`)."""

OFFSET = "mtl-offset"
"""First octet of the body in the file (`l`)."""

SIZE = "mtl-size"
"""Octets of the body (`l`)."""

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
