from __future__ import annotations

from collections.abc import Callable

from mtl.net.entrance import Entrance


class Timers:
    """Scheduled calls, which `expire` makes."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def __call__(self, seconds: float, call: Callable[[], None]) -> Timers.Timer:
        self.calls.append((seconds, call))
        return Timers.Timer(self, (seconds, call))

    def expire(self) -> None:
        for _, call in list(self.calls):
            call()

    class Timer:
        def __init__(self, timers: Timers, call: tuple[float, Callable[[], None]]) -> None:
            self._timers = timers
            self._call = call

        def cancel(self) -> None:
            if self._call in self._timers.calls:
                self._timers.calls.remove(self._call)


class Hall:
    """An entrance for 4 connections, 2 of each address."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.dropped: list[int] = []
        self.reported: list[str] = []
        self.entrance = Entrance(4, 2, 5.0, self.timers, self.reported.append)

    def enter(self, key: int, address: str) -> None:
        self.entrance.enter(key, address, lambda: self.dropped.append(key))


def test_a_silent_connection_is_dropped_after_the_patience() -> None:
    hall = Hall()
    hall.enter(1, "192.0.2.1")
    hall.enter(2, "192.0.2.1")
    assert [seconds for seconds, _ in hall.timers.calls] == [5.0, 5.0]
    hall.entrance.leave(1)
    hall.entrance.leave(1)
    hall.timers.expire()
    assert (hall.dropped, len(hall.entrance), hall.reported) == ([2], 0, [])


def test_the_oldest_connection_of_an_address_makes_room_for_its_next() -> None:
    hall = Hall()
    hall.enter(9, "192.0.2.9")
    for key in (1, 2, 3):
        hall.enter(key, "192.0.2.1")
    assert (hall.dropped, hall.reported) == ([1], ["192.0.2.1"])
    assert [key in hall.entrance for key in (9, 1, 2, 3)] == [True, False, True, True]


def test_above_the_total_the_address_with_the_most_loses_its_oldest() -> None:
    hall = Hall()
    for key, host in enumerate((1, 1, 2, 3, 4)):
        hall.enter(key, f"192.0.2.{host}")
    assert hall.dropped == [0]


def test_the_addresses_of_a_network_of_64_bits_are_one() -> None:
    hall = Hall()
    for key in range(3):
        hall.enter(key, f"2001:db8::{key}")
    hall.enter(3, "2001:db8:0:1::1")
    hall.enter(4, "::ffff:192.0.2.1")
    assert hall.dropped == [0]
    assert hall.reported == ["2001:db8::/64"]


def test_a_peer_whose_login_is_checked_is_not_silent_but_counts() -> None:
    hall = Hall()
    hall.enter(1, "192.0.2.1")
    hall.entrance.heard(1)
    hall.entrance.heard(7)
    hall.timers.expire()
    assert (hall.dropped, len(hall.entrance)) == ([], 1)
    hall.enter(2, "192.0.2.1")
    hall.enter(3, "192.0.2.1")
    assert hall.dropped == [1]


def test_a_descriptor_whose_end_was_not_reported_belongs_to_its_next_connection() -> None:
    hall = Hall()
    hall.enter(1, "192.0.2.1")
    hall.enter(1, "192.0.2.2")
    assert (hall.dropped, len(hall.entrance)) == ([], 1)
    hall.entrance.close()
    assert (hall.dropped, len(hall.entrance)) == ([1], 0)
