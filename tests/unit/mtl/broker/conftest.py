"""A broker in memory for every test, and the invariants that hold after each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.core import Client, Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    """At the end nothing that was taken in may still be counted: neither lost in the sum, nor given back twice."""
    rig = Rig()
    yield rig
    if rig.held:
        rig.let_go()
    assert rig.inbound_octets() == 0


@pytest.fixture
def client(rig: Rig) -> Client:
    return rig.client()
