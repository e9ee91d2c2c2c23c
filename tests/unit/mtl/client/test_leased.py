from __future__ import annotations

from collections.abc import Callable

import pytest

from mtl.client import leased
from mtl.client.control import Outcome
from mtl.client.io import process
from mtl.client.leased import BlockingLease
from mtl.errors import Closed, Unreachable
from mtl.wire import control as w
from tests.support.memory_network import Bench


class Side:
    """Answers what it is told to."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.closed = 0

    def close(self, then: Callable[[Outcome], None], *, within: float) -> None:
        self.closed += 1
        then(self.outcome)


class Thing(BlockingLease):
    what = "thing"


def opened(side: Side, monkeypatch: pytest.MonkeyPatch) -> tuple[Thing, list[int]]:
    """One whose IO thread does at once what is posted to it."""
    bench, closed = Bench(), list[int]()
    monkeypatch.setattr(bench.loop, "post", lambda call: call())
    return Thing(bench.loop, bench.settings, side, lambda: closed.append(1)), closed


@pytest.mark.parametrize("outcome", [w.LeaseClosed(), Unreachable("e", 1.0, "closing")])
def test_it_is_closed_once_whatever_the_broker_says(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = Side(outcome)
    thing, closed = opened(side, monkeypatch)
    with thing:
        thing._check()
    thing.close()
    assert (side.closed, closed) == (1, [1])
    with pytest.raises(Closed, match="the thing is closed"):
        thing._check()


def test_a_forked_process_leaves_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    side = Side(w.LeaseClosed())
    thing, closed = opened(side, monkeypatch)
    pid = process()
    monkeypatch.setattr(leased, "process", lambda: pid + 1)
    with pytest.raises(Closed, match="another process"):
        thing._check()
    thing.close()
    assert (side.closed, closed) == (0, [])
