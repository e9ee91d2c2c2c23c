from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from mtl.broker import actions
from mtl.broker import limits as broker_limits
from mtl.broker.core import Broker
from mtl.broker.runtime.engine_monitor import EngineMonitor
from mtl.broker.runtime.server import clock
from mtl.storage.api import Seen
from mtl.storage.records import UserRecord


class Core:
    """The calls of the broker."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def room(self, free: int, total: int, _: actions.Now) -> None:
        self.calls.append((free, total))

    def users(self, records: Sequence[UserRecord], _: actions.Now) -> None:
        self.calls.append([r.name for r in records])


class Place:
    def __init__(self) -> None:
        self.core = Core()
        self.woken = 0
        self.checks = 0
        self.seen = Seen(5, 10, None)
        self.monitor = EngineMonitor(lambda: self.seen, self.run, self.wake)

    def run(self, check: Callable[[], None]) -> None:
        self.checks += 1
        check()

    def wake(self) -> None:
        self.woken += 1

    def deliver(self) -> list[Any]:
        self.monitor.deliver(cast(Broker, self.core), clock)
        calls, self.core.calls = self.core.calls, []
        return calls


@pytest.fixture
def place() -> Place:
    return Place()


def test_the_engine_is_checked_once_per_period(place: Place) -> None:
    for now in (5.0, 5.0, 5.0 + broker_limits.ACCOUNTS_CHECK_S / 2, 5.0 + broker_limits.ACCOUNTS_CHECK_S):
        place.monitor.start_check(now)
    assert place.checks == 2
    place.monitor.check_soon()
    place.monitor.start_check(5.0 + broker_limits.ACCOUNTS_CHECK_S)
    assert place.checks == 3


def test_free_space_is_delivered_at_each_check(place: Place) -> None:
    place.monitor.start_check(1.0)
    assert place.deliver() == [(5, 10)]
    assert place.deliver() == []
    assert place.woken == 0


def test_changed_users_wake_the_loop_and_are_delivered_to_the_core(place: Place) -> None:
    place.seen = Seen(5, 10, (UserRecord("etl"),))
    place.monitor.start_check(1.0)
    assert place.woken == 1
    assert place.deliver() == [(5, 10), ["etl"]]


def test_unknown_free_space_is_not_delivered(place: Place) -> None:
    place.seen = Seen(None, 0, None)
    place.monitor.start_check(1.0)
    assert place.deliver() == []
