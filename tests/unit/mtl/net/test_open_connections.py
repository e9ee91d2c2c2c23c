from __future__ import annotations

import os
import socket

from mtl.net.open_connections import OpenConnections, peer_address


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
    assert opened._counts == {"b": 1}
    opened.opened("there", 1)
    opened.ended("here", 1)
    assert opened._counts == {"b": 1}


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
    assert (dict(opened._addresses), dict(opened._counts)) == ({}, {})


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
