"""Chunks read ahead, and their bound."""

from __future__ import annotations

from typing import cast

from mtl.broker.reading.ahead import Ahead, Aheads
from mtl.broker.reading.reads import Reads
from mtl.storage.api import Chunk, ChunkRef


def chunk(base: int, count: int = 2, size: int = 10) -> Chunk:
    return Chunk(ChunkRef(base, count, 0, size, size, 1, 0, 0), memoryview(bytes(size)))


def filled(*bases: int) -> Ahead:
    ahead = Ahead()
    ahead.append([chunk(base) for base in bases], 0)
    return ahead


def bases(ahead: Ahead) -> list[int]:
    return sorted({found.ref.base for n in range(100) if (found := ahead.find(n)) is not None})


def test_a_chunk_is_found_by_any_of_its_sequences() -> None:
    ahead = filled(11, 13, 15)
    found = [ahead.find(n) for n in range(10, 18)]
    assert [None if x is None else x.ref.base for x in found] == [None, 11, 11, 13, 13, 15, 15, None]
    assert ahead.octets == 30
    assert Ahead().find(1) is None


def test_following_chunks_are_appended_and_used_ones_dropped() -> None:
    ahead = filled(11, 13, 15)
    ahead.append([chunk(17)], 14)
    assert bases(ahead) == [13, 15, 17]


def test_chunks_elsewhere_replace_the_present_ones() -> None:
    ahead = filled(11, 13, 15)
    ahead.append([chunk(3)], 0)
    assert bases(ahead) == [3]
    ahead.append([], 0)
    assert bases(ahead) == [3]


def test_the_next_read_starts_when_half_is_sent() -> None:
    ahead = filled(11, 13, 15, 17)
    assert [ahead.following(n) for n in (11, 12, 13, 17)] == [None, None, 19, 19]
    ahead.reading = True
    assert ahead.following(17) is None
    assert Ahead().following(1) is None


def test_beyond_the_limit_the_chunks_filled_first_are_dropped() -> None:
    limit = Aheads(cast("Reads", None), 50)
    first, second, third = Ahead(), Ahead(), Ahead()
    for ahead in (first, second, third):
        limit.add(ahead, [chunk(1)], 0)
        limit.add(ahead, [chunk(3)], 0)  # counted once
    assert [x.octets for x in (first, second, third)] == [0, 20, 20]
    limit.ended(second)
    limit.ended(second)
    limit.add(first, [chunk(1)], 0)
    large = Ahead()
    limit.add(large, [chunk(1, size=99)], 0)
    assert (third.octets, large.octets) == (0, 99), "one is always kept"
