from __future__ import annotations

import pytest

from mtl.net.families import KNOWN_NAMES, Families, is_name


def test_a_name_is_tried_by_both_families_in_turn() -> None:
    families, endpoint = Families(), "tcp://both:5975"
    assert not families.is_ipv6(endpoint)
    families.missed(endpoint, ipv6=False)
    assert families.is_ipv6(endpoint)
    assert families.is_ipv6("tcp://both:6000")
    assert not families.is_ipv6("tcp://another:5975")
    families.missed(endpoint, ipv6=True)
    assert not families.is_ipv6(endpoint)


def test_the_family_that_worked_is_used_again() -> None:
    families, endpoint = Families(), "tcp://both:5975"
    families.missed(endpoint, ipv6=False)
    families.reached(endpoint, ipv6=True)
    assert families.is_ipv6(endpoint)
    families.reached(endpoint, ipv6=False)
    assert not families.is_ipv6(endpoint)


@pytest.mark.parametrize(
    ("endpoint", "ipv6"),
    [("tcp://127.0.0.1:1", False), ("tcp://[::1]:1", True), ("ipc:///run/a:b", False), ("inproc://x", False)],
)
def test_an_address_has_one_family(endpoint: str, ipv6: bool) -> None:
    families = Families()
    for _ in range(2):
        assert families.is_ipv6(endpoint) is ipv6
        families.missed(endpoint, ipv6=ipv6)


def test_names_are_limited() -> None:
    families = Families()
    for number in range(KNOWN_NAMES + 1):
        families.missed(f"tcp://host{number}:1", ipv6=False)
    assert not families.is_ipv6("tcp://host0:1")
    assert families.is_ipv6(f"tcp://host{KNOWN_NAMES}:1")


@pytest.mark.parametrize(
    ("host", "name"), [("localhost", True), ("::1", False), ("[::1]", False), ("10.0.0.1", False)]
)
def test_names_are_no_addresses(host: str, name: bool) -> None:
    assert is_name(host) is name
