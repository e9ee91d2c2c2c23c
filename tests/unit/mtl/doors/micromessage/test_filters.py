from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.doors.limits import MM2_TERMS
from mtl.doors.micromessage.filters import OPERATORS, Filter, Term, decode_filter, kind
from mtl.doors.micromessage.values import FilterValue
from mtl.errors import Malformed
from tests.fuzzing.micromessage import read_filter, write_filter
from tests.unit.mtl.doors.micromessage.test_values import FIELDS, VALUES

NOON = datetime(2014, 10, 13, 11, tzinfo=UTC)


@st.composite
def terms(draw: st.DrawFn) -> Term:
    value = draw(VALUES)
    return Term(draw(FIELDS), draw(st.sampled_from(sorted(OPERATORS[kind(value)]))), value)


@pytest.mark.requirement("MM2-56")
@given(st.lists(terms(), max_size=5))
def test_an_encoded_filter_is_decoded(filter_terms: list[Term]) -> None:
    assert read_filter(write_filter(Filter(tuple(filter_terms)))) == Filter(tuple(filter_terms))


@pytest.mark.requirement("MM2-57", "MM2-58", "MM2-59", "MM2-60")
@pytest.mark.parametrize(
    ("term", "matching", "other"),
    [
        ("k=N1", [1, 1.0], [2, "1", NOON]),
        ("k!=N1", [2, -1], [1, "2"]),
        ("k<N10", [9, 9.5, -(1 << 63)], [10, 11]),
        ("k<=N10", [10], [11]),
        ("k>N9223372036854775806", [(1 << 63) - 1], [(1 << 63) - 2]),
        ("k>=N10", [10], [9.99]),
        ("k=D1413198000.0", [NOON], [NOON + timedelta(seconds=1), 1413198000]),
        ("k>D1413198000.0", [NOON + timedelta(microseconds=1)], [NOON]),
        ("k<D1413198000.5", [NOON], [NOON + timedelta(seconds=1)]),
        ("k!=D1413198000.0", [NOON + timedelta(1)], [NOON]),
        ("k=Tnew", ["new"], ["New", "news"]),
        ("k!=Tnew", ["New", ""], ["new"]),
        ("k<Tne", ["new", "ne"], ["one", "New"]),
        ("k>Tew", ["new"], ["news"]),
        ("k&Te", ["new"], ["NEW"]),
        ("k~Te", ["NEW"], ["new"]),
        ("k=T%C3%A9%3B", ["é;"], ["é"]),
        ("k = Tnew", ["new"], [" new"]),
    ],
)
def test_matches_of_each_operator(term: str, matching: list[FilterValue], other: list[FilterValue]) -> None:
    found = decode_filter(term)
    for value in matching:
        assert found.matches({"k": value}), value
    for value in other:
        assert not found.matches({"k": value}), value
    assert not found.matches({"other": matching[0]})


@pytest.mark.requirement("MM2-56")
def test_all_terms_must_match_and_an_empty_filter_matches() -> None:
    found = decode_filter("a>N1;b=Tx;")
    assert found.matches({"a": 2, "b": "x", "c": 0})
    assert not found.matches({"a": 2, "b": "y"})
    assert not found.matches({"b": "x"})
    assert decode_filter("").matches({})


@pytest.mark.requirement("MM2-59")
@pytest.mark.parametrize(
    "text",
    ["k", "=N1", "k<=Tx", "k>=Tx", "k&N1", "k~D1.0", "k=T%ff", ";k=N1", ";".join(["k=N1"] * (MM2_TERMS + 1))],
)
def test_text_that_is_not_a_filter_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        decode_filter(text)


@given(st.text(st.sampled_from("kaNDT01.%<>=!~&; é"), max_size=20))
def test_any_text_is_a_filter_or_malformed(text: str) -> None:
    try:
        found = decode_filter(text)
    except Malformed:
        return
    assert read_filter(write_filter(found)) == found


@pytest.mark.requirement("MM2-59")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("k<=Tx", "'k<=Tx': texts cannot be compared with <="),
        ("k~D1.0", "'k~D1.0': dates cannot be compared with ~"),
        ("k&N1", "'k&N1': numbers cannot be compared with &"),
    ],
)
def test_the_refusal_of_an_operator_names_the_type_of_the_value(text: str, words: str) -> None:
    with pytest.raises(Malformed, match=f"^{words}$"):
        decode_filter(text)
