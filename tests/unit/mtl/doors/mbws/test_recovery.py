from __future__ import annotations

from uuid import UUID

import pytest

from mtl.doors.mbws.codec import Connect
from mtl.doors.mbws.recovery import Client, Connections, KnownConnection, new_name

PAGE = Client("https://example.org")
NATIVE = Client(None)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def opened(most: int = 10) -> tuple[Connections[KnownConnection], Clock]:
    clock = Clock()
    return Connections(most, 60.0, clock), clock


def added(
    connections: Connections[KnownConnection], name: str = "c", client: Client = PAGE
) -> KnownConnection:
    connection = KnownConnection(name, client, {})
    connections.add(connection)
    return connection


def delivered() -> KnownConnection:
    """Five messages of two addresses in alternation; the first is acknowledged."""
    connection = KnownConnection("c", PAGE, {"a": 10, "b": "earliest"})
    for address, sequence in (("a", 10), ("b", 1), ("a", 11), ("b", 2), ("a", 12)):
        connection.sent(address, [sequence])
    connection.outgoing.acknowledged(1)
    return connection


def where(connection: KnownConnection) -> dict[str, object]:
    return {address: place.start for address, place in connection.reading.items()}


@pytest.mark.requirement("MBWS-12")
def test_connection_names_are_distinct_urns() -> None:
    names = {new_name() for _ in range(1_000)}
    assert len(names) == 1_000
    assert all(name.startswith("urn:uuid:") and UUID(name).version == 4 for name in names)


@pytest.mark.requirement("MBWS-13", "MBWS-14", "MBWS-26", "MBWS-44")
def test_a_connection_is_found_only_by_its_name_origin_and_user() -> None:
    connections, _ = opened()
    connection, native = added(connections), added(connections, "native", NATIVE)
    assert connections.find("c", PAGE) is connection
    assert connections.find("native", NATIVE) is native
    alice = Client(PAGE.origin, "alice")
    added(connections, "hers", alice)
    assert connections.find("hers", alice) is not None
    for name, client in (
        ("c", Client("https://example.com")),
        ("c", NATIVE),
        ("c", alice),
        ("hers", PAGE),
        ("hers", Client(PAGE.origin, "bob")),
        ("native", PAGE),
        ("other", PAGE),
    ):
        assert connections.find(name, client) is None


@pytest.mark.requirement("MBWS-21")
def test_a_failed_connection_is_kept_for_a_limited_time() -> None:
    connections, clock = opened()
    first, second = added(connections, "first"), added(connections, "second")
    connections.failed(first)
    clock.now = 30.0
    connections.failed(second)
    clock.now = 59.0
    assert connections.find("first", PAGE) is first
    clock.now = 60.0
    assert connections.find("first", PAGE) is None
    assert connections.find("second", PAGE) is second
    connections.recovered(second)
    clock.now = 1000.0
    assert connections.find("second", PAGE) is second


def test_kept_failed_connections_are_bounded() -> None:
    connections, _ = opened(most=2)
    for name in ("1", "2", "3"):
        connections.failed(added(connections, name))
    added(connections, "open")
    assert [connections.find(name, PAGE) is not None for name in ("1", "2", "3", "open")] == [
        False,
        True,
        True,
        True,
    ]


@pytest.mark.requirement("MBWS-21")
@pytest.mark.parametrize(("later", "remaining"), [(0.0, 60.0), (20.0, 40.0), (60.0, 0.0), (70.0, 0.0)])
def test_the_remaining_time_of_a_waiting_connection_ends_with_its_expiry(
    later: float, remaining: float
) -> None:
    connections, clock = opened()
    connection = added(connections)
    clock.now = 100.0
    connections.failed(connection)
    clock.now += later
    assert connections.remaining_time(connection) == remaining


def test_the_remaining_time_of_a_connection_with_a_session_is_the_whole_patience() -> None:
    connections, clock = opened()
    connection = added(connections)
    clock.now = 100.0
    assert connections.remaining_time(connection) == 60.0


@pytest.mark.requirement("MBWS-11", "MBWS-23")
def test_a_closed_connection_is_removed() -> None:
    connections, _ = opened()
    connection = added(connections)
    connections.clear(connection)
    connections.failed(connection)
    connections.clear(connection)
    assert len(connections) == 0


@pytest.mark.requirement("MBWS-27", "MBWS-28")
@pytest.mark.parametrize(
    ("numbers", "received", "fits"),
    [
        ((1, 1, 0), 0, True),
        ((5, 1, 0), 0, True),
        ((0, 1, 0), 0, False),
        ((6, 1, 0), 0, False),
        ((3, 4, 9), 3, True),
        ((3, 4, 9), 9, True),
        ((3, 4, 9), 2, False),
        ((3, 4, 9), 10, False),
    ],
)
def test_a_connection_continues_only_with_matching_numbers(
    numbers: tuple[int, int, int], received: int, *, fits: bool
) -> None:
    assert delivered().can_continue(Connect("c", numbers), received) is fits


@pytest.mark.requirement("MBWS-07", "MBWS-30")
@pytest.mark.parametrize(
    ("received", "places"),
    [
        (1, {"a": 11, "b": 1}),
        (2, {"a": 11, "b": 2}),
        (3, {"a": 12, "b": 2}),
        (4, {"a": 12, "b": 3}),
        (5, {"a": 13, "b": 3}),
    ],
)
def test_each_address_resumes_behind_the_received_messages(received: int, places: dict[str, int]) -> None:
    connection = delivered()
    connection.resume(received)
    assert where(connection) == places
    assert connection.outgoing.bounds == (received + 1, received)
