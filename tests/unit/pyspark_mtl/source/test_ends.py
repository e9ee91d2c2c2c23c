from __future__ import annotations

from mtl.wire.control import Description
from pyspark_mtl.options.kinds import LATEST, ReadPlace, ReadPlaces
from pyspark_mtl.source.ends import Ends, ends_too_early


def found(following: int, incarnation: str = "i") -> Description:
    return Description(resource="a", incarnation=incarnation, known_earliest=1, known_next=following, bytes=0)


def must_not_be_called(_found: Description, _place: ReadPlace) -> int:
    raise AssertionError("the broker must not be asked")


def test_without_an_end_the_read_is_unbounded() -> None:
    ends = Ends(ReadPlaces(LATEST), must_not_be_called)
    assert (ends.known_end("a", "i"), ends.bound(found(9))) == (None, None)


def test_an_end_by_sequence_is_known_at_once() -> None:
    ends = Ends(ReadPlaces(None, {"a": ReadPlace("sequence", 70)}), must_not_be_called)
    assert (ends.known_end("a", "i"), ends.bound(found(9))) == (70, 70)
    assert (
        ends.bound(Description(resource="b", incarnation="i", known_earliest=1, known_next=9, bytes=0))
        is None
    )


def test_an_end_by_time_is_located_until_a_later_content_exists() -> None:
    answers = [9, 20]
    ends = Ends(ReadPlaces(ReadPlace("time", 5)), lambda _found, _place: answers.pop(0))
    assert (ends.bound(found(9)), ends.known_end("a", "i")) == (9, None)
    assert (ends.bound(found(30)), ends.known_end("a", "i")) == (20, 20)
    assert ends.bound(found(40)) == 20
    assert not answers


def test_an_end_by_time_is_located_per_incarnation() -> None:
    ends = Ends(ReadPlaces(ReadPlace("time", 5)), lambda found, _place: {"i": 20, "j": 3}[found.incarnation])
    assert (ends.bound(found(30)), ends.bound(found(30, "j"))) == (20, 3)


def test_an_end_before_the_start_is_an_error_with_both() -> None:
    assert "the read of 'a' ends (5) before it starts (9)" in str(ends_too_early("a", 9, 5))
