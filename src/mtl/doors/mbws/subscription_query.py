"""The client's subscriptions, in the query of the URL of its upgrade request: the document leaves this to the broker.

?address=orders&from=earliest&address=news     two addresses, each with its `from`: earliest, latest or a sequence;
                                               the default is latest (from now on)
&frames=text                                   MBLWS: the form of the frames to the client; else binary
&lengths=characters                            the lengths in binary frames are of code points, not of octets
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, urlsplit

from mtl.client.reader_part import Start
from mtl.doors.limits import MBWS_ADDRESSES
from mtl.doors.mbws.codec import Kind
from mtl.doors.peer_messages import DoorRefusal
from mtl.doors.properties import sequence_of
from mtl.errors import FieldError, Refused
from mtl.wire.fields import encode_short


@dataclass(frozen=True, slots=True)
class SubscriptionQuery:
    """See the module."""

    addresses: dict[str, Start] = field(default_factory=dict)
    kind: Kind = Kind.BINARY
    characters: bool = False

    @property
    def query(self) -> str:
        """The same as the query of a URL."""
        parts = [f"address={quote(name, safe='')}&from={start}" for name, start in self.addresses.items()]
        if self.kind is Kind.TEXT:
            parts.append("frames=text")
        if self.characters:
            parts.append("lengths=characters")
        return "&".join(parts)


def parse(path: str) -> SubscriptionQuery:
    """Parse the path and query of an upgrade request. Raises `Refused` (400)."""
    query = urlsplit(path).query
    try:
        given = parse_qsl(
            query,
            keep_blank_values=True,
            strict_parsing=bool(query),
            errors="strict",
            max_num_fields=2 * MBWS_ADDRESSES + 2,
        )
    except ValueError:
        raise _wrong(query) from None
    addresses: dict[str, Start] = {}
    kind, characters, address = Kind.BINARY, False, ""
    for name, value in given:
        match name, value:
            case "address", _ if _is_name(value) and value not in addresses:
                address = value
                addresses[address] = "latest"
            case "from", "earliest" | "latest" if address:
                addresses[address] = "earliest" if value == "earliest" else "latest"
            case "from", _ if address and (sequence := sequence_of(value)) is not None:
                addresses[address] = sequence
            case "frames", "text" | "binary":
                kind = Kind(value)
            case "lengths", "octets" | "characters":
                characters = value == "characters"
            case _:
                raise _wrong(f"{name}={value}")
    if len(addresses) > MBWS_ADDRESSES:
        raise DoorRefusal(413, "too-many", f"{MBWS_ADDRESSES} addresses are the most for one connection")
    return SubscriptionQuery(addresses, kind, characters)


def _is_name(value: str) -> bool:
    try:
        return len(encode_short(value)) > 1
    except FieldError:
        return False


def _wrong(text: str) -> Refused:
    return DoorRefusal(
        400, "bad-url", f"{text[:40]!r}: address=NAME once each, from=earliest|latest|SEQUENCE behind it"
    )
