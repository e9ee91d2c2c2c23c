"""mc0: the frames of one message, each after its size in two octets; then the session, and its reaction."""

from __future__ import annotations

from mtl.doors.mc0.codec import BadMessage, Mc0Message, Verb, decode, encode, error, ok
from mtl.doors.mc0.contents import to_content
from mtl.doors.mc0.session import Mc0Session, Put
from mtl.errors import Refused
from tests.fuzzing.target import check_refusal

_MESSAGES = (
    Mc0Message(Verb.NOOP),
    Mc0Message(Verb.CONNECT, {"VERSION": "0.3", "TTL": "30000", "ID": "1"}),
    Mc0Message(Verb.SUB, {"ID": "2"}, ("größe".encode(), b"b")),
    Mc0Message(Verb.PUT, {"TOPIC": "größe", "X-REPLY-TO": "me"}, (b"\0", b"", b"c")),
    Mc0Message(Verb.MESSAGE, {"TOPIC": "a"}, ()),
    ok("1"),
    error("why", "2"),
)


def _framed(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(2, "big") + frame for frame in frames)


MESSAGES = tuple(_framed(encode(message, delimited=n % 2 == 1)) for n, message in enumerate(_MESSAGES))
TOKENS = tuple(
    b"\0" + bytes([len(word)]) + word for word in (b"", b"ID", b"TTL", b"X-a", b"PUT", b"UNSUB", b"1e3")
)


def run(data: bytes) -> None:
    """A decoded message encodes to the same frames; a session accepts it or refuses it with a reason."""
    frames = []
    while data:
        size = int.from_bytes(data[:2], "big")
        frames.append(data[2 : 2 + size])
        data = data[2 + size :]
    try:
        message, delimited = decode(frames)
    except BadMessage as refused:
        check_refusal(refused)
        return
    assert encode(message, delimited=delimited) == frames
    try:
        event = Mc0Session(0.0).received(message, 0.0)
        if isinstance(event, Put):
            to_content(event)
    except Refused as refused:
        check_refusal(refused)
