"""Where doors listen: one syntax for all of them, and side by side on one machine unless told otherwise."""

from __future__ import annotations

import pytest

from mtl.doors.places import DEFAULTS, TRANSPORTS, ListenPlace, host_and_port, place_of
from mtl.errors import OptionError
from mtl.limits import DEFAULT_ENDPOINT


def test_no_two_doors_listen_at_the_same_place() -> None:
    ports = [place.rpartition(":")[2] for place in (DEFAULT_ENDPOINT, *DEFAULTS.values())]
    assert len(set(ports)) == len(ports)


@pytest.mark.requirement("MC0-30")
def test_every_door_has_a_default_on_this_machine() -> None:
    assert DEFAULTS.keys() == TRANSPORTS.keys()
    assert all(place_of(door, None).local for door in DEFAULTS)
    assert str(place_of("mc0", None)).endswith(":61616")


@pytest.mark.parametrize("door", TRANSPORTS)
def test_host_and_port_are_enough_for_any_door(door: str) -> None:
    transport = TRANSPORTS[door][0]
    for said in ("127.0.0.1:80", f"{transport}://127.0.0.1:80"):
        assert place_of(door, said) == ListenPlace(transport, "127.0.0.1", 80)
    assert str(place_of(door, "[::1]:80")) == f"{transport}://[::1]:80"


def test_other_transports_are_named() -> None:
    assert place_of("mc0", "ipc:///run/mc0") == ListenPlace("ipc", "/run/mc0", 0)
    assert str(place_of("mc0", "ipc:///run/mc0")) == "ipc:///run/mc0"
    assert place_of("reactive", "ws://[::]:0") == ListenPlace("ws", "::", 0)
    assert place_of("reactive", "wss://[::]:0", secure=True) == ListenPlace("ws", "::", 0)
    assert place_of("mbws", "[::]:0", secure=True) == ListenPlace("ws", "::", 0)


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
def test_what_cannot_be_listened_on_is_named(door: str, listen: str, secure: bool) -> None:
    with pytest.raises(OptionError, match=listen):
        place_of(door, listen, secure=secure)


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
def test_what_others_reach_is_not_local(listen: str, local: bool) -> None:
    assert place_of("mc0", listen).local is local


def test_hosts_and_ports() -> None:
    assert host_and_port("127.0.0.1:80") == ("127.0.0.1", 80)
    assert host_and_port("[::1]:0") == ("::1", 0)
    for wrong in ("80", ":80", "host:", "host:x", "host:99999", "host:" + "9" * 5_000):
        with pytest.raises(OptionError):
            host_and_port(wrong)
