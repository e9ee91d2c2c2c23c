from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.errors import OptionError
from mtl.wire.history import History
from pyspark_mtl.limits import BUNDLED_FROM
from pyspark_mtl.source.offsets import OffsetRange
from pyspark_mtl.source.planning import ResourceExtent, Split, bundled, dated, lost, plan, without
from tests.support.texts import in_order


@st.composite
def ranges(draw: st.DrawFn) -> list[OffsetRange]:
    names = draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=5))
    return [
        OffsetRange(name, "i", first := draw(st.integers(1, 1000)), first + draw(st.integers(1, 500)))
        for name in names
    ]


SPLITS = st.builds(Split, st.none() | st.integers(1, 50), st.none() | st.integers(1, 200))


@given(ranges(), SPLITS)
def test_every_content_is_in_exactly_one_task(whole: list[OffsetRange], split: Split) -> None:
    tasks = plan(whole, split)
    for offset_range in whole:
        parts = [task for task in tasks if task.resource == offset_range.resource]
        assert (parts[0].first, parts[-1].until) == (offset_range.first, offset_range.until)
        assert all(before.until == after.first for before, after in pairwise(parts))
    assert {task.resource for task in tasks} == {offset_range.resource for offset_range in whole}


@given(ranges(), SPLITS)
def test_the_bounds_of_a_split_are_kept(whole: list[OffsetRange], split: Split) -> None:
    tasks = plan(whole, split)
    assert all(task.count >= 1 for task in tasks)
    if split.max_records is not None:
        assert all(task.count <= split.max_records for task in tasks)
    if split.min_partitions is not None:
        assert len(tasks) >= min(split.min_partitions, sum(offset_range.count for offset_range in whole))


@given(st.integers(1, 100_000), st.integers(1, 64))
def test_parts_of_one_resource_are_about_equal(count: int, pieces: int) -> None:
    counts = [
        task.count for task in plan([OffsetRange("a", "i", 7, 7 + count)], Split(min_partitions=pieces))
    ]
    assert max(counts) - min(counts) <= 1


def test_without_a_split_a_resource_is_one_task() -> None:
    whole = [OffsetRange("a", "i", 1, 10_000_000), OffsetRange("b", "j", 5, 6)]
    assert plan(whole, Split()) == whole


def test_a_large_resource_is_split_into_more_tasks() -> None:
    tasks = plan(
        [OffsetRange("large", "i", 1, 901), OffsetRange("small", "j", 1, 101)], Split(min_partitions=10)
    )
    assert [task.resource for task in tasks] == ["large"] * 9 + ["small"]


def test_an_empty_range_has_no_tasks() -> None:
    assert plan([], Split(min_partitions=8)) == []


def test_too_many_tasks_are_an_error() -> None:
    with pytest.raises(OptionError, match="a batch of 10000000 partitions is planned"):
        plan([OffsetRange("a", "i", 1, 10_000_001)], Split(max_records=1))


def ending(following: int) -> History:
    return History((), following)


# --- epochs (PROTOCOL.md 5.1.1) -----------------------------------------------------------------------------

ONE, TWO, OTHER = "1.aaaaaaaa", "2.bbbbbbbb", "2.cccccccc"
LOG = History(((1, ONE), (11, TWO)), 21)


@pytest.mark.parametrize(
    ("first", "before", "until", "last", "gone"),
    [
        (5, ONE, 15, TWO, None),
        (5, None, 15, None, None),
        (5, ONE, 15, OTHER, (11, 15)),
        (15, OTHER, 20, OTHER, (15, 20)),
        (5, ONE, 12, ONE, (11, 12)),
        (1, None, 31, TWO, (21, 31)),
    ],
)
def test_contents_missing_in_another_copy_of_the_log_are_lost(
    first: int, before: str | None, until: int, last: str | None, gone: tuple[int, int] | None
) -> None:
    losses = lost([OffsetRange("a", "i", first, until, before, last)], {"a": ResourceExtent("i", 1, LOG)})
    assert [(loss.first, loss.end) for loss in losses] == ([gone] if gone else [])
    assert all("another copy" in str(loss) for loss in losses)


def test_tasks_have_the_epochs_of_both_their_ends() -> None:
    (whole,) = dated([OffsetRange("a", "i", 5, 17)], {"a": ResourceExtent("i", 1, LOG)})
    parts = plan([whole], Split(max_records=4))
    assert [(part.epoch_of(part.first), part.epoch_of(part.until)) for part in parts] == [
        (ONE, ONE),
        (ONE, TWO),
        (TWO, TWO),
    ]
    (beginning,) = dated([OffsetRange("a", "i", 1, 11)], {"a": ResourceExtent("i", 1, LOG)})
    assert (beginning.epoch_of(1), beginning.epoch_of(11)) == (None, ONE)


# --- losses -------------------------------------------------------------------------------------------------


def test_without_retention_no_contents_are_lost() -> None:
    assert lost([OffsetRange("a", "i", 5, 9)], {"a": ResourceExtent("i", 5, ending(9))}) == []


def test_contents_removed_by_retention_are_reported_exactly() -> None:
    (loss,) = lost([OffsetRange("a", "i", 5, 90)], {"a": ResourceExtent("i", 12, ending(400))})
    assert (loss.resource, loss.first, loss.end, loss.count) == ("a", 5, 12, 7)
    assert "contents 5 to 11 (7 in all) are gone" in str(loss)


def test_a_loss_is_limited_to_the_planned_range() -> None:
    (loss,) = lost([OffsetRange("a", "i", 5, 9)], {"a": ResourceExtent("i", 1200, ending(1300))})
    assert (loss.first, loss.end) == (5, 9)


def test_contents_behind_the_end_of_the_log_are_lost() -> None:
    (loss,) = lost([OffsetRange("a", "i", 5, 9)], {"a": ResourceExtent("i", 1, ending(7))})
    assert (loss.first, loss.end) == (7, 9)
    assert re.search(in_order("ends at 7", "7 to 8", 2), str(loss))


@pytest.mark.parametrize(
    ("extents", "words"),
    [
        ({}, "'a' does not exist any more"),
        ({"a": ResourceExtent("new", 1, ending(99))}, "'a' was deleted and created again"),
    ],
)
def test_another_incarnation_is_a_loss_of_the_whole_range(
    extents: dict[str, ResourceExtent], words: str
) -> None:
    (loss,) = lost([OffsetRange("a", "i", 5, 9)], extents)
    assert (loss.first, loss.end) == (5, 9)
    assert words in str(loss)


@st.composite
def extents_of(draw: st.DrawFn) -> dict[str, ResourceExtent]:
    names = draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=6))
    return {
        name: ResourceExtent(
            "i", earliest := draw(st.integers(1, 1600)), ending(earliest + draw(st.integers(0, 1600)))
        )
        for name in names
    }


@given(ranges(), extents_of())
def test_losses_and_remaining_ranges_add_up_to_the_plan(
    whole: list[OffsetRange], extents: dict[str, ResourceExtent]
) -> None:
    losses = lost(whole, extents)
    left = without(whole, losses)
    for offset_range in left:
        assert (
            extents[offset_range.resource].earliest
            <= offset_range.first
            < offset_range.until
            <= extents[offset_range.resource].history.next
        )
    parts = sorted(
        [(loss.resource, loss.first, loss.end) for loss in losses]
        + [(offset_range.resource, offset_range.first, offset_range.until) for offset_range in left]
    )
    contents = [(name, sequence) for name, first, end in parts for sequence in range(first, end)]
    assert contents == sorted(
        (offset_range.resource, n)
        for offset_range in whole
        for n in range(offset_range.first, offset_range.until)
    )


# --- partitions of several tasks ----------------------------------------------------------------------------


def tiny(count: int, contents: int = 1) -> list[OffsetRange]:
    return [OffsetRange(f"r{number:05}", "i", 1, 1 + contents) for number in range(count)]


@pytest.mark.parametrize("count", [1, BUNDLED_FROM])
def test_few_tasks_have_a_partition_each(count: int) -> None:
    assert bundled(tiny(count), Split()) == [[part] for part in tiny(count)]


@given(
    st.lists(st.integers(1, 1_000), max_size=600),
    st.builds(Split, st.none() | st.integers(1, 500), st.none() | st.integers(1, 2_000)),
)
def test_small_tasks_share_partitions_within_the_bounds(counts: list[int], split: Split) -> None:
    parts = plan([OffsetRange(f"r{at}", "i", 1, 1 + count) for at, count in enumerate(counts)], split)
    bundles = bundled(parts, split)
    assert [part for bundle in bundles for part in bundle] == parts
    assert all(bundles)
    wanted = max(BUNDLED_FROM, split.min_partitions or 0)
    assert len(bundles) >= min(wanted, len(parts))
    assert len(bundles) <= 2 * wanted or split.max_records is not None
    for bundle in bundles:
        if len(bundle) > 1:
            count = sum(part.count for part in bundle)
            assert count <= -(-sum(counts) // wanted)
            assert count <= (split.max_records or count)


def test_ten_thousand_tiny_resources_are_some_hundred_partitions() -> None:
    assert [len(bundle) for bundle in bundled(tiny(10_000), Split())] == [50] * BUNDLED_FROM


def test_a_large_resource_has_a_partition_of_its_own() -> None:
    large = OffsetRange("large", "i", 1, 1_000_001)
    bundles = bundled([*tiny(300), large, *tiny(300)], Split())
    assert [large] in bundles
