from __future__ import annotations

import re
from collections.abc import Sequence

from mtl.wire.control import Description
from pyspark_mtl.options.kinds import LATEST, ReadPosition, ReadPositions
from pyspark_mtl.source.ends import Ends, ResourcePosition, ends_too_early
from tests.support.texts import in_order


def found(following: int, incarnation: str = "i") -> Description:
    return Description(resource="a", incarnation=incarnation, known_earliest=1, known_next=following, bytes=0)


def must_not_be_called(_positions: Sequence[ResourcePosition]) -> list[int]:
    raise AssertionError("the broker must not be asked")


def test_without_an_end_the_read_is_unbounded() -> None:
    ends = Ends(ReadPositions(LATEST), must_not_be_called)
    assert (ends.end_if_known("a", "i"), ends.bound(found(9))) == (None, None)


def bound(ends: Ends, description: Description) -> int | None:
    ends.look_up([description])
    return ends.bound(description)


def test_an_end_by_sequence_is_known_at_once() -> None:
    ends = Ends(ReadPositions(None, {"a": ReadPosition("sequence", 70)}), must_not_be_called)
    assert (ends.end_if_known("a", "i"), ends.bound(found(9))) == (70, 70)
    assert (
        ends.bound(Description(resource="b", incarnation="i", known_earliest=1, known_next=9, bytes=0))
        is None
    )


def test_an_end_by_time_is_located_until_a_later_content_exists() -> None:
    answers = [9, 20]
    ends = Ends(ReadPositions(ReadPosition("time", 5)), lambda places: [answers.pop(0) for _ in places])
    assert (bound(ends, found(9)), ends.end_if_known("a", "i")) == (9, None)
    assert (bound(ends, found(30)), ends.end_if_known("a", "i")) == (20, 20)
    assert bound(ends, found(40)) == 20
    assert not answers


def test_an_end_by_time_is_located_per_incarnation() -> None:
    located = {"i": 20, "j": 3}
    ends = Ends(
        ReadPositions(ReadPosition("time", 5)), lambda places: [located[at.incarnation] for at, _ in places]
    )
    assert (bound(ends, found(30)), bound(ends, found(30, "j"))) == (20, 3)


def test_an_end_before_the_start_is_an_error_with_both() -> None:
    assert re.search(in_order("'a'", "ends", 5, "starts", 9), str(ends_too_early("a", 9, 5)))
