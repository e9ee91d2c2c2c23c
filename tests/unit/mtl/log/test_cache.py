from __future__ import annotations

import gc
from array import array

from mtl.log.cache import ReadCache
from tests.support.logs import mapped_bytes


def mapping(size: int) -> array[int]:
    return array("B", bytes(size))


class Owner:
    def __init__(self) -> None:
        self.dropped = 0
        self.removed = False

    def drop_index(self) -> None:
        self.dropped += 1


def test_the_least_recently_used_mapping_is_evicted() -> None:
    cache = ReadCache(mapped_segments=2)
    first, second, third = mapping(1), mapping(2), mapping(4)
    first_owner, second_owner = Owner(), Owner()
    cache.keep_mapping(first_owner, first, 1)
    cache.keep_mapping(second_owner, second, 2)
    assert cache.mapping(first_owner) is first
    cache.keep_mapping(Owner(), third, 4)
    assert cache.mapping(second_owner) is None
    assert cache.mapping(first_owner) is first
    assert mapped_bytes(cache) == 5


def test_a_ghost_is_a_removed_file_still_in_use() -> None:
    cache = ReadCache(mapped_segments=1, ghost_limit=3)
    mapped, evicted = mapping(2), mapping(8)
    key, owner = Owner(), Owner()
    cache.keep_mapping(key, evicted, 8)
    cache.keep_mapping(Owner(), mapping(1), 1)
    cache.keep_mapping(owner, mapped, 2)
    assert cache.ghost_bytes == 0
    cache.drop_owner(owner)
    cache.drop_owner(Owner())
    assert (cache.ghost_bytes, cache.may_map) == (2, True)
    cache.drop_owner(key)  # not kept any more, but lent out before
    assert (cache.ghost_bytes, cache.may_map) == (10, False)
    del evicted
    gc.collect()
    assert (cache.ghost_bytes, cache.may_map) == (2, True)
    del mapped
    gc.collect()
    assert cache.ghost_bytes == 0


def test_indexes_are_bounded_by_octets_except_the_last_one() -> None:
    cache = ReadCache(index_bytes=10)
    a, b, c = Owner(), Owner(), Owner()
    cache.keep_index(a, 4)
    cache.keep_index(b, 4)
    cache.use_index(a)
    cache.keep_index(c, 4)
    assert (a.dropped, b.dropped, c.dropped) == (0, 1, 0)
    cache.keep_index(c, 4)  # again is the same
    assert a.dropped == 0
    cache.keep_index(b, 100)
    assert (a.dropped, c.dropped, b.dropped) == (1, 1, 1)
    cache.forget_index(b)
    cache.forget_index(b)
    cache.use_index(b)
    cache.keep_index(a, 10)
    assert a.dropped == 1


def test_the_tail_is_bounded_by_octets() -> None:
    cache = ReadCache(tail_bytes=10)
    owner, other = object(), object()
    cache.keep_body(owner, 1, b"1234")
    cache.keep_body(other, 1, memoryview(b"1234"))
    assert cache.body(owner, 1) == b"1234"
    cache.keep_body(owner, 2, b"12345")
    assert cache.body(owner, 1) is None
    assert cache.body(other, 1) is not None
    cache.keep_body(owner, 3, bytes(11))  # larger than all
    assert cache.body(owner, 3) is None
    assert cache.body(owner, 2) == b"12345"


def test_bodies_removed_from_the_log_are_dropped() -> None:
    cache = ReadCache(tail_bytes=10)
    owner, other = object(), object()
    for base in (1, 2, 3):
        cache.keep_body(owner, base, b"x")
    cache.keep_body(other, 2, b"y")
    cache.forget_bodies(owner, 2)
    assert [cache.body(owner, base) for base in (1, 2, 3)] == [b"x", None, None]
    assert cache.body(other, 2) == b"y"
    cache.keep_body(owner, 2, b"new")
    cache.keep_body(owner, 3, b"12345")
    assert cache.body(owner, 2) == b"new"


def test_a_segment_removed_during_a_read_is_not_cached() -> None:
    cache = ReadCache(ghost_limit=3)
    owner, mapped = Owner(), mapping(4)
    owner.removed = True
    cache.drop_owner(owner)
    cache.keep_mapping(owner, mapped, 4)
    cache.keep_index(owner, 100)
    assert (cache.mapping(owner), owner.dropped) == (None, 1)
    assert (mapped_bytes(cache), cache.ghost_bytes, cache.may_map) == (0, 4, False)


def test_a_body_that_was_read_is_shared_while_it_is_in_use() -> None:
    cache, owner = ReadCache(), Owner()
    body = memoryview(b"a body")
    assert cache.read_body(owner, 1) is None
    assert cache.share_body(owner, 1, body) is body
    assert cache.share_body(owner, 1, memoryview(b"a body")) is body, "another thread read it, too"
    assert cache.read_body(owner, 1) is body
    assert cache.read_body(Owner(), 1) is None
    assert cache.read_body(owner, 2) is None
    del body
    gc.collect()
    assert cache.read_body(owner, 1) is None
