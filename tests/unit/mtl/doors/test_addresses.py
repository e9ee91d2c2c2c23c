"""Listening endpoints of doors: one syntax for all, and separate defaults on one machine."""

from __future__ import annotations

import pytest

from mtl.doors.addresses import DEFAULTS, TRANSPORTS, ListenAddress, host_and_port, listen_address
from mtl.errors import OptionError
from mtl.limits import DEFAULT_ENDPOINT


def test_default_endpoints_of_doors_differ() -> None:
    ports = [place.rpartition(":")[2] for place in (DEFAULT_ENDPOINT, *DEFAULTS.values())]
    assert len(set(ports)) == len(ports)


@pytest.mark.requirement("MC0-30")
def test_every_default_endpoint_is_local() -> None:
    assert DEFAULTS.keys() == TRANSPORTS.keys()
    assert all(listen_address(door, None).local for door in DEFAULTS)
    assert str(listen_address("mc0", None)).endswith(":61616")


@pytest.mark.parametrize("door", TRANSPORTS)
def test_host_and_port_suffice_for_every_door(door: str) -> None:
    transport = TRANSPORTS[door][0]
    for place in ("127.0.0.1:80", f"{transport}://127.0.0.1:80"):
        assert listen_address(door, place) == ListenAddress(transport, "127.0.0.1", 80)
    assert str(listen_address(door, "[::1]:80")) == f"{transport}://[::1]:80"


def test_other_transports_need_their_scheme() -> None:
    assert listen_address("mc0", "ipc:///run/mc0") == ListenAddress("ipc", "/run/mc0", 0)
    assert str(listen_address("mc0", "ipc:///run/mc0")) == "ipc:///run/mc0"
    assert listen_address("reactive", "ws://[::]:0") == ListenAddress("ws", "::", 0)
    assert listen_address("reactive", "wss://[::]:0", secure=True) == ListenAddress("ws", "::", 0)
    assert listen_address("mbws", "[::]:0", secure=True) == ListenAddress("ws", "::", 0)


@pytest.mark.parametrize(
    ("door", "listen", "secure"),
    [
        ("mc0", "ws://127.0.0.1:80", False),
        ("micromessage", "ipc:///run/x", False),
        ("mbws", "wss://127.0.0.1:80", False),
        ("mbws", "ws://127.0.0.1:80", True),
        *(
            (door, wrong, False)
            for door in TRANSPORTS
            for wrong in ("80", ":80", "host:", "host:x", "host:99999")
        ),
    ],
)
def test_an_invalid_endpoint_is_named(door: str, listen: str, secure: bool) -> None:
    with pytest.raises(OptionError, match=listen):
        listen_address(door, listen, secure=secure)


@pytest.mark.parametrize(
    ("listen", "local"),
    [
        ("127.0.0.1:0", True),
        ("127.1.2.3:0", True),
        ("[::1]:0", True),
        ("localhost:0", True),
        ("ipc:///run/mc0", True),
        ("0.0.0.0:0", False),
        ("[::]:0", False),
        ("*:0", False),
        ("eth0:0", False),
        ("192.0.2.1:0", False),
    ],
)
def test_endpoints_reachable_by_others_are_not_local(listen: str, local: bool) -> None:
    assert listen_address("mc0", listen).local is local


def test_hosts_and_ports_are_parsed() -> None:
    assert host_and_port("127.0.0.1:80") == ("127.0.0.1", 80)
    assert host_and_port("[::1]:0") == ("::1", 0)
    for wrong in ("80", ":80", "host:", "host:x", "host:99999", "host:" + "9" * 5_000):
        with pytest.raises(OptionError):
            host_and_port(wrong)
