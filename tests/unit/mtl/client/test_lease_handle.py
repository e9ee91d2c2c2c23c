from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from mtl.client import lease_handle
from mtl.client.control import Outcome
from mtl.client.io import process
from mtl.client.lease_handle import BlockingLease
from mtl.errors import Closed, Unreachable
from mtl.wire import control
from tests.support.memory_network import Bench


class Side:
    """Gives a prepared answer."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.closed = 0

    def close(self, then: Callable[[Outcome], None], *, within: float) -> None:
        self.closed += 1
        then(self.outcome)


class Thing(BlockingLease):
    kind = "thing"


def opened(side: Side, monkeypatch: pytest.MonkeyPatch) -> tuple[Thing, list[int]]:
    """A leased object whose IO thread runs posted calls at once."""
    bench, closed = Bench(), list[int]()
    monkeypatch.setattr(bench.loop, "post", lambda call: call())
    return Thing(bench.loop, bench.settings, side, lambda: closed.append(1)), closed


@pytest.mark.parametrize("outcome", [control.LeaseClosed(), Unreachable("e", 1.0, "closing")])
def test_a_leased_object_is_closed_once_for_any_answer(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = Side(outcome)
    thing, closed = opened(side, monkeypatch)
    with thing as entered:
        entered._check()
    assert (side.closed, closed) == (1, [1])
    thing.close()
    assert (side.closed, closed) == (1, [1])
    with pytest.raises(Closed, match="the thing is closed"):
        thing._check()


def test_close_returns_after_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(Side):
        answered = False

        def close(self, then: Callable[[Outcome], None], *, within: float) -> None:
            self.timer = threading.Timer(0.01, self.answer, [then])
            self.timer.start()

        def answer(self, then: Callable[[Outcome], None]) -> None:
            self.answered = True
            then(self.outcome)

    side = Later(control.LeaseClosed())
    thing, closed = opened(side, monkeypatch)
    thing.close()
    assert (side.answered, closed) == (True, [1])
    side.timer.join()


def test_a_forked_process_does_not_close_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    side = Side(control.LeaseClosed())
    thing, closed = opened(side, monkeypatch)
    pid = process()
    monkeypatch.setattr(lease_handle, "process", lambda: pid + 1)
    with pytest.raises(Closed, match="another process"):
        thing._check()
    thing.close()
    assert (side.closed, closed) == (0, [])
