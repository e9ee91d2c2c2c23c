"""The results of a reader: single contents, and packs of many."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from mtl.wire.commands import TIMESTAMP
from mtl.wire.fields import RESERVED, Value, decode_table


class Content:
    """One content. `sequence` is its position in `resource`; `body` its octets.

    `properties` are the writer's. `timestamp` is the time at which the broker appended it, in µs since 1970 (UTC); None
    from a server without timestamps. Both are decoded on access.
    """

    __slots__ = ("_properties", "_stamp", "body", "resource", "sequence")

    def __init__(
        self, resource: str, sequence: int, properties: bytes, body: bytes, stamp: int | None = None
    ) -> None:
        self.resource = resource
        self.sequence = sequence
        self.body = body
        self._properties = properties
        self._stamp = stamp

    @property
    def table(self) -> bytes:
        """All properties, in the encoding in which they arrived. Equal tables have equal properties."""
        return self._properties

    @property
    def properties(self) -> dict[str, Value]:
        """The writer's properties; a new dictionary each time."""
        table = decode_table(self._properties)
        return {name: value for name, value in table.items() if not name.startswith(RESERVED)}

    @property
    def timestamp(self) -> int | None:
        """Append time in µs since 1970 (UTC)."""
        if self._stamp is None:
            stamp = decode_table(self._properties).get(TIMESTAMP)
            self._stamp = stamp if type(stamp) is int else None
        return self._stamp

    def __repr__(self) -> str:
        return f"Content({self.resource!r}, {self.sequence}, {len(self.body)} octets)"


@dataclass(frozen=True, slots=True)
class Pack:
    """Contents first .. first + count - 1 of `resource`, as an Arrow batch of the columns `properties` and `body`.

    `properties` are encoded field tables (null when empty). `timestamp_us` is their common append time.
    """

    resource: str
    first: int
    count: int
    batch: pa.RecordBatch
    timestamp_us: int | None

    def after(self, skip: int) -> Pack:
        """The pack without its first `skip` contents."""
        if not skip:
            return self
        return Pack(
            self.resource, self.first + skip, self.count - skip, self.batch.slice(skip), self.timestamp_us
        )
