from __future__ import annotations

import pytest

from mtl.doors.mbws.codec import Message
from mtl.doors.mbws.contents import from_message, to_message
from mtl.errors import Refused


def test_there_and_back() -> None:
    properties = {"kind": "new", "content-type": "text/plain"}
    message = to_message("a", b"hi", properties)
    assert message == Message(("a",), b"hi", "text/plain", (("kind", "new"),))
    assert from_message(message) == properties
    assert from_message(Message(("a",), b"")) == {}


@pytest.mark.requirement("MBWS-38")
def test_a_delivered_content_has_its_address_and_its_sequence() -> None:
    message = to_message("a", b"", {"n": 7, "none": None}, 12)
    assert message == Message(("a",), b"", "", (("n", "7"), ("none", ""), ("mtl-sequence", "12")))


@pytest.mark.parametrize(
    "message",
    [
        Message((), b"", "", (("k", "1"), ("k", "2"))),
        Message((), b"", "t", (("content-type", "t"),)),
        Message((), b"", "", (("mtl-sequence", "1"),)),
    ],
)
def test_what_cannot_be_properties(message: Message) -> None:
    with pytest.raises(Refused, match="bad-properties"):
        from_message(message)
