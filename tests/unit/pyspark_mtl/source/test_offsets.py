from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.errors import OffsetError
from pyspark_mtl.source.offsets import INITIAL, Offset, OffsetRange, Position, between, parse

GOLDEN = Path(__file__).parents[3] / "golden" / "pyspark_mtl" / "offsets-v1.jsonl"

NAMES = st.text(min_size=1, max_size=8)
INCARNATIONS = st.sampled_from(["i1", "i2", "i3"])


@st.composite
def positions(draw: st.DrawFn) -> Position:
    following = draw(st.integers(1, 1 << 62))
    began = draw(st.none() | st.integers(1, following))
    return Position(draw(INCARNATIONS), following, began)


OFFSETS = st.builds(Offset, st.dictionaries(NAMES, positions(), max_size=5))


@given(OFFSETS)
def test_an_encoded_offset_is_parsed(offset: Offset) -> None:
    assert parse(json.loads(json.dumps(offset.json()))) == offset


@given(OFFSETS)
def test_the_encoding_is_independent_of_the_order_of_resources(offset: Offset) -> None:
    backwards = Offset(dict(reversed(list(offset.resources.items()))))
    assert json.dumps(backwards.json()) == json.dumps(offset.json())


@pytest.mark.parametrize("line", GOLDEN.read_text(encoding="utf-8").splitlines())
def test_golden_offsets_are_parsed_and_encoded_unchanged(line: str) -> None:
    assert json.dumps(parse(json.loads(line)).json()) == line


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "not of this source"),
        ({"partition-1": 5}, "not of this source"),
        ({"version": True, "resources": {}}, "not of this source"),
        ({"version": 2, "resources": {}}, "version 2; this pyspark-mtl knows version 1"),
        ({"version": 1}, "without resources"),
        ({"version": 1, "resources": {"a": {"i": "x"}}}, "ill-formed position of 'a'"),
        ({"version": 1, "resources": {"a": {"i": "x", "n": 0}}}, "ill-formed"),
        ({"version": 1, "resources": {"a": {"i": "x", "n": True}}}, "ill-formed"),
        ({"version": 1, "resources": {"a": {"i": 4, "n": 1}}}, "ill-formed"),
        ({"version": 1, "resources": {"a": {"i": "x", "n": 3, "f": 4}}}, "ill-formed"),
        ({"version": 1, "resources": {"a": 7}}, "ill-formed"),
        ({"version": 1, "resources": {"a": {"i": "x", "n": 1}}, "new": True}, "new and has resources"),
        ({"version": 1, "resources": {}, "new": False}, "new"),
    ],
)
def test_invalid_offsets_are_errors(value: object, words: str) -> None:
    with pytest.raises(OffsetError, match=words):
        parse(value)


def test_the_initial_offset_is_a_constant() -> None:
    assert json.dumps(INITIAL.json()) == '{"new": true, "resources": {}, "version": 1}'
    assert parse(INITIAL.json()) == INITIAL


def test_a_reached_offset_differs_from_the_initial_one() -> None:
    assert INITIAL.with_positions({}) == INITIAL.without(["a"]).with_positions({}) == Offset() != INITIAL
    assert parse({"resources": {}, "version": 1}) == Offset()


def test_unchanged_positions_give_the_same_offset() -> None:
    offset = Offset({"a": Position("i", 5, 1), "parked": Position("j", 9)})
    assert offset.with_positions({}) is offset
    assert offset.with_positions({"a": Position("i", 5, 1)}) is offset


def test_the_start_of_a_resource_is_in_one_offset_only() -> None:
    first = INITIAL.with_positions({"a": Position("i", 5, 1), "b": Position("k", 1, 1)})
    second = first.with_positions({"a": Position("i", 8)})
    assert second.resources == {"a": Position("i", 8), "b": Position("k", 1)}


def test_a_new_incarnation_has_its_start_in_the_offset() -> None:
    before = Offset({"a": Position("old", 50)})
    after = before.with_positions({"a": Position("new", 3, 1)})
    assert between(before, after) == [OffsetRange("a", "new", 1, 3)]


def test_a_missing_resource_keeps_its_position_and_resumes() -> None:
    start = Offset({"a": Position("i", 5), "parked": Position("j", 9)})
    without = start.with_positions({"a": Position("i", 6)})
    back = without.with_positions({"parked": Position("j", 12)})
    assert between(start, without) == [OffsetRange("a", "i", 5, 6)]
    assert between(without, back) == [OffsetRange("parked", "j", 9, 12)]


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(1, 40), max_size=3), max_size=8))
def test_consecutive_ranges_hold_every_content_once(steps: list[dict[str, int]]) -> None:
    """Offsets as in a query: a resource starts at a position that then only increases."""
    offset, read = INITIAL, {name: list[int]() for name in "abc"}
    began: dict[str, int] = {}
    for step in steps:
        changed = {}
        for name, count in step.items():
            before = offset.resources.get(name)
            if before is None:
                began[name] = count
                changed[name] = Position("i", count + count, count)
            else:
                changed[name] = Position("i", before.next + count)
        following = offset.with_positions(changed)
        for offset_range in between(offset, following):
            read[offset_range.resource] += range(offset_range.first, offset_range.until)
        assert between(following, following) == []
        offset = following
    for name, position in offset.resources.items():
        assert read[name] == list(range(began[name], position.next))


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        ({}, {"a": Position("i", 4)}, "has no `f`, where reading began"),
        ({"a": Position("i", 1)}, {"a": Position("j", 4)}, "has no `f`, where reading began"),
        ({"a": Position("i", 9)}, {"a": Position("i", 4)}, "ends before it starts in 'a': from 9 to 4"),
    ],
)
def test_an_end_that_does_not_follow_is_an_error(
    start: dict[str, Position], end: dict[str, Position], words: str
) -> None:
    with pytest.raises(OffsetError, match=words):
        between(Offset(start), Offset(end))
