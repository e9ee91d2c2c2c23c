"""The readable contents of a resource, and their description."""

from __future__ import annotations

import pytest

from mtl.broker.writing.resource import Resource
from mtl.errors import Damaged
from tests.support.core import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def resource(rig: Rig) -> Resource:
    client = rig.client()
    client.create("a")
    client.fill("a", [b"x", b"y"])
    rig.restart()
    found = rig.broker.parts.resources.find("/", "a")
    assert found is not None
    return found


def test_damage_names_its_own_range_of_contents(resource: Resource) -> None:
    resource.add_unread(1, 2, Damaged("bad", first=1, end=3))
    assert resource.unread.places == [(1, 3)]
    assert resource.unread.covers(2)
    assert not resource.unread.covers(3)
