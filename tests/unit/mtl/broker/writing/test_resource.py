"""What of a resource can be read, and what is told of that."""

from __future__ import annotations

import pytest

from mtl.broker.writing.resource import Resource
from mtl.errors import Damaged, Refused, StorageFailed
from mtl.wire.packs import unpack
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


def test_contents_are_found_by_their_sequence(resource: Resource) -> None:
    found = resource.contents_at(2)
    assert found is not None
    assert [bytes(body) for _, body in unpack(found)] == [b"y"]
    assert resource.contents_at(3) is None
    assert resource.trouble is None


def test_a_failure_is_told_until_the_contents_were_read(rig: Rig, resource: Resource) -> None:
    rig.disk.fail("read", when=lambda path: path.endswith(".segment"))
    with pytest.raises(StorageFailed):
        resource.contents_at(1)
    assert "Input/output error" in (resource.trouble or "")
    assert resource.readable() is resource.log, "others may read elsewhere"
    rig.disk.fail("read", when=lambda path: path.endswith(".segment"))
    with pytest.raises(Refused, match="cannot be read from 1"):
        resource.readable(1)
    resource.readable(1)
    assert resource.trouble is None


def test_damage_says_itself_which_contents_it_concerns(resource: Resource) -> None:
    resource.not_read(1, 2, Damaged("bad", first=1, end=3))
    assert resource.unread.places == [(1, 3)]
    assert resource.unread.covers(2)
    assert not resource.unread.covers(3)
