from __future__ import annotations

from collections.abc import Callable

import pytest

from mtl.client.control import Outcome
from mtl.client.opening import Opening
from mtl.client.writer_part import WriterPart
from mtl.wire import control
from tests.support.memory_network import Bench
from tests.unit.mtl.client.test_writer_part import GRANTED, OPTIONS


class Setting:
    """Lends one session, and counts how often it comes back."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.lent = 0
        self.outcomes: list[Outcome] = []
        self.opening = Opening(
            self.bench.loop,
            self,  # type: ignore[arg-type]  # it lends the bench's
            lambda loop, channel: WriterPart(loop, channel, OPTIONS),
            None,
            self.outcomes.append,
            1.0,
        )

    def lend(self, profile: str | None) -> object:
        self.lent += 1
        return self.bench.channel

    def release(self, channel: object) -> None:
        assert channel is self.bench.channel
        self.lent -= 1

    def in_order(self, operation: Callable[[], None]) -> None:
        operation()

    def interrupted(self, operation: object) -> None:
        assert operation is self.opening

    def concluded(self, operation: object) -> None:
        assert operation is self.opening


def closes(at: Setting) -> None:
    """The client ends the granted lease."""
    link = at.bench.last("request")
    assert link.asked() == control.LeaseClose(lease="l", session="token")
    link.answer(control.LeaseClosed())
    at.bench.run()


def test_the_outcome_is_the_lease_and_the_session_comes_back_once() -> None:
    at = Setting()
    at.opening.begin()
    at.bench.lease(at.bench.ready(), GRANTED)
    assert at.outcomes == [GRANTED]
    assert at.opening.part.lease == GRANTED
    assert at.lent == 1
    at.opening.give_back()
    at.opening.give_back()
    assert at.lent == 0


def test_a_refusal_gives_the_session_back() -> None:
    at = Setting()
    at.opening.begin()
    link = at.bench.ready()
    link.asked()
    link.put(*control.encode_reply(404, {"status": "no", "reason": "unknown", "message": ""}))
    at.bench.run()
    assert (len(at.outcomes), at.lent) == (1, 0)
    at.opening.cancel()
    at.bench.run()


def test_one_that_is_cancelled_before_it_begins_does_nothing() -> None:
    at = Setting()
    at.opening.cancel()
    at.opening.begin()
    at.bench.run()
    assert (at.lent, at.bench.network.links) == (0, [])


@pytest.mark.parametrize("early", [True, False])
def test_one_that_is_cancelled_ends_its_lease(early: bool) -> None:
    at = Setting()
    at.opening.begin()
    link = at.bench.ready()
    link.asked()
    if early:
        at.opening.cancel()
        link.answer(GRANTED)
        at.bench.run()
    else:
        at.bench.lease(link, GRANTED)
        at.opening.cancel()
        at.bench.run()
    closes(at)
    assert at.lent == 0
