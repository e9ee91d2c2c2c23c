from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from mtl import limits
from mtl.broker import actions as a
from mtl.broker.core import Broker
from mtl.broker.runtime.clock import clock
from mtl.broker.runtime.looking import Looking
from mtl.broker.runtime.users import Users
from mtl.storage.sqlite import SqliteStore


class Core:
    """What the broker is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def room(self, free: int, total: int, _: a.Now) -> None:
        self.told.append((free, total))

    def users(self, records: list[Any], _: a.Now) -> None:
        self.told.append([r.name for r in records])


class Place:
    def __init__(self, data: Path, store: SqliteStore) -> None:
        self.core = Core()
        self.woken = 0
        self.looking = Looking(store, str(data), self.run, self.wake)
        self.looks = 0

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
def place(tmp_path: Path) -> Place:
    (tmp_path / "data").mkdir()
    return Place(tmp_path / "data", SqliteStore(str(tmp_path / "data" / "broker.db")))


def test_it_looks_once_in_a_while(place: Place) -> None:
    for now in (5.0, 5.0, 5.0 + limits.ACCOUNTS_CHECK_S / 2, 5.0 + limits.ACCOUNTS_CHECK_S):
        place.looking.look(now)
    assert place.looks == 2
    place.looking.look_at_once()
    place.looking.look(5.0 + limits.ACCOUNTS_CHECK_S)
    assert place.looks == 3


def test_the_room_on_the_disk_is_told_each_time(place: Place, tmp_path: Path) -> None:
    place.looking.look(1.0)
    (said,) = place.tell()
    room = os.statvfs(tmp_path)
    assert said[1] == room.f_blocks * room.f_frsize
    assert 0 < said[0] <= said[1]
    assert place.tell() == []


def test_users_are_told_when_somebody_changed_them(place: Place, tmp_path: Path) -> None:
    place.looking.look(1.0)
    place.tell()
    with Users(tmp_path / "data") as users:
        users.add("etl", None, [])
    before = place.woken
    place.looking.look(3.0)
    assert ["etl"] in place.tell()
    assert place.woken == before + 1
    place.looking.look(5.0)
    assert ["etl"] not in place.tell()


def test_a_directory_that_is_gone_is_reported_and_users_are_looked_for(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place.looking._data = str(tmp_path / "gone")
    with caplog.at_level(logging.ERROR):
        place.looking.look(1.0)
    assert "could not be measured" in caplog.text
    assert all(not isinstance(x, tuple) for x in place.tell())
