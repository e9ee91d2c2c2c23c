"""Patterns sent by peers: matches, and the bound on their cost."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.broker.access.patterns import beginnings, is_pattern, matching, names_at_once
from mtl.broker.limits import MAX_PATTERN_COST
from mtl.errors import Refused
from mtl.wire.limits import MAX_PATTERN

LONG_NAMES = [("ab" * 127) + chr(65 + n % 26) for n in range(100)]


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("", []),
        ("orders", ["orders"]),
        ("order", []),
        (".*", ["orders", "orders-2024", "Überweisung", "a.b"]),
        ("orders.*", ["orders", "orders-2024"]),
        (r"orders-\d{4}", ["orders-2024"]),
        ("orders|a.b", ["orders", "a.b"]),
        (r"a\.b|x", ["a.b"]),
        ("(?i)ÜBER.*", ["Überweisung"]),
        ("[^o].*", ["Überweisung", "a.b"]),
        (re.escape("orders-2024"), ["orders-2024"]),
    ],
)
def test_the_whole_name_is_matched(pattern: str, matched: list[str]) -> None:
    names = ["orders", "orders-2024", "Überweisung", "a.b"]
    found = [n for n, yes in zip(names, matching(pattern, names), strict=True) if yes]
    assert found == matched


@pytest.mark.parametrize(
    "pattern", ["(", "a)|(?:b", "[", "*", r"(a)\1", "(?=a)", "(?<!a)b", "a{2000}", r"\8", r"\Qa", r"a|\Q"]
)
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(Refused) as refused:
        matching(pattern, ["a"])
    assert (refused.value.status, refused.value.reason) == (400, "bad-arguments")


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|aa)*c",
        "(.*)*c",
        "(a|b|ab)*" * 100,
        ".*a" * 300,
        r"(?:\pL*a)" * 100,
        "(?:" + "(?:a|b|ab)?" * 80 + "){0,100}x",
        "(?:a?b?){0,100}" * 50,
        ".{0,999}" * 100,
        "(?:(a?){100}){100}",
    ],
)
def test_every_pattern_is_matched_or_refused_within_a_second(pattern: str) -> None:
    """`re` would take years for the first; RE2 took half a minute for those with large counts, which are refused."""
    began = time.process_time()
    try:
        matching(pattern[:MAX_PATTERN], LONG_NAMES)
    except Refused:
        pass
    assert time.process_time() - began < 1


def test_the_bound_of_a_pattern_counts_expanded_repetitions() -> None:
    for pattern in ("a{255}", r"\d{4}-\d{2}-\d{2}", r"(\d{1,3}\.){3}\d{1,3}", "(?:a{10}){10}"):
        matching(pattern, ["a"])
    for pattern in ("a{100}a{100}", "(?:(?:a{20}){20}){20}"):
        with pytest.raises(Refused, match="too large"):
            matching(pattern, ["a"])
    with pytest.raises(Refused, match="too large"):
        matching("ab{" + str(MAX_PATTERN_COST) + ",}", ["a"])


@given(st.text(max_size=40), st.lists(st.text(max_size=10), max_size=5))
def test_any_text_as_pattern_is_matched_or_refused(pattern: str, names: list[str]) -> None:
    try:
        matched = matching(pattern, names)
    except Refused:
        return
    assert len(matched) == len(names)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10), max_size=5))
def test_an_escaped_name_matches_only_itself(names: list[str]) -> None:
    """The connector makes such patterns from a list of names."""
    for name in names:
        assert matching(re.escape(name), names) == [other == name for other in names]


@pytest.mark.parametrize(("length", "names"), [(0, 10_000), (19, 10_000), (20, 9_803), (1_000, 196)])
def test_the_longer_a_pattern_the_fewer_names_are_matched_at_a_time(length: int, names: int) -> None:
    assert names_at_once("a" * length) == names


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("etl", ("etl",)),
        (r"etl\..*", ("etl.",)),
        (r"etl\.(a|b)", ("etl.",)),
        ("a1|b.*|", ("a1", "b", "")),
        ("ab*", ("a",)),
        ("ab{0,1}c", ("a",)),
        (r"[|(]x", ("",)),
        ("x[|(]|y", ("x", "y")),
        (r"a\d", ("a",)),
        ("a(?i)|b", ("",)),
        (r"a\Q|b", ("",)),
        (".*", ("",)),
        ("", ("",)),
    ],
)
def test_the_texts_with_which_the_names_begin_that_a_pattern_matches(
    pattern: str, texts: tuple[str, ...]
) -> None:
    assert beginnings(pattern) == texts


@given(
    st.text(r"ab.\|()[]{}*+?^$0,:ixQE-", max_size=12).filter(is_pattern),
    st.lists(st.text("abAB.|()[]{}*+?^$0,:-", max_size=6), max_size=20),
)
def test_every_name_that_a_pattern_matches_begins_with_one_of_its_texts(
    pattern: str, names: list[str]
) -> None:
    for name, matched in zip(names, matching(pattern, names), strict=True):
        assert not matched or name.startswith(beginnings(pattern)), (pattern, name)
