from __future__ import annotations

import pytest

from mtl.doors.mbws.codec import Kind, Message, decode
from mtl.doors.mbws.contents import MessageEncoder, TableEncoder, from_message
from mtl.errors import Refused
from mtl.wire.fields import Value, encode_properties


def put_together(properties: dict[str, Value], *bodies: bytes, kind: Kind = Kind.BINARY) -> list[Message]:
    to = MessageEncoder("a", kind)
    to.set_properties(properties)
    return [read(to.message(body), kind) for body in bodies]


def read(encoded: bytes | str, kind: Kind) -> Message:
    assert isinstance(encoded, str) is (kind is Kind.TEXT)
    message = decode(encoded)
    assert isinstance(message, Message)
    return message


@pytest.mark.parametrize("kind", Kind)
def test_a_content_becomes_a_message_and_a_content_again(kind: Kind) -> None:
    properties: dict[str, Value] = {"kind": "new", "content-type": "text/plain"}
    expected = [Message(("a",), body, "text/plain", (("kind", "new"),)) for body in (b"hi", b"", b"ho")]
    assert put_together(properties, b"hi", b"", b"ho", kind=kind) == expected
    assert from_message(expected[0]) == properties
    assert from_message(Message(("a",), b"")) == {}


@pytest.mark.requirement("MBWS-43")
@pytest.mark.parametrize("kind", Kind)
def test_properties_with_the_protocols_own_words_are_only_properties(kind: Kind) -> None:
    """Whatever their names and values say, they change neither the address nor the content type nor the body."""
    words = (
        "address",
        "addresses",
        "body",
        "origin",
        "connection",
        "Connect",
        "length",
        "Content-Type",
        "",
        "ü",
    )
    properties: dict[str, Value] = {word: f"3 1 1 {word}" for word in words}
    [message] = put_together(properties, b"hi", kind=kind)
    assert message == Message(("a",), b"hi", "", tuple((word, f"3 1 1 {word}") for word in words))
    assert from_message(message) == properties


def test_a_body_that_is_not_utf8_is_sent_in_a_binary_frame() -> None:
    to = MessageEncoder("a", Kind.TEXT, numbered=True)
    to.set_properties({})
    assert read(to.message(b"\xff", 7), Kind.BINARY) == Message(("a",), b"\xff", "", (("mtl-sequence", "7"),))
    assert read(to.message(b"hi", 8), Kind.TEXT) == Message(("a",), b"hi", "", (("mtl-sequence", "8"),))


@pytest.mark.requirement("MBWS-38")
@pytest.mark.parametrize("kind", Kind)
def test_a_delivered_content_has_its_address_and_its_sequence(kind: Kind) -> None:
    to = MessageEncoder("a", kind, numbered=True)
    to.set_properties({"n": 7, "none": None})
    for sequence in (9, 10**17):
        assert read(to.message(b"", sequence), kind) == Message(
            ("a",), b"", "", (("n", "7"), ("none", ""), ("mtl-sequence", str(sequence)))
        )
    to.set_properties({})
    assert read(to.message(b"", 5), kind) == Message(("a",), b"", "", (("mtl-sequence", "5"),))


def test_lengths_may_count_characters() -> None:
    to = MessageEncoder("ü", Kind.BINARY, characters=True)
    to.set_properties({})
    assert to.message(b"") == b"\3\1\1" + "ü".encode() + b"\0\0"


def test_property_tables_are_encoded_from_the_message() -> None:
    tables = TableEncoder()
    for message in (
        Message(("a",), b"1"),
        Message(("a",), b"2", "", (("k", "v"),)),
        Message(("b",), b"3", "", (("k", "v"),)),
        Message(("a",), b"4", "text/plain", (("k", "v"),)),
        Message(("a",), b"5"),
    ):
        assert tables.table(message) == encode_properties(from_message(message))
    for _ in range(2):
        with pytest.raises(Refused, match="bad-properties"):
            tables.table(Message((), b"", "", (("mtl-sequence", "1"),)))


@pytest.mark.parametrize(
    "message",
    [
        Message((), b"", "", (("k", "1"), ("k", "2"))),
        Message((), b"", "t", (("content-type", "t"),)),
        Message((), b"", "", (("mtl-sequence", "1"),)),
    ],
)
def test_invalid_properties_are_refused(message: Message) -> None:
    with pytest.raises(Refused, match="bad-properties"):
        from_message(message)
