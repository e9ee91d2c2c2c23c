"""Descriptions of logs without record. Their treatment is in test_local."""

from __future__ import annotations

import random
import re

import pytest

from mtl.errors import StorageFailed
from mtl.log.log import create_log
from mtl.storage.keys import directory_of
from mtl.storage.orphans import Orphan, Orphans, may_own, read_orphan
from mtl.storage.records import ResourceRecord, StageRecord, encode_owner
from tests.support.faulty_disk import FaultyDisk
from tests.support.texts import in_order

RESOURCE = ResourceRecord("/", "a", "i1", "l1")
STAGE = StageRecord("/", "s1", "app", 1, {"a": "i1"}, 0)


@pytest.fixture
def disk() -> FaultyDisk:
    disk = FaultyDisk(random.Random(1))
    for path in ("/data", "/data/resources", "/data/stages", "/data/stages/s1"):
        disk.make_dir(path)
    create_log(disk, "/data/resources/l1", 0, owner=encode_owner(RESOURCE))
    create_log(disk, "/data/stages/s1/0", 0, owner=encode_owner(STAGE))
    return disk


def test_places_of_orphans_are_found() -> None:
    assert (directory_of(RESOURCE), directory_of(STAGE)) == ("resources/l1", "stages/s1")


def test_an_orphan_is_described_by_its_owner(disk: FaultyDisk) -> None:
    resource, stage = read_orphan(disk, "/data", "resources/l1"), read_orphan(disk, "/data", "stages/s1")
    assert (resource.owner, stage.owner) == (RESOURCE, STAGE)
    assert resource.is_empty
    assert re.search(in_order("resource 'a'", "'/'", "without contents"), str(resource))
    assert re.search(in_order("stage", "version 1", "'app'", "without contents"), str(stage))


@pytest.mark.parametrize("owner", [b"", b"[]", b'["cursor",{}]', encode_owner(STAGE)])
def test_an_undecodable_owner_is_unknown(disk: FaultyDisk, owner: bytes) -> None:
    create_log(disk, "/data/resources/l2", 0, owner=owner)
    found = read_orphan(disk, "/data", "resources/l2")
    assert found.owner is None
    assert "not known" in str(found)


def test_the_next_free_name_is_found(disk: FaultyDisk) -> None:
    orphans = Orphans(disk, "/data")
    assert orphans.move("resources/l1", "resource-l1") == "lost+found/resource-l1"
    create_log(disk, "/data/resources/l1", 0)
    assert orphans.move("resources/l1", "resource-l1") == "lost+found/resource-l1-2"


def test_os_errors_become_named_ones(disk: FaultyDisk) -> None:
    with pytest.raises(StorageFailed):
        read_orphan(disk, "/data", "stages/nowhere")
    disk.fail("remove_dir")
    with pytest.raises(StorageFailed):
        Orphans(disk, "/data").remove("stages/s1")


def test_an_empty_orphan_is_empty() -> None:
    assert Orphan("stages/s2", None, ()).is_empty


def test_an_owner_matches_only_its_own_log() -> None:
    resource, stage = (
        encode_owner(ResourceRecord("/", "a", "i1", "l1")),
        encode_owner(StageRecord("/", "s1", "app", 1, {"a": "i1"}, 0)),
    )
    assert may_own(resource, "resources/l1")
    assert not may_own(resource, "resources/l11")
    assert may_own(stage, "stages/s1/0")
    assert not may_own(stage, "stages/s11/0")
    assert not may_own(stage, "resources/s1")
    assert may_own(b"", "resources/l1"), "a log that keeps no owner"
