"""Transactions that create tombstones of logs, and those that remove them."""

from __future__ import annotations

import pytest

from mtl.errors import StorageFailed
from mtl.storage.records import AnyRecord, ClockRecord, DroppedRecord, ResourceRecord, StageRecord
from mtl.storage.tombstones import Tombstones
from tests.support.faulty_store import FaultyStore, refuse

RESOURCE = ResourceRecord("/", "a", "i1", "l1")
STAGE = StageRecord("/", "s1", "app", 1, {"a": "i1"}, 0)
CLOCK = ClockRecord("boot", 1, 2)


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore()


@pytest.fixture
def tombstones(store: FaultyStore) -> Tombstones:
    tombstones = Tombstones(store)
    tombstones.save((RESOURCE, STAGE), ())
    return tombstones


def kept(store: FaultyStore) -> list[AnyRecord]:
    return list(store.load().records)


def test_a_record_leaves_a_tombstone_until_its_logs_are_gone(
    store: FaultyStore, tombstones: Tombstones
) -> None:
    tombstones.save((), (RESOURCE, STAGE))
    assert kept(store) == [DroppedRecord("resources/l1"), DroppedRecord("stages/s1")]
    tombstones.removed("resources/l1")
    tombstones.removed("resources/never-heard-of")
    tombstones.save((CLOCK,), ())
    assert kept(store) == [CLOCK, DroppedRecord("stages/s1")]
    again = Tombstones(store)
    again.restore(kept(store))
    again.removed("stages/s1")
    again.save((), (CLOCK,))
    assert kept(store) == []


def test_a_restored_record_removes_its_tombstone(store: FaultyStore, tombstones: Tombstones) -> None:
    tombstones.save((), (RESOURCE,))
    tombstones.save((RESOURCE,), ())
    assert kept(store) == [RESOURCE, STAGE]


@pytest.mark.parametrize("point", ["begin", "commit"])
def test_a_failed_transaction_may_have_stored_its_tombstone(
    store: FaultyStore, tombstones: Tombstones, point: str
) -> None:
    def fail(at: str) -> None:
        if at == point:
            raise refuse(full=False)

    store.hook = fail
    with pytest.raises(StorageFailed):
        tombstones.save((), (RESOURCE,))
    store.crash(landed=True)
    tombstones.save((RESOURCE,), ())
    assert kept(store) == [RESOURCE, STAGE]
