"""Pauses of peers without room, and their end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mtl.broker import actions
from mtl.broker import limits as broker_limits
from mtl.broker.leases.pauses import Pauses
from mtl.broker.outbox import Outbox


class Rig:
    def __init__(self) -> None:
        self.outbox = Outbox()
        self.at(10.0)
        self.pauses: Pauses[SimpleNamespace] = Pauses(self.outbox)
        self.first, self.other = (SimpleNamespace(terms=SimpleNamespace(token=t)) for t in "ab")

    def at(self, seconds: float) -> None:
        self.outbox.now = actions.Now(seconds, 0)

    def paused(self, at: int) -> float:
        """The length in seconds of a pause at this position; the pause has ended on return."""
        self.pauses.pause(self.first, at)
        until = self.pauses.next
        assert until is not None
        began = self.outbox.now.mono
        self.at(until)
        assert self.pauses.over() == [self.first]
        return until - began


def test_a_pause_ends_by_time_or_by_a_frame_of_the_peer() -> None:
    rig = Rig()
    pauses, first, other = rig.pauses, rig.first, rig.other
    pauses.pause(first)
    rig.at(10.0005)
    pauses.pause(other)
    assert first in pauses
    assert pauses.next == 10.0 + broker_limits.BLOCKED_RETRY_S
    assert pauses.end(other)
    assert not pauses.end(other)
    assert pauses.over() == []
    rig.at(11.0)
    assert pauses.over() == [first]
    assert first not in pauses
    assert pauses.next is None


def test_a_peer_that_reads_has_short_pauses() -> None:
    """With pauses of 20 ms a plain reader fell to a quarter of its rate: its queue is full every thousand contents."""
    rig = Rig()
    assert [rig.paused(at) for at in (1_000, 2_000, 3_000)] == [
        pytest.approx(broker_limits.BLOCKED_RETRY_S)
    ] * 3


def test_pauses_of_a_peer_that_reads_nothing_grow() -> None:
    rig = Rig()
    waits = [rig.paused(1_000) for _ in range(10)]
    assert waits[:3] == pytest.approx([broker_limits.BLOCKED_RETRY_S * factor for factor in (1, 2, 4)])
    assert waits[-1] == pytest.approx(broker_limits.BLOCKED_RETRY_TOP_S)
    rig.pauses.end(rig.first)  # a frame arrived from it
    assert rig.paused(1_000) == pytest.approx(broker_limits.BLOCKED_RETRY_S)


def test_many_pauses_are_longer_so_that_the_attempts_of_all_stay_few() -> None:
    rig = Rig()
    for number in range(1_000):
        rig.pauses.pause(cast(Any, SimpleNamespace(terms=SimpleNamespace(token=str(number)))))
    for _ in range(20):
        rig.pauses.pause(rig.first, 5)
    rig.at(10.0 + broker_limits.BLOCKED_RETRY_TOP_S)
    assert len(rig.pauses.over()) == 1_000
    assert rig.pauses.next == pytest.approx(10.0 + 1_001 * broker_limits.BLOCKED_RETRY_SHARE_S)
