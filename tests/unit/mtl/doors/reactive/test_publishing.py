from __future__ import annotations

import pytest

from mtl.doors.limits import RS_PACKED, RS_PART, RS_STREAMS
from mtl.doors.reactive import codec
from mtl.doors.reactive.publishing import UNBOUNDED, Demanded, Publishing
from mtl.errors import Malformed


class SentMessages:
    """The sent messages, and whether each was sent as of fixed size."""

    def __init__(self) -> None:
        self.messages: list[codec.Message] = []
        self.fixed: list[bool] = []

    def __call__(self, message: codec.Message, *, fixed: bool = False) -> None:
        self.messages.append(message)
        self.fixed.append(fixed)

    def take(self) -> list[codec.Message]:
        messages, self.messages = self.messages, []
        return messages


def begun(demand: int = 0, size: int = 0) -> tuple[Publishing, SentMessages]:
    """A stream with Id 7."""
    sent = SentMessages()
    publishing = Publishing(sent)
    publishing.received(codec.Subscribe("a", 7, demand))
    publishing.accept(7, size)
    sent.take()
    return publishing, sent


def publish(publishing: Publishing, element: bytes) -> int:
    return sum(1 for _ in publishing.publish(7, element))


@pytest.mark.requirement("RS-18", "RS-41", "RS-46")
def test_demand_adds_up_and_is_used_by_elements() -> None:
    publishing, sent = begun(2)
    assert publishing.received(codec.RequestMore(7, 3)) is None
    assert publishing.demand(7) == 5
    for _ in range(5):
        assert publish(publishing, b"x") == 1
    assert sent.take() == [codec.OnNext(7, b"x")] * 5
    assert publishing.demand(7) == 0
    with pytest.raises(AssertionError, match="without demand"):
        publish(publishing, b"x")
    assert publishing.received(codec.RequestMore(7, 1)) == Demanded(7)


@pytest.mark.requirement("RS-48")
@pytest.mark.parametrize("more", [1, UNBOUNDED, 2**64 - 1])
def test_the_largest_demand_is_unbounded(more: int) -> None:
    publishing, _ = begun(UNBOUNDED)
    publishing.received(codec.RequestMore(7, more))
    publish(publishing, b"x")
    assert publishing.demand(7) == UNBOUNDED


@pytest.mark.requirement("RS-47")
def test_a_demand_of_zero_is_valid_in_subscribe_and_an_error_later() -> None:
    publishing, sent = begun(0)
    assert publishing.demand(7) == 0
    assert publishing.received(codec.RequestMore(7, 0)) == codec.Cancel(7)
    (error,) = sent.take()
    assert isinstance(error, codec.OnError)
    assert "3.9" in error.error


@pytest.mark.requirement("RS-34", "RS-35", "RS-41")
def test_a_large_element_is_split_and_counts_once() -> None:
    publishing, sent = begun(2)
    for number in range(2):
        element = bytes(2 * RS_PART) + b"%d" % number
        assert publish(publishing, element) == 3
        first, second, last = sent.take()
        assert isinstance(first, codec.OnNextPart)
        assert isinstance(second, codec.OnNextPart)
        assert isinstance(last, codec.OnNextLastPart)
        assert {part.element for part in (first, second, last)} == {number}
        assert b"".join([bytes(first.data), bytes(second.data), bytes(last.data)]) == element
    assert publishing.demand(7) == 0


def test_a_cancel_ends_a_split_element() -> None:
    publishing, sent = begun(1)
    parts = publishing.publish(7, bytes(3 * RS_PART))
    next(parts)
    assert publishing.received(codec.Cancel(7)) == codec.Cancel(7)
    publishing.received(codec.Subscribe("b", 7, 5))
    sent.take()
    assert list(parts) == []
    assert sent.take() == []


@pytest.mark.requirement("RS-28", "RS-31", "RS-32", "RS-33")
def test_elements_of_a_fixed_size_are_packed_within_demand() -> None:
    publishing, sent = begun(RS_PACKED + 2, size=2)
    publishing.publish_packed(7, [b"ab"] * (RS_PACKED + 1))
    assert sent.take() == [codec.OnNextPacked(7, (b"ab",) * RS_PACKED), codec.OnNext(7, b"ab")]
    assert publishing.demand(7) == 1
    assert publish(publishing, b"cd") == 1
    assert sent.fixed[-2:] == [True, True]
    with pytest.raises(AssertionError, match="without demand"):
        publishing.publish_packed(7, [b"ab"])


@pytest.mark.requirement("RS-41")
def test_elements_of_any_size_are_sent_together_within_demand() -> None:
    publishing, sent = begun(3)
    publishing.publish_all(7, [b"ab", b""])
    assert sent.take() == [codec.OnNexts(7, (b"ab", b""))]
    assert publishing.demand(7) == 1
    with pytest.raises(AssertionError, match="without demand"):
        publishing.publish_all(7, [b"a", b"b"])


@pytest.mark.requirement("RS-42", "RS-45")
@pytest.mark.parametrize("how", ["complete", "fail", "cancel", "end"])
def test_after_the_end_messages_are_neither_sent_nor_handled(how: str) -> None:
    publishing, sent = begun(5)
    if how == "complete":
        publishing.complete(7)
        assert sent.take() == [codec.OnComplete(7)]
    elif how == "fail":
        publishing.fail(7, "no")
        assert sent.take() == [codec.OnError(7, "no")]
    elif how == "cancel":
        assert publishing.received(codec.Cancel(7)) == codec.Cancel(7)
    else:
        publishing.end()
    assert publishing.received(codec.RequestMore(7, 0)) is None
    assert publishing.received(codec.Cancel(7)) is None
    assert publishing.demand(7) == 0
    publishing.accept(7)
    publishing.publish_packed(7, [b"x"])
    publishing.publish_all(7, [b"x"])
    publishing.complete(7)
    publishing.fail(7, "late")
    assert publish(publishing, b"x") == 0
    assert sent.take() == []


@pytest.mark.requirement("RS-20", "RS-29", "RS-43")
def test_every_subscribe_is_answered_by_subscribed_first() -> None:
    sent = SentMessages()
    publishing = Publishing(sent)
    assert publishing.received(codec.Subscribe("a", 7, 1)) == codec.Subscribe("a", 7, 1)
    assert publishing.demand(7) == 0  # not before it is accepted
    publishing.fail(7, "no such thing")
    assert sent.take() == [codec.Subscribed(7), codec.OnError(7, "no such thing")]
    publishing.received(codec.Subscribe("a", 7))
    publishing.received(codec.Cancel(7))
    assert sent.take() == [codec.Subscribed(7)]
    publishing.received(codec.Subscribe("a", 7))
    publishing.accept(7, 8)
    publishing.accept(7, 8)
    assert sent.take() == [codec.Subscribed(7, 8)]


@pytest.mark.requirement("RS-26")
def test_an_id_in_use_is_malformed() -> None:
    publishing, _ = begun()
    with pytest.raises(Malformed, match="Id 7 is in use"):
        publishing.received(codec.Subscribe("b", 7))


def test_too_many_streams_are_refused() -> None:
    sent = SentMessages()
    publishing = Publishing(sent)
    for subscriber in range(RS_STREAMS):
        assert publishing.received(codec.Subscribe("a", subscriber)) is not None
    assert publishing.received(codec.Subscribe("a", RS_STREAMS)) is None
    subscribed, error = sent.take()
    assert subscribed == codec.Subscribed(RS_STREAMS)
    assert isinstance(error, codec.OnError)
    publishing.received(codec.Cancel(0))
    assert publishing.received(codec.Subscribe("a", 0)) is not None


@pytest.mark.requirement("RS-28", "RS-33")
@pytest.mark.parametrize(("size", "fixed"), [(0, False), (1, True), (2, True)])
def test_elements_sent_together_have_a_length_only_without_a_fixed_size(size: int, fixed: bool) -> None:
    publishing, sent = begun(2, size)
    publishing.publish_all(7, [b"x" * size] * 2)
    assert sent.fixed[-1] is fixed


@pytest.mark.requirement("RS-48")
@pytest.mark.parametrize("size", [0, 1, 2])
def test_elements_of_a_fixed_size_are_sent_as_such(size: int) -> None:
    publishing, sent = begun(1, size)
    publish(publishing, bytes(size))
    assert sent.fixed[-1] is (size > 0)
