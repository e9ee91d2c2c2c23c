from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from mtl.broker import actions as a
from mtl.broker import limits as broker_limits
from mtl.broker.core import Broker
from mtl.broker.runtime.looking import Looking
from mtl.broker.runtime.server import clock
from mtl.storage.api import Seen
from mtl.storage.records import UserRecord


class Core:
    """What the broker is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def room(self, free: int, total: int, _: a.Now) -> None:
        self.told.append((free, total))

    def users(self, records: Sequence[UserRecord], _: a.Now) -> None:
        self.told.append([r.name for r in records])


class Place:
    def __init__(self) -> None:
        self.core = Core()
        self.woken = 0
        self.looks = 0
        self.seen = Seen(5, 10, None)
        self.looking = Looking(lambda: self.seen, self.run, self.wake)

    def run(self, look: Callable[[], None]) -> None:
        self.looks += 1
        look()

    def wake(self) -> None:
        self.woken += 1

    def tell(self) -> list[Any]:
        self.looking.tell(cast(Broker, self.core), clock)
        told, self.core.told = self.core.told, []
        return told


@pytest.fixture
def place() -> Place:
    return Place()


def test_it_looks_once_in_a_while(place: Place) -> None:
    for now in (5.0, 5.0, 5.0 + broker_limits.ACCOUNTS_CHECK_S / 2, 5.0 + broker_limits.ACCOUNTS_CHECK_S):
        place.looking.look(now)
    assert place.looks == 2
    place.looking.look_at_once()
    place.looking.look(5.0 + broker_limits.ACCOUNTS_CHECK_S)
    assert place.looks == 3


def test_the_room_is_told_each_time(place: Place) -> None:
    place.looking.look(1.0)
    assert place.tell() == [(5, 10)]
    assert place.tell() == []
    assert place.woken == 0


def test_users_are_told_when_somebody_changed_them(place: Place) -> None:
    place.seen = Seen(5, 10, (UserRecord("etl"),))
    place.looking.look(1.0)
    assert place.woken == 1
    assert place.tell() == [(5, 10), ["etl"]]


def test_room_that_could_not_be_measured_is_not_told(place: Place) -> None:
    place.seen = Seen(None, 0, None)
    place.looking.look(1.0)
    assert place.tell() == []
