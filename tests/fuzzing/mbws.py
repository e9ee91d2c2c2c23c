"""MBWS: one WebSocket message in either form, and the query of an upgrade."""

from __future__ import annotations

from pathlib import Path

from mtl.doors.mbws import subscription_query
from mtl.doors.mbws.codec import Acknowledge, CachingDecoder, Connect, Kind, Message, decode, encode
from mtl.errors import Malformed, Refused
from tests.fuzzing.target import check_refusal

GOLDEN = Path(__file__).parents[1] / "golden"
_FRAMES = (
    Connect(),
    Connect("urn:uuid:1", (5, 3, 7)),
    Acknowledge(300),
    Message(("größe", "b"), b"hi", "text/plain", (("k", "v"),)),
)
BINARY = tuple(encode(frame, Kind.BINARY) for frame in _FRAMES)
TEXT = tuple(encode(frame, Kind.TEXT) for frame in _FRAMES)
MESSAGES = tuple(b"b" + data for data in BINARY if isinstance(data, bytes)) + tuple(
    b"t" + data.encode() for data in TEXT if isinstance(data, str)
)
TOKENS = (b"\x80", b"0 ", b"9", b"\xc3\xbc")
KEPT = tuple((GOLDEN / "doors" / "mbws-connections-v1.jsonl").read_bytes().splitlines())
QUERIES = (b"address=a&from=earliest&address=b&from=5", b"frames=text&lengths=characters")


def run(data: bytes) -> None:
    """A decoded message encodes to octets with an equal value. The first octet chooses the form."""
    message: bytes | str = data[1:]
    if data[:1] == b"t":
        message = data[1:].decode(errors="replace")
    kind = Kind.TEXT if isinstance(message, str) else Kind.BINARY
    for characters in (False, True):
        try:
            frame = decode(message, characters=characters)
        except Malformed as refused:
            check_refusal(refused)
        else:
            assert decode(encode(frame, kind, characters=characters), characters=characters) == frame
            alike = CachingDecoder(characters=characters)
            assert alike.decode(message) == alike.decode(message) == frame


def run_query(data: bytes) -> None:
    """A decoded query can be encoded."""
    try:
        asked = subscription_query.parse("/?" + data.decode("latin-1"))
    except Refused as refused:
        check_refusal(refused)
    else:
        assert subscription_query.parse(f"/?{asked.query}" if asked.query else "/") == asked
