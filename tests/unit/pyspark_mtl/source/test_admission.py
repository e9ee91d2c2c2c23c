from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_mtl.source.admission import Allowance, Waiting, allow, capped, is_held_back, share, share_bytes

SIZES = st.lists(st.integers(0, 10_000), max_size=12)


@given(SIZES, st.integers(1, 100_000))
def test_a_share_is_within_its_bounds(sizes: list[int], total: int) -> None:
    parts = share(sizes, total)
    assert all(min(size, 1) <= part <= size for part, size in zip(parts, sizes, strict=True))
    busy = sum(size > 0 for size in sizes)
    assert sum(parts) == min(sum(sizes), max(total, busy))


@given(SIZES, st.integers(1, 100_000))
def test_a_larger_resource_never_gets_a_smaller_share(sizes: list[int], total: int) -> None:
    parts = share(sizes, total)
    by_size = sorted(zip(sizes, parts, strict=True))
    assert all(smaller[1] <= larger[1] + 1 for smaller, larger in pairwise(by_size))


@pytest.mark.parametrize(
    ("sizes", "total", "parts"),
    [
        ([900, 100], 100, [90, 10]),
        ([1_000_000, 1], 10, [9, 1]),
        ([5, 5, 5], 2, [1, 1, 1]),
        ([0, 7], 3, [0, 3]),
        ([3, 4], 100, [3, 4]),
        ([], 5, []),
    ],
)
def test_examples_of_shares(sizes: list[int], total: int, parts: list[int]) -> None:
    assert share(sizes, total) == parts


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=12), st.integers(1, 1 << 40))
def test_bytes_are_split_within_the_limit(octets: list[int], total: int) -> None:
    parts = share_bytes(octets, total)
    assert all(part >= 1 for part in parts)
    assert sum(parts) <= max(total, len(octets)) + len(octets)


def waiting(resource: str, first: int, end: int, octets: int = 0) -> Waiting:
    return Waiting(resource, first, end, octets, octets)


def test_without_limits_everything_is_admitted() -> None:
    assert allow([waiting("a", 3, 9), waiting("b", 4, 4)], None, None) == [Allowance("a", 3, 9, None)]


def test_both_limits_hold_together() -> None:
    found = allow([waiting("a", 1, 1001, 900_000), waiting("b", 1, 1001, 100_000)], 500, 100_000)
    assert found == [Allowance("a", 1, 251, 90_000), Allowance("b", 1, 251, 10_000)]


def test_the_broker_is_not_asked_if_the_byte_limit_cannot_apply() -> None:
    assert allow([waiting("a", 1, 101, 5_000)], None, 5_000) == [Allowance("a", 1, 101, None)]


def test_an_estimate_alone_does_not_lift_the_limit() -> None:
    (found,) = allow([Waiting("a", 90, 101, octets=10, most_octets=6_000)], None, 5_000)
    assert found.max_bytes == 5_000


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 99), st.integers(0, 9999)), max_size=6),
    st.none() | st.integers(1, 200),
    st.none() | st.integers(1, 20_000),
)
def test_a_query_with_limits_eventually_reads_all_contents(
    sizes: list[tuple[int, int, int]], max_contents: int | None, max_bytes: int | None
) -> None:
    """With any limits, every batch reads some of the waiting contents, so the end is reached."""
    left = [waiting(str(at), first, first + count, octets) for at, (first, count, octets) in enumerate(sizes)]
    for _ in range(100):
        for allowance in allow(left, max_contents, max_bytes):
            index = int(allowance.resource)
            before = left[index]
            assert before.first == allowance.first < allowance.end <= before.end
            left[index] = waiting(before.resource, allowance.end, before.end, before.octets)
    assert all(waits.count == 0 for waits in left)


@pytest.mark.parametrize(
    ("count", "minimum", "since_last", "held"),
    [
        (99, 100, 5.0, True),
        (100, 100, 5.0, False),
        (99, 100, 60.0, False),
        (0, 100, 5.0, True),
        (1, None, 0.0, False),
    ],
)
def test_a_batch_waits_for_the_minimum_up_to_the_delay(
    count: int, minimum: int | None, since_last: float, held: bool
) -> None:
    assert is_held_back(count, minimum, 60.0, since_last) is held


def test_contents_behind_the_end_do_not_count_as_waiting() -> None:
    assert capped(waiting("a", 10, 90, 800), 50) == Waiting("a", 10, 50, 400, 800)
    assert capped(waiting("a", 10, 40, 800), 50) == waiting("a", 10, 40, 800)
    assert capped(waiting("a", 70, 90), 50).count == 0
