from __future__ import annotations

import gc

from mtl.log.cache import ReadCache


class Owner:
    def __init__(self) -> None:
        self.dropped = 0
        self.removed = False

    def drop_index(self) -> None:
        self.dropped += 1


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
    cache = ReadCache()
    owner = Owner()
    owner.removed = True
    cache.drop_owner(owner)
    cache.keep_index(owner, 100)
    assert owner.dropped == 1


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
