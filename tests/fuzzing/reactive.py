"""The Reactive Streams decoder: a stream of messages, of which one may say how long the elements of later ones are."""

from __future__ import annotations

from mtl.doors.limits import RS_ELEMENT
from mtl.doors.reactive import codec
from mtl.errors import Malformed
from tests.fuzzing.target import check_refusal
from tests.support.elements import apart

MESSAGES = (
    codec.encode(codec.ClientHello(0, (1, 300))) + codec.encode(codec.Subscribe("orders?from=latest", 5, 2)),
    codec.encode(codec.ServerHello())
    + codec.encode(codec.Subscribed(5))
    + codec.encode(codec.OnNext(5, b"hi")),
    codec.encode(codec.Subscribed(5, 2)) + codec.encode(codec.OnNext(5, b"hi"), fixed=True),
    codec.encode(codec.OnNexts(5, (b"hi", b"", b"x" * 200))),
    codec.encode(codec.Subscribed(5, 2)) + codec.encode(codec.OnNextPacked(5, (b"hi", b"ok"))),
    codec.encode(codec.OnNextPart(5, 1, b"h")) + codec.encode(codec.OnNextLastPart(5, 1, b"i")),
    codec.encode(codec.RequestMore(5, 2**63 - 1)) + codec.encode(codec.Cancel(5)),
    codec.encode(codec.OnComplete(5)) + codec.encode(codec.OnError(5, "no")),
    codec.encode(codec.Goodbye("bye")) + codec.encode(codec.GoodbyeAck()),
)


def run(data: bytes) -> None:
    """A decoded message encodes to octets with an equal value, and an incomplete one takes little memory."""
    decoder = codec.ReactiveDecoder()
    messages: list[codec.Message] = []
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
        if isinstance(message, codec.Subscribed):
            sizes[message.subscriber] = message.element_size
        again += codec.encode(message, fixed=bool(sizes.get(getattr(message, "subscriber", -1))))
    assert apart(codec.ReactiveDecoder().feed(again)) == apart(messages)
