from __future__ import annotations

import os
import socket

import pytest

from mtl.net.limits import OTHER_FILES
from mtl.net.open_connections import OpenConnections, connections_in_all, peer_address, shut_down


def test_connections_of_an_address_are_bounded() -> None:
    opened = OpenConnections(1, {1: "a", 2: "a", 3: "b"}.get)
    opened.opened("here", 1)
    assert opened.admits("a")
    opened.opened("here", 2)
    opened.opened("here", 3)
    assert (opened.admits("a"), opened.admits("b")) == (False, True)
    opened.ended("here", 1)
    opened.ended("here", 1)
    assert opened.admits("a")


def test_a_descriptor_is_one_connection() -> None:
    """The end of the former connection was not reported, or another socket reports it later."""
    addresses = {1: "a"}
    opened = OpenConnections(address_of=addresses.get)
    opened.opened("here", 1)
    addresses[1] = "b"
    opened.opened("here", 1)
    assert opened._counts._of_owner == {"b": 1}
    opened.opened("there", 1)
    opened.ended("here", 1)
    assert opened._counts._of_owner == {"b": 1}


def test_a_closed_connection_does_not_count() -> None:
    opened = OpenConnections(address_of=lambda _: None)
    opened.opened("here", 1)
    assert not opened._addresses


def test_addresses_without_connections_leave_no_state() -> None:
    opened = OpenConnections(address_of={1: "a"}.get)
    for _ in range(3):
        opened.opened("here", 1)
        opened.ended("here", 1)
    assert opened.admits("b")
    assert (dict(opened._addresses), dict(opened._counts._of_owner)) == ({}, {})


def test_the_address_of_a_peer_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            assert peer_address(accepted.fileno()) == "127.0.0.1"
        assert peer_address(server.fileno()) is None, "it has no peer"
    end, other = socket.socketpair()
    with end, other:
        assert peer_address(end.fileno()) == ""
    closed = os.dup(2)
    os.close(closed)
    assert peer_address(closed) is None


# --- silent connections -------------------------------------------------------------------------------------


def connected(in_all: int, **addresses: int) -> OpenConnections:
    """Silent connections: so many of each address, with descriptors from 0 on."""
    names = [name for name, count in addresses.items() for _ in range(count)]
    opened = OpenConnections(address_of=dict(enumerate(names)).get, in_all=in_all)
    for descriptor in range(len(names)):
        opened.opened("here", descriptor)
    return opened


def test_the_oldest_silent_connections_of_the_busiest_address_end() -> None:
    """A quarter of all connections may be silent; those of other addresses stay."""
    opened = connected(16, quiet=1, busy=6)
    assert opened.surplus() == [1, 2, 3]
    assert opened.surplus() == [], "each is reported once"
    for descriptor in (1, 2, 3):
        opened.ended("here", descriptor)
    assert opened._counts._of_owner == {"quiet": 1, "busy": 3}


def test_connections_that_sent_something_are_not_silent() -> None:
    opened = connected(16, a=6)
    for descriptor in (0, 1, 1, 7):
        opened.spoke("here", descriptor)
    assert opened.surplus() == []
    opened.ended("here", 2)
    opened.ended("here", 0)
    assert (opened._silent_count, opened._counts._of_owner) == (3, {"a": 4})


def test_an_address_leaves_a_quarter_of_all_connections_to_the_others() -> None:
    opened = connected(8, a=6)
    assert opened.admits("a")
    assert opened.limit == 6
    opened = connected(8, a=7, b=1)
    assert (opened.admits("a"), opened.admits("b")) == (False, True)
    assert not connected(8, a=5, b=4).admits("b"), "there are too many in all"


def test_the_connections_that_the_process_has_descriptors_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (100_000, 100_000))
    found = connections_in_all(512)
    assert 90_000 < found < 100_000 - 512 - OTHER_FILES
    monkeypatch.setattr("resource.getrlimit", lambda _: (64, 64))
    assert connections_in_all(512) == 4


def test_a_connection_is_ended_without_another_descriptor() -> None:
    end, other = socket.socketpair()
    with end, other:
        shut_down(end.fileno())
        assert other.recv(1) == b""
        assert end.fileno() >= 0
    closed = os.dup(2)
    os.close(closed)
    shut_down(closed)
