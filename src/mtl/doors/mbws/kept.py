"""What is stored of a connection when its door stops, so that a door can go on with it. Pure.

Two kinds of contents, as JSON, in the resource `mbws.connections` (`keeping`):

    kept.1       a connection as it was when its door stopped: the numbers of both directions, and the places in the
                 log of the messages that its client has not acknowledged
    claimed.1    a door goes on with it: the first claim behind a `kept.1` is the one that counts

A connection is named by the SHA-256 of its name: whoever may read the resource cannot recover what is in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from itertools import chain
from typing import Annotated, Literal

import msgspec

from mtl.doors.limits import MBWS_ADDRESSES, MBWS_WINDOW
from mtl.doors.mbws.codec import LAST_NUMBER
from mtl.doors.mbws.recovery import Client, Connection, Next, Place
from mtl.errors import Malformed

CONNECTIONS = "mbws.connections"
"""The resource."""

_Number = Annotated[int, msgspec.Meta(ge=0, le=LAST_NUMBER)]
_Positive = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
_Index = Annotated[int, msgspec.Meta(ge=0, lt=MBWS_ADDRESSES)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=MBWS_WINDOW)]


class Reading(msgspec.Struct, frozen=True, array_like=True):
    """Where the reading of an address goes on."""

    address: str
    start: _Positive | Literal["earliest", "latest"]
    incarnation: str | None


class Run(msgspec.Struct, frozen=True, array_like=True):
    """Messages in a row that came of contents in a row: `count` from `first` on, of the address with this index."""

    address: _Index
    first: _Positive
    count: _Count


class Kept(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="kept.1"):
    """One connection. `until` is when it is forgotten, in seconds since 1970; `received` the client's last message that
    is durable (SSLR), `acknowledged` the last of ours that the client has, and `sent` those behind it.
    """

    connection: str
    origin: str | None
    user: str | None
    until: float
    received: _Number
    acknowledged: _Number
    reading: Annotated[tuple[Reading, ...], msgspec.Meta(max_length=MBWS_ADDRESSES)]
    sent: Annotated[tuple[Run, ...], msgspec.Meta(max_length=MBWS_WINDOW)]

    @property
    def client(self) -> Client:
        """Whose it is."""
        return Client(self.origin, self.user)


class Claimed(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="claimed.1"):
    """A door goes on with a connection, if this is the first `claim`: each try has one of its own."""

    connection: str
    claim: str


def digest(name: str) -> str:
    """What a connection of this name is called here."""
    return sha256(name.encode()).hexdigest()


def encode(record: Kept | Claimed) -> bytes:
    """The body of a content."""
    return msgspec.json.encode(record)


_DECODER: msgspec.json.Decoder[Kept | Claimed] = msgspec.json.Decoder(Kept | Claimed)


def decode(body: bytes) -> Kept | Claimed:
    """What a content says. Raises `Malformed`, also for messages of addresses that are not read."""
    try:
        record = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise Malformed(f"no record of a connection: {wrong}") from wrong
    if isinstance(record, Kept):
        if sum(run.count for run in record.sent) > MBWS_WINDOW:
            raise Malformed(f"no record of a connection: more than {MBWS_WINDOW} messages")
        if any(run.address >= len(record.reading) for run in record.sent):
            raise Malformed("no record of a connection: messages of an address that is not read")
    return record


def kept(connection: Connection, received: int, until: float) -> Kept:
    """A connection as it is; nothing of it is under way."""
    addresses = {address: index for index, address in enumerate(connection.reading)}
    return Kept(
        connection=digest(connection.name),
        origin=connection.client.origin,
        user=connection.client.user,
        until=until,
        received=received,
        acknowledged=connection.outgoing.acked,
        reading=tuple(Reading(a, one.start, one.incarnation) for a, one in connection.reading.items()),  # type: ignore[arg-type]  # a door never reads a group
        sent=tuple(_runs(connection.outgoing.entries, addresses)),
    )


def _runs(places: Iterable[Place], addresses: dict[str, int]) -> Iterable[Run]:
    last: Run | None = None
    for address, sequence in places:
        index = addresses[address]
        if last is not None and (last.address, last.first + last.count) == (index, sequence):
            last = msgspec.structs.replace(last, count=last.count + 1)
            continue
        if last is not None:
            yield last
        last = Run(index, sequence, 1)
    if last is not None:
        yield last


def restore(record: Kept, connection: Connection) -> None:
    """Make a new connection what the record says, but for what was received."""
    connection.reading = {one.address: Next(one.start, one.incarnation) for one in record.reading}
    names = [one.address for one in record.reading]
    connection.outgoing.acked = record.acknowledged
    connection.outgoing.entries.extend(
        chain.from_iterable(
            (Place(names[run.address], run.first + n) for n in range(run.count)) for run in record.sent
        )
    )
