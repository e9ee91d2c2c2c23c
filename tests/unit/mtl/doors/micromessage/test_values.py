from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.doors.micromessage.values import (
    FilterValue,
    decode_arguments,
    decode_properties,
    decode_value,
    encode_arguments,
    encode_properties,
    encode_value,
    is_field,
    read_field,
)
from mtl.errors import FieldError, Malformed

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FIELDS = st.text("abcz019-", min_size=1, max_size=8)
VALUES = (
    st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.datetimes(timezones=st.just(UTC))
    | TEXT
)


@pytest.mark.requirement("MM2-57", "MM2-58")
@given(VALUES)
def test_an_encoded_value_is_decoded_with_its_type(value: FilterValue) -> None:
    again = decode_value(encode_value(value))
    assert (again, type(again)) == (value, type(value))


@pytest.mark.requirement("MM2-57")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "N1"),
        (-1.5, "N-1.5"),
        (datetime(2014, 10, 13, 12, tzinfo=timezone(timedelta(hours=1))), "D1413198000.0"),
        (datetime(1969, 12, 31, 23, 59, 59, 750_000, tzinfo=UTC), "D-0.25"),
        ('Hello "world"', "THello%20%22world%22"),
        ("é", "T%C3%A9"),
        ("", "T"),
    ],
)
def test_the_values_of_the_document(value: FilterValue, text: str) -> None:
    assert encode_value(value) == text
    assert decode_value(text) == value


@pytest.mark.requirement("MM2-57")
@pytest.mark.parametrize(
    ("text", "value"), [("jonas", "jonas"), ("Nora", "Nora"), ("Dx", "Dx"), ("", ""), ("N1e3", 1000.0)]
)
def test_a_value_without_prefix_is_text(text: str, value: FilterValue) -> None:
    assert decode_value(text) == value


@pytest.mark.requirement("MM2-57")
@pytest.mark.parametrize(
    "text",
    ["N9223372036854775808", "N-9223372036854775809", "N1e999", "D999999999999.0", "T%ff", "%ff"],
)
def test_an_invalid_value_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        decode_value(text)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1 << 63, -(1 << 63) - 1, "\ud800"])
def test_a_value_without_text_form_is_a_field_error(value: FilterValue) -> None:
    with pytest.raises(FieldError):
        encode_value(value)


@pytest.mark.requirement("MM2-39")
@given(st.dictionaries(FIELDS, VALUES, max_size=5))
def test_encoded_properties_are_decoded(properties: dict[str, FilterValue]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


@pytest.mark.requirement("MM2-39")
def test_the_properties_of_the_document() -> None:
    assert decode_properties("first_name:jonas;twitter:jgauffin;") == {
        "first_name": "jonas",
        "twitter": "jgauffin",
    }
    assert encode_properties({"first-name": "jonas", "n": 1}) == "first-name:Tjonas;n:N1;"


@pytest.mark.requirement("MM2-43", "MM2-44")
@given(st.dictionaries(FIELDS, TEXT, max_size=5))
def test_encoded_arguments_are_decoded(arguments: dict[str, str]) -> None:
    assert decode_arguments(encode_arguments(arguments)) == arguments


@pytest.mark.parametrize("text", ["a:1;a:2", "a", "a b:1", ":1", "a:1;;b:2", "é:1"])
def test_text_that_is_not_a_list_of_pairs_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        decode_properties(text)


@pytest.mark.requirement("MM2-62")
@pytest.mark.parametrize("name", ["Upper", "under_score"])
def test_names_are_encoded_strictly_and_decoded_leniently(name: str) -> None:
    assert not is_field(name)
    assert is_field("lower-case-09")
    assert read_field(name) == name
    with pytest.raises(FieldError, match="not a FIELD"):
        encode_properties({name: 1})


@given(st.text(max_size=30))
def test_any_text_is_properties_or_malformed(text: str) -> None:
    try:
        properties = decode_properties(text)
    except Malformed:
        return
    assert all(isinstance(name, str) for name in properties)


@pytest.mark.parametrize(("text", "words"), [(":1", "'' is not a name"), ("a", "'a' is not key:value")])
def test_the_refusal_of_a_pair_says_whether_its_name_or_its_value_is_missing(text: str, words: str) -> None:
    with pytest.raises(Malformed, match=words):
        decode_properties(text)
