"""The stored state of a connection whose door stopped, with which a door can continue it. Pure functions.

Two kinds of contents, as JSON, in the resource `mbws.connections` (see `connection_store`):

    kept.1       a connection as it was when its door stopped: the numbers of both directions, and the places in the
                 log of the messages that its client has not acknowledged
    claimed.1    a door continues it: the first claim after a `kept.1` wins

A connection is identified by the SHA-256 of its name, so that readers of the resource cannot take connections over.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from itertools import chain
from typing import Annotated, Literal

import msgspec

from mtl.doors.limits import MBWS_ADDRESSES, MBWS_WINDOW
from mtl.doors.mbws.codec import LAST_NUMBER
from mtl.doors.mbws.recovery import Client, KnownConnection, MessageOrigin, ReadPosition
from mtl.errors import Malformed

CONNECTIONS = "mbws.connections"
"""The resource."""

_Number = Annotated[int, msgspec.Meta(ge=0, le=LAST_NUMBER)]
_Positive = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
_Index = Annotated[int, msgspec.Meta(ge=0, lt=MBWS_ADDRESSES)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=MBWS_WINDOW)]


class ReadingRecord(msgspec.Struct, frozen=True, array_like=True):
    """The position at which the reading of an address continues."""

    address: str
    start: _Positive | Literal["earliest", "latest"]
    incarnation: str | None


class SentRun(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive messages for consecutive contents: `count` from `first` on, of the address with this index."""

    address: _Index
    first: _Positive
    count: _Count


class ConnectionRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="kept.1"):
    """One connection. `until` is when it expires, in seconds since 1970; `received` the client's last durable message
    (SSLR), `acknowledged` our last message that the client acknowledged, and `sent` are the messages after it.
    """

    connection: str
    origin: str | None
    user: str | None
    until: float
    received: _Number
    acknowledged: _Number
    reading: Annotated[tuple[ReadingRecord, ...], msgspec.Meta(max_length=MBWS_ADDRESSES)]
    sent: Annotated[tuple[SentRun, ...], msgspec.Meta(max_length=MBWS_WINDOW)]

    @property
    def client(self) -> Client:
        """The client of the connection."""
        return Client(self.origin, self.user)


class ClaimRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="claimed.1"):
    """A door continues a connection, if this is the first `claim`: each attempt has its own."""

    connection: str
    claim: str


def digest(name: str) -> str:
    """The identifier of a connection in the resource."""
    return sha256(name.encode()).hexdigest()


def encode(record: ConnectionRecord | ClaimRecord) -> bytes:
    """The body of a content."""
    return msgspec.json.encode(record)


_DECODER: msgspec.json.Decoder[ConnectionRecord | ClaimRecord] = msgspec.json.Decoder(
    ConnectionRecord | ClaimRecord
)


def decode(body: bytes) -> ConnectionRecord | ClaimRecord:
    """Parse a content's body. Raises `Malformed`, also for messages of addresses that are not read."""
    try:
        record = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise Malformed(f"not a record of a connection: {wrong}") from wrong
    if isinstance(record, ConnectionRecord):
        if sum(run.count for run in record.sent) > MBWS_WINDOW:
            raise Malformed(f"not a record of a connection: more than {MBWS_WINDOW} messages")
        if any(run.address >= len(record.reading) for run in record.sent):
            raise Malformed("not a record of a connection: messages of an address that is not read")
    return record


def record_of(connection: KnownConnection, received: int, until: float) -> ConnectionRecord:
    """The state of a connection that has nothing under way."""
    addresses = {address: index for index, address in enumerate(connection.reading)}
    return ConnectionRecord(
        connection=digest(connection.name),
        origin=connection.client.origin,
        user=connection.client.user,
        until=until,
        received=received,
        acknowledged=connection.outgoing.acked,
        reading=tuple(
            ReadingRecord(a, place.start, place.incarnation)  # type: ignore[arg-type]  # a door never reads a group
            for a, place in connection.reading.items()
        ),
        sent=tuple(_runs(connection.outgoing.entries, addresses)),
    )


def _runs(places: Iterable[MessageOrigin], addresses: dict[str, int]) -> Iterable[SentRun]:
    last: SentRun | None = None
    for address, sequence in places:
        index = addresses[address]
        if last is not None and (last.address, last.first + last.count) == (index, sequence):
            last = msgspec.structs.replace(last, count=last.count + 1)
            continue
        if last is not None:
            yield last
        last = SentRun(index, sequence, 1)
    if last is not None:
        yield last


def restore(record: ConnectionRecord, connection: KnownConnection) -> None:
    """Set a new connection to the recorded state, except for `received`."""
    connection.reading = {
        reading.address: ReadPosition(reading.start, reading.incarnation) for reading in record.reading
    }
    names = [reading.address for reading in record.reading]
    connection.outgoing.acked = record.acknowledged
    connection.outgoing.entries.extend(
        chain.from_iterable(
            (MessageOrigin(names[run.address], run.first + n) for n in range(run.count))
            for run in record.sent
        )
    )
