from __future__ import annotations

import pytest

from mtl.broker.limits import FAILED_LOGINS_ADDRESS, FAILED_LOGINS_S
from mtl.doors.guessing import Guessing
from mtl.doors.limits import DOOR_FAILED_LOGINS, DOOR_FAILED_LOGINS_ALL, DOOR_FAILED_S


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_an_address_that_failed_too_often_waits_and_no_other() -> None:
    clock = Clock()
    guessing = Guessing(clock)
    for _ in range(DOOR_FAILED_LOGINS):
        assert not guessing.too_many("here")
        guessing.count("here")
    assert guessing.too_many("here")
    assert not guessing.too_many("there")
    clock.now += DOOR_FAILED_S
    assert not guessing.too_many("here")


def test_all_together_fail_less_often_than_locks_the_door_out() -> None:
    clock = Clock()
    guessing = Guessing(clock)
    for number in range(DOOR_FAILED_LOGINS_ALL):
        assert not guessing.too_many("somebody else")
        guessing.count(f"{number}")
    assert guessing.too_many("somebody else")
    assert (DOOR_FAILED_LOGINS_ALL, DOOR_FAILED_S) < (FAILED_LOGINS_ADDRESS, FAILED_LOGINS_S + 1)
    clock.now += DOOR_FAILED_S
    assert not guessing.too_many("somebody else")


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtl.doors.guessing._ADDRESSES", 5)
    guessing = Guessing(Clock())
    for number in range(20):
        guessing.count(f"{number}")
    assert len(guessing._failed) == 5
