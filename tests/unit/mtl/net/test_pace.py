from __future__ import annotations

import pytest

from mtl.net import pace
from mtl.net.pace import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(pace, "PACED_SOURCES", 3)
    return Clock()


def admitted(pace: Pace, address: str, tries: int) -> int:
    return sum(pace.admits(address) for _ in range(tries))


def test_a_burst_is_admitted_and_then_a_rate(clock: Clock) -> None:
    pace = Pace(clock, 10, 2.0)
    assert admitted(pace, "a", 100) == 10
    clock.now += 3
    assert admitted(pace, "a", 100) == 6
    clock.now += 1_000
    assert admitted(pace, "a", 100) == 10


def test_addresses_have_separate_rates(clock: Clock) -> None:
    pace = Pace(clock, 10, 2.0)
    assert admitted(pace, "a", 100) == admitted(pace, "b", 100) == 10


def test_refused_attempts_do_not_count(clock: Clock) -> None:
    pace = Pace(clock, 10, 2.0)
    admitted(pace, "a", 100)
    for _ in range(10):
        clock.now += 0.25
        pace.admits("a")
    assert admitted(pace, "a", 100) == 0
    clock.now += 0.5
    assert pace.admits("a")


def test_the_longest_silent_address_is_dropped_first(clock: Clock) -> None:
    pace = Pace(clock, 10, 2.0)
    for address in "abcd":
        admitted(pace, address, 10)
    assert [pace.admits(address) for address in "dcb"] == [False, False, False]
    assert pace.admits("a")
