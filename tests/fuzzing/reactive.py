"""The Reactive Streams decoder: a stream of messages, of which one may say how long the elements of later ones are."""

from __future__ import annotations

from mtl.doors.limits import RS_ELEMENT
from mtl.doors.reactive import codec as m
from mtl.errors import Malformed
from tests.fuzzing.target import check_refusal
from tests.support.elements import apart

MESSAGES = (
    m.encode(m.ClientHello(0, (1, 300))) + m.encode(m.Subscribe("orders?from=latest", 5, 2)),
    m.encode(m.ServerHello()) + m.encode(m.Subscribed(5)) + m.encode(m.OnNext(5, b"hi")),
    m.encode(m.Subscribed(5, 2)) + m.encode(m.OnNext(5, b"hi"), fixed=True),
    m.encode(m.OnNexts(5, (b"hi", b"", b"x" * 200))),
    m.encode(m.Subscribed(5, 2)) + m.encode(m.OnNextPacked(5, (b"hi", b"ok"))),
    m.encode(m.OnNextPart(5, 1, b"h")) + m.encode(m.OnNextLastPart(5, 1, b"i")),
    m.encode(m.RequestMore(5, 2**63 - 1)) + m.encode(m.Cancel(5)),
    m.encode(m.OnComplete(5)) + m.encode(m.OnError(5, "no")),
    m.encode(m.Goodbye("bye")) + m.encode(m.GoodbyeAck()),
)


def run(data: bytes) -> None:
    """A decoded message encodes to octets with an equal value, and an incomplete one takes little memory."""
    decoder = m.ReactiveDecoder()
    messages: list[m.Message] = []
    try:
        messages += decoder.feed(data[: len(data) // 2])
        for message in decoder.feed(data[len(data) // 2 :]):
            messages.append(message)
    except Malformed as refused:
        check_refusal(refused)
    assert decoder.waiting <= RS_ELEMENT + 64
    sizes: dict[int, int] = {}
    again = b""
    for message in messages:
        if isinstance(message, m.Subscribed):
            sizes[message.subscriber] = message.element_size
        again += m.encode(message, fixed=bool(sizes.get(getattr(message, "subscriber", -1))))
    assert apart(m.ReactiveDecoder().feed(again)) == apart(messages)
