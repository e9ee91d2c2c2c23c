"""Ranges of settled contents, against a plain set."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mtl.broker.queues.settled import Settled

SPANS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 8)).map(lambda t: (t[0], t[0] + t[1])))


def test_adding_at_the_low_mark_moves_it_over_adjacent_ranges() -> None:
    settled = Settled(1)
    settled.add(2, 4)
    settled.add(6, 7)
    assert (settled.low, list(settled), settled.above) == (1, [(2, 4), (6, 7)], 3)
    settled.add(1, 2)
    assert (settled.low, list(settled)) == (4, [(6, 7)])
    settled.add(4, 6)
    assert (settled.low, list(settled), len(settled)) == (7, [], 0)


def test_adjacent_ranges_are_merged() -> None:
    settled = Settled(1)
    for sequence in (9, 5, 7, 6, 8):
        settled.add(sequence, sequence + 1)
    assert list(settled) == [(5, 10)]


def test_a_copy_is_independent() -> None:
    settled = Settled(1, [(3, 4)])
    twin = settled.copy()
    twin.add(4, 6)
    assert (list(settled), list(twin)) == ([(3, 4)], [(3, 6)])


@given(st.integers(1, 10), SPANS, st.lists(st.integers(1, 50)))
def test_ranges_behave_like_a_set_of_sequences(
    low: int, spans: list[tuple[int, int]], raises: list[int]
) -> None:
    settled, model = Settled(low), set(range(1, low))
    for n, (first, end) in enumerate(spans):
        settled.add(first, end)
        model |= set(range(first, end))
        if n < len(raises):
            settled.raise_low(raises[n])
            model |= set(range(1, raises[n]))
    assert {x for x in range(1, 60) if x in settled} == model
    assert [settled.after(x) for x in range(1, 60)] == [
        next(y for y in range(x, 200) if y not in model) for x in range(1, 60)
    ]
    assert settled.above == len({x for x in model if x >= settled.low})
    ranges = list(settled)
    assert all(a < b for a, b in ranges)
    assert all(end < first for (_, end), (first, _) in pairwise(ranges))
    again = Settled(settled.low, ranges)
    assert (again.low, list(again)) == (settled.low, ranges)
