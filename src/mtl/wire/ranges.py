"""The place of a pack in the broker's files, which a Content has instead of the octets of the pack.

Such a Content has an empty body and stands for exactly the body that would have been sent. A reader with access to the
broker's files gets it (PROTOCOL.md 5.6). Its properties have a `FileRange`, with `mtl-count` and `mtl-timestamp`.
"""

from __future__ import annotations

from typing import NamedTuple, Self

from mtl.errors import Malformed
from mtl.limits import MAX_PACK, PACK_OVERHEAD
from mtl.wire.commands import COUNT, TIMESTAMP
from mtl.wire.fields import cached_table, encode_table

FILE = "mtl-file"
"""Path of the file (`S`)."""

OFFSET = "mtl-offset"
"""First octet of the body in the file (`l`)."""

SIZE = "mtl-size"
"""Octets of the body (`l`)."""

_FILE = FILE.encode()


class FileRange(NamedTuple):
    """`size` octets from `offset` on in `file`, an absolute path."""

    file: str
    offset: int
    size: int

    def properties(self, count: int, timestamp_us: int) -> bytes:
        """The properties of a pack of `count` contents at this place."""
        return encode_table({
            COUNT: count,
            TIMESTAMP: timestamp_us,
            FILE: self.file,
            OFFSET: self.offset,
            SIZE: self.size,
        })  # fmt: skip

    @classmethod
    def of(cls, properties: bytes) -> Self | None:
        """The range in the properties of a pack; None when the body has the pack. Malformed for an incomplete range,
        and for one above the largest pack: a reader allocates its octets where it cannot map the file.
        """
        if _FILE not in properties:  # nearly always, and then nothing has to be decoded
            return None
        table = cached_table(properties)
        if FILE not in table:
            return None
        file, offset, size = table[FILE], table.get(OFFSET), table.get(SIZE)
        if not isinstance(file, str) or type(offset) is not int or type(size) is not int:
            raise Malformed("a place of a pack without file, offset and size")
        if offset < 0 or not 0 < size <= MAX_PACK + PACK_OVERHEAD or not file.startswith("/"):
            raise Malformed(f"an impossible place of a pack: {size} octets at {offset} of {file!r}")
        return cls(file, offset, size)
