from __future__ import annotations

import pytest

from mtl.doors.limits import RS_ELEMENT, RS_JOINED, RS_STREAMS
from mtl.doors.reactive import codec
from mtl.doors.reactive.publishing import UNBOUNDED
from mtl.doors.reactive.subscribing import Elements, Subscribing
from mtl.errors import Malformed, Refused


def begun(demand: int = 0) -> tuple[Subscribing, list[codec.Message]]:
    """A stream with Id 0."""
    sent: list[codec.Message] = []

    def send(message: codec.Message, *, fixed: bool = False) -> None:
        assert not fixed
        sent.append(message)

    subscribing = Subscribing(send)
    assert subscribing.subscribe("a", demand) == 0
    assert subscribing.received(codec.Subscribed(0)) == codec.Subscribed(0)
    assert sent == [codec.Subscribe("a", 0, demand)]
    sent.clear()
    return subscribing, sent


@pytest.mark.requirement("RS-17", "RS-18", "RS-19", "RS-21", "RS-31")
def test_elements_are_received_within_demand() -> None:
    subscribing, sent = begun(1)
    assert subscribing.received(codec.OnNext(0, b"x")) == Elements(0, (b"x",))
    subscribing.request(0, 5)
    assert subscribing.received(codec.OnNexts(0, (b"v", b"w"))) == Elements(0, (b"v", b"w"))
    assert subscribing.received(codec.OnNextPacked(0, (b"y", b"z"))) == Elements(0, (b"y", b"z"))
    assert subscribing.received(codec.OnNextPacked(0, ())) is None
    assert subscribing.received(codec.OnNext(0, b"x")) == Elements(0, (b"x",))
    subscribing.cancel(0)
    assert sent == [codec.RequestMore(0, 5), codec.Cancel(0)]


@pytest.mark.requirement("RS-41")
@pytest.mark.parametrize(
    "message",
    [
        codec.OnNext(0, b"x"),
        codec.OnNexts(0, (b"x",) * 3),
        codec.OnNextPacked(0, (b"x",) * 3),
        codec.OnNextPart(0, 9, b""),
    ],
    ids=str,
)
def test_elements_beyond_the_demand_are_malformed(message: codec.Message) -> None:
    subscribing, _ = begun(2)
    if not isinstance(message, codec.OnNextPacked):
        subscribing.received(codec.OnNextPacked(0, (b"x", b"x")))
    with pytest.raises(Malformed, match="requested"):
        subscribing.received(message)


@pytest.mark.requirement("RS-48")
def test_an_unbounded_demand_is_never_used_up() -> None:
    subscribing, sent = begun(UNBOUNDED)
    subscribing.request(0, UNBOUNDED)
    assert sent == [codec.RequestMore(0, UNBOUNDED)]
    for _ in range(3):
        assert subscribing.received(codec.OnNext(0, b"x")) is not None


@pytest.mark.requirement("RS-34", "RS-35", "RS-36", "RS-37", "RS-41")
def test_parts_are_joined_in_order_of_arrival() -> None:
    subscribing, _ = begun(2)
    assert subscribing.received(codec.OnNextPart(0, 1, b"he")) is None
    assert subscribing.received(codec.OnNextPart(0, 2, b"wor")) is None
    assert subscribing.received(codec.OnNextPart(0, 1, b"")) is None
    assert subscribing.received(codec.OnNextLastPart(0, 2, b"ld")) == Elements(0, (b"world",))
    assert subscribing.received(codec.OnNextLastPart(0, 1, b"llo")) == Elements(0, (b"hello",))


def test_an_element_with_too_many_parts_is_malformed() -> None:
    subscribing, _ = begun(UNBOUNDED)
    data = bytes(RS_ELEMENT)
    for _ in range(RS_JOINED // RS_ELEMENT):
        subscribing.received(codec.OnNextPart(0, 1, data))
    with pytest.raises(Malformed, match="together"):
        subscribing.received(codec.OnNextPart(0, 1, data))
    subscribing, _ = begun(UNBOUNDED)
    subscribing.received(codec.OnNextPart(0, 1, data))
    with pytest.raises(Malformed, match="an element of"):
        subscribing.received(codec.OnNextLastPart(0, 1, b"x"))
    subscribing, _ = begun(UNBOUNDED)
    for element in range(RS_STREAMS):
        subscribing.received(codec.OnNextPart(0, element, b""))
    with pytest.raises(Malformed, match="at once"):
        subscribing.received(codec.OnNextPart(0, RS_STREAMS, b""))


def test_parts_of_an_ended_stream_are_freed() -> None:
    subscribing, _ = begun(UNBOUNDED)
    for _ in range(3):
        for element in range(RS_JOINED // RS_ELEMENT):
            subscribing.received(codec.OnNextPart(0, element, bytes(RS_ELEMENT)))
        subscribing.received(codec.OnError(0, "no"))
        assert subscribing.subscribe("a", UNBOUNDED) == 0
        subscribing.received(codec.Subscribed(0))


@pytest.mark.requirement("RS-22", "RS-23", "RS-29", "RS-42", "RS-44")
@pytest.mark.parametrize("end", [codec.OnComplete(0), codec.OnError(0, "no"), None], ids=str)
def test_messages_of_an_ended_stream_are_ignored_until_its_id_is_reused(end: codec.Message | None) -> None:
    subscribing, sent = begun(5)
    if end is None:
        subscribing.cancel(0)
    else:
        assert subscribing.received(end) == end
    sent.clear()
    for late in (
        codec.OnNext(0, b"x"),
        codec.OnNextPart(0, 1, b"x"),
        codec.OnComplete(0),
        codec.Subscribed(0),
    ):
        assert subscribing.received(late) is None
    subscribing.request(0, 1)
    subscribing.cancel(0)
    assert sent == []
    assert subscribing.subscribe("b", 1) == 0
    assert subscribing.received(codec.OnNext(0, b"of the one before")) is None
    assert subscribing.received(codec.OnError(0, "of the one before")) is None
    assert subscribing.received(codec.Subscribed(0)) == codec.Subscribed(0)
    assert subscribing.received(codec.OnNext(0, b"x")) == Elements(0, (b"x",))


@pytest.mark.requirement("RS-30")
def test_the_id_of_a_cancelled_subscription_is_reused_after_subscribed() -> None:
    subscribing, sent = begun()
    assert subscribing.subscribe("b") == 1
    subscribing.cancel(1)
    subscribing.cancel(1)
    subscribing.request(1, 1)
    assert sent == [codec.Subscribe("b", 1, 0), codec.Cancel(1)]
    assert subscribing.subscribe("c") == 2
    assert subscribing.received(codec.Subscribed(1)) is None
    assert subscribing.subscribe("d") == 1


def test_a_second_subscribed_is_malformed() -> None:
    subscribing, _ = begun()
    with pytest.raises(Malformed, match="twice"):
        subscribing.received(codec.Subscribed(0))


def test_too_many_own_streams_are_refused() -> None:
    subscribing, _ = begun()
    for _ in range(RS_STREAMS - 1):
        subscribing.subscribe("a")
    with pytest.raises(Refused, match="too-many"):
        subscribing.subscribe("a")
    subscribing.end()
    assert subscribing.received(codec.Subscribed(1)) is None


@pytest.mark.requirement("RS-37")
def test_complete_elements_in_parts_do_not_count_as_incomplete() -> None:
    subscribing, _ = begun(UNBOUNDED)
    data = bytes(RS_ELEMENT)
    for element in range(RS_JOINED // RS_ELEMENT + 1):
        assert subscribing.received(codec.OnNextPart(0, element, data)) is None
        assert subscribing.received(codec.OnNextLastPart(0, element, b"")) == Elements(0, (data,))


@pytest.mark.requirement("RS-47")
def test_a_request_without_demand_is_never_sent() -> None:
    subscribing, sent = begun(1)
    with pytest.raises(AssertionError):
        subscribing.request(0, 0)
    assert sent == []
