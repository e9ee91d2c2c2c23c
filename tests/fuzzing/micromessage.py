"""MicroMessage2 as received from a peer: an octet that says whether a handshake comes first, then frames."""

from __future__ import annotations

from mtl.doors.micromessage.codec import Frame, Handshake, MicroDecoder
from mtl.doors.micromessage.filters import Filter, decode_filter
from mtl.doors.micromessage.negotiation import ExtensionOffer
from mtl.doors.micromessage.values import encode_value
from tests.fuzzing.target import codec

SEEDS = (
    bytes.fromhex("010100000468756c6b000b6a736f6e3b646f746e6574000962617463682d61636b0203020004"),
    bytes.fromhex("00000002024d5100116c6173742d6e616d653a546b616c6c653b066d6f74686572"),
    bytes.fromhex("0010000101710000080102030405060708000001000000010900040548656c7021"),
    b"\0\1\x2asubscribe;destination=topic%2Fx,filter=n>N1",
    b"\1\4\1x",
)
TOKENS = (b"batch-ack:max-count=10", b"json;dotnet", b"N1.5", b"D1413198000.0", b"T%20", b":", b";", b"=")

FILTERS = (b"n>N1;kind&Torder;at<=D1413198000.0", b"k!=Tx", b"k ~ T%C3%A9")


def decode(data: bytes) -> list[Handshake | Frame]:
    """All complete frames. Raises `Malformed`."""
    decoder, found = MicroDecoder(), list[Handshake | Frame]()
    decoder.feed(data[1:])
    if data[:1] == b"\1":
        first = decoder.handshake()
        if first is None:
            return found
        if isinstance(first, Handshake):
            ExtensionOffer.of(first)
        found.append(first)
    while (frame := decoder.frame()) is not None:
        found.append(frame)
    return found


def read_filter(data: bytes) -> Filter:
    """A filter, from any octets in a command's URL-encoded argument."""
    return decode_filter(data.decode("latin-1"))


def write_filter(value: Filter) -> bytes:
    """The octets that `read_filter` reads."""
    terms = (f"{term.name}{term.operator}{encode_value(term.value)}" for term in value.terms)
    return ";".join(terms).encode("latin-1")


run = codec(decode)
run_filter = codec(read_filter, write_filter)
