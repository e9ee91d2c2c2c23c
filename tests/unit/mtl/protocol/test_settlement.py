from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.protocol.settlement import Sent, Unsettled

SIZES = st.lists(st.integers(1, 5), max_size=12)
SETTLES = st.lists(st.tuples(st.integers(0, 70), st.booleans()), max_size=12)


def filled(counts: list[int]) -> Unsettled[int]:
    held: Unsettled[int] = Unsettled()
    at = 1
    for index, count in enumerate(counts):
        held.add(Sent(at, at + count - 1, count * 10, index))
        at += count
    return held


@pytest.mark.requirement("MTL-90", "MTL-91")
def test_settle_one_or_all_up_to_a_number() -> None:
    held = filled([1, 1, 1, 1])
    assert [sent.item for sent in held.settle(2, multiple=False)] == [1]
    assert [sent.item for sent in held.settle(3, multiple=True)] == [0, 2]
    assert [sent.item for sent in held] == [3]
    assert (held.contents, held.octets, len(held), held.highest) == (1, 10, 1, 4)


@pytest.mark.requirement("MTL-93")
@pytest.mark.parametrize("multiple", [True, False])
@pytest.mark.parametrize("sequence", [0, 5, 1 << 63])
def test_a_number_that_was_never_sent_settles_no_contents(sequence: int, multiple: bool) -> None:
    held = filled([1, 1, 2])
    assert held.settle(sequence, multiple) == []
    assert held.contents == 4


def test_settling_twice_has_no_further_effect() -> None:
    held = filled([1, 1])
    assert len(held.settle(1, multiple=False)) == 1
    assert held.settle(1, multiple=False) == []
    assert len(held.settle(2, multiple=True)) == 1
    assert held.settle(2, multiple=True) == []


def test_a_pack_is_settled_by_its_last_number() -> None:
    held = filled([3, 3])
    assert held.settle(2, multiple=False) == []
    assert [sent.item for sent in held.settle(5, multiple=True)] == [0]
    assert [sent.item for sent in held.settle(6, multiple=False)] == [1]


def test_clear_returns_all_contents_in_order() -> None:
    held = filled([1, 2, 3])
    assert [sent.item for sent in held.clear()] == [0, 1, 2]
    assert (len(held), held.contents, held.octets, held.highest) == (0, 0, 0, 6)


@given(SIZES, SETTLES)
def test_totals_equal_those_of_the_remaining_contents(
    counts: list[int], settles: list[tuple[int, bool]]
) -> None:
    held = filled(counts)
    gone: list[int] = []
    for sequence, multiple in settles:
        gone += [sent.item for sent in held.settle(sequence, multiple)]
    left = list(held)
    assert sorted(gone + [sent.item for sent in left]) == list(range(len(counts)))
    assert held.contents == sum(sent.last - sent.first + 1 for sent in left)
    assert held.octets == sum(sent.size for sent in left)
    assert [sent.first for sent in left] == sorted(sent.first for sent in left)


# --- single contents in a row -------------------------------------------------------------------------------

RUNS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6), st.integers(0, 3)), max_size=6)


def in_rows(runs: list[tuple[int, int, int]]) -> tuple[Unsettled[None], Unsettled[None]]:
    """The same contents kept in runs, and singly; a run follows a gap, with contents of one size."""
    rows: Unsettled[None] = Unsettled()
    each: Unsettled[None] = Unsettled()
    at = 1
    for gap, count, size in runs:
        at += gap
        rows.add(Sent(at, at + count - 1, size * count, None, divisible=True))
        for sequence in range(at, at + count):
            each.add(Sent(sequence, sequence, size, None))
        at += count
    return rows, each


def singly(held: Unsettled[None]) -> list[tuple[int, int]]:
    """Every unsettled sequence, and its size."""
    return [(n, sent.size // sent.contents) for sent in held for n in range(sent.first, sent.last + 1)]


@given(RUNS, SETTLES, st.integers(1, 40))
def test_a_run_is_settled_like_single_contents(
    runs: list[tuple[int, int, int]], settles: list[tuple[int, bool]], cut: int
) -> None:
    rows, each = in_rows(runs)
    for sequence, multiple in settles:
        left = {n for n, _ in singly(each)}
        gone = [n for sent in rows.settle(sequence, multiple) for n in range(sent.first, sent.last + 1)]
        assert gone == [sent.last for sent in each.settle(sequence, multiple)]
        assert set(gone) <= left
        assert singly(rows) == singly(each)
        assert (rows.contents, rows.octets, rows.lowest, rows.highest) == (
            each.contents,
            each.octets,
            each.lowest,
            each.highest,
        )
    gone = [n for sent in rows.cut(cut) for n in range(sent.first, sent.last + 1)]
    assert gone == [sent.last for sent in each.cut(cut)]
    assert singly(rows) == singly(each)
    assert (rows.contents, rows.octets, rows.highest) == (each.contents, each.octets, each.highest)


def test_cut_removes_unsent_contents_and_whole_packs() -> None:
    held = filled([3, 3, 3])
    assert [sent.item for sent in held.cut(5)] == [1, 2]
    assert ([sent.item for sent in held], held.contents, held.octets, held.highest) == ([0], 3, 30, 4)
