from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from mtl.broker.writing.intake import AcceptedContents
from mtl.broker.writing.unconfirmed import Unconfirmed
from mtl.broker.writing.writers import WriterLease

LEASE = cast(WriterLease, SimpleNamespace())


def accepted(first: int, last: int, *, done: bool = False) -> AcceptedContents:
    made = AcceptedContents(LEASE, first, last - first + 1, [b""] * (last - first + 1), b"")
    made.done = done
    return made


def filled(*ranges: tuple[int, int, bool]) -> Unconfirmed:
    held = Unconfirmed()
    for first, last, done in ranges:
        held.add(accepted(first, last, done=done))
    return held


def test_only_the_durable_prefix_is_confirmed() -> None:
    held = filled((1, 3, True), (4, 4, True), (5, 8, False), (9, 9, True))
    assert (held.pop_durable(), held.lowest, len(held)) == (4, 5, 2)
    assert (held.pop_durable(), held.lowest) == (0, 5)
    for waiting in held:
        waiting.settle()
    assert (held.pop_durable(), held.lowest, len(held)) == (9, None, 0)


def test_ranges_are_ordered_by_number_not_by_arrival() -> None:
    held = filled((5, 8, True), (1, 2, True), (3, 3, False))
    assert [waiting.first for waiting in held] == [1, 3, 5]
    assert held.pop_durable() == 2


def test_ranges_to_be_repeated_are_dropped() -> None:
    held = filled((1, 3, False), (4, 4, False), (5, 8, False))
    held.forget_from(4)
    assert [waiting.last for waiting in held] == [3]
    held.clear()
    assert (len(held), held.lowest) == (0, None)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=8), st.integers(0, 80))
def test_a_number_is_contained_if_it_is_in_a_range(steps: list[tuple[int, int]], number: int) -> None:
    at, numbers, ranges = 1, set(), []
    for gap, count in steps:
        first = at + gap
        ranges.append((first, first + count - 1, False))
        numbers |= set(range(first, first + count))
        at = first + count
    assert (number in filled(*ranges)) == (number in numbers)
