"""Contents that could not be read, and the cause."""

from __future__ import annotations

from mtl.broker.writing import unread as module
from mtl.broker.writing.unread import Unread
from mtl.errors import Damaged, StorageFailed


def test_unreadable_ranges_are_kept_until_read() -> None:
    unread = Unread()
    failed = StorageFailed("no")
    assert unread.add(3, 5, failed)
    assert not unread.add(3, 5, failed), "it is known"
    assert [unread.covers(n) for n in (2, 3, 4, 5)] == [False, True, True, False]
    assert unread.why is failed
    unread.forget(5)
    assert unread.places == [(3, 5)]
    unread.forget(4)
    assert not unread.places
    assert unread.why is None


def test_damage_names_its_own_range_of_contents() -> None:
    unread = Unread()
    unread.add(3, 4, Damaged("bad", first=1, end=9))
    assert unread.places == [(1, 9)]


def test_beyond_the_limit_the_oldest_ranges_are_dropped() -> None:
    unread = Unread()
    for n in range(module._MAX_UNREAD + 2):
        unread.add(n, n + 1, StorageFailed("no"))
    assert len(unread.places) == module._MAX_UNREAD
    assert unread.places[0] == (2, 3)
