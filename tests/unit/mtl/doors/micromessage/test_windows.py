from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.doors.micromessage.windows import IncomingWindow, OutgoingWindow, after, distance
from mtl.errors import Malformed


@pytest.mark.requirement("MM2-37", "MM2-66")
def test_the_first_is_1_and_1_follows_65535() -> None:
    assert [after(0), after(1), after(65_535), after(65_533, 5)] == [1, 2, 1, 3]
    assert distance(65_533, 3) == 5


@pytest.mark.requirement("MM2-05", "MM2-48")
def test_the_documents_example_of_a_wrap() -> None:
    out = OutgoingWindow(10)
    for _ in range(65_533):
        assert out.acked(out.send()) == 1
    assert [out.send() for _ in range(5)] == [65_534, 65_535, 1, 2, 3]
    assert out.acked(3) == 5
    assert out.outstanding == 0


@pytest.mark.requirement("MM2-06", "MM2-34", "MM2-35", "MM2-49")
@pytest.mark.parametrize("window", [1, 10])
def test_outstanding_messages_never_exceed_the_window(window: int) -> None:
    out = OutgoingWindow(window)
    rooms = []
    for _ in range(window):
        rooms.append(out.room)
        out.send()
    rooms.append(out.room)
    assert out.acked(1) == 1  # early is fine
    rooms.append(out.room)
    assert rooms == [True] * window + [False, True]
    assert out.acked(1) == 0  # and so is once more
    with pytest.raises(Malformed, match="not outstanding"):
        out.acked(window + 1)
    with pytest.raises(Malformed):
        out.acked(0)


@pytest.mark.requirement("MM2-04", "MM2-33")
def test_without_acknowledgements_there_is_always_room() -> None:
    out, incoming = OutgoingWindow(None), IncomingWindow(None)
    for n in range(70_000):
        assert out.room
        assert out.send() == n % 65_535 + 1
        incoming.received(n % 65_535 + 1)
    assert incoming.ack(1) is None


@pytest.mark.requirement("MM2-06")
def test_too_many_messages_or_wrong_numbers_are_malformed() -> None:
    incoming = IncomingWindow(2)
    with pytest.raises(Malformed, match="1 is next"):
        incoming.received(2)
    incoming.received(1)
    incoming.received(2)
    with pytest.raises(Malformed, match="no more"):
        incoming.received(3)
    assert incoming.ack(1) == 1
    incoming.received(3)
    with pytest.raises(Malformed, match="4 is next"):
        incoming.received(3)


@pytest.mark.requirement("MM2-05", "MM2-37", "MM2-48")
@given(st.integers(1, 50), st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=40))
def test_both_ends_count_the_same_numbers(window: int, turns: list[tuple[int, int]]) -> None:
    """Started near the wrap; exactly the received messages are acknowledged."""
    out, incoming = OutgoingWindow(window), IncomingWindow(window)
    out._acked = incoming._last = 65_520
    sent = settled = 0
    for sending, acking in turns:
        for _ in range(min(sending, window - (sent - settled))):
            incoming.received(out.send())
            sent += 1
        count = min(acking, incoming.unacked)
        sequence = incoming.ack(count)
        assert (sequence is None) == (count == 0)
        if sequence is not None:
            assert out.acked(sequence) == count
            settled += count
        assert out.outstanding == incoming.unacked == sent - settled
