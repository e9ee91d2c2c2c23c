from __future__ import annotations

import math
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.errors import FieldError, Malformed
from mtl.limits import MAX_TABLE
from mtl.wire.fields import (
    EMPTY,
    KNOWN_TABLE,
    LateTime,
    Value,
    cached_table,
    decode_table,
    encode_properties,
    encode_short,
    encode_table,
    is_printable,
    join_tables,
    read_short,
)
from mtl.wire.limits import MAX_FIELD_NAME, MAX_TABLE_DEPTH, RESERVED_FIELDS

# --- values of a table --------------------------------------------------------------------------------------

TEXT = st.text(st.characters(codec="utf-8"))
SHORT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=60)
NAMES = SHORT.filter(lambda name: len(name.encode()) <= MAX_FIELD_NAME)
TIMES = st.integers(0, 253_402_300_799).map(lambda s: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=s))
DECIMALS = st.builds(
    lambda n, scale: Decimal(n).scaleb(-scale), st.integers(0, (1 << 32) - 1), st.integers(0, 255)
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | TEXT
    | st.binary()
    | TIMES
    | DECIMALS
)
VALUES: st.SearchStrategy[Value] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
TABLES = st.dictionaries(NAMES, VALUES, max_size=6)


def nested(depth: int) -> dict[str, Any]:
    """A table of `depth` tables, the outermost counted."""
    table: dict[str, Any] = {}
    for _ in range(depth - 1):
        table = {"n": table}
    return table


def entry(tag: str, value: str) -> bytes:
    """The table with one entry "k", of a tag and the hex of its value."""
    raw = b"\x01k" + tag.encode() + bytes.fromhex(value)
    return len(raw).to_bytes(4, "big") + raw


# --- short strings ------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-105")
@given(SHORT)
def test_an_encoded_short_string_is_decoded(text: str) -> None:
    raw = encode_short(text)
    assert read_short(b"??" + raw + b"!", 2) == (text, 2 + len(raw))


@pytest.mark.requirement("MTL-105")
def test_a_short_string_is_counted_in_octets() -> None:
    assert encode_short("é" * 127)[0] == 254
    with pytest.raises(FieldError, match="256 octets"):
        encode_short("é" * 128)


@pytest.mark.requirement("MTL-105")
@pytest.mark.parametrize("text", ["\0", "a\nb", "\x7f", "\x85", "\x9f"])
def test_control_characters_are_not_printable(text: str) -> None:
    assert not is_printable(text)
    with pytest.raises(FieldError, match="control"):
        encode_short(text)
    raw = text.encode()
    with pytest.raises(Malformed, match="control"):
        read_short(bytes((len(raw),)) + raw, 0)


@pytest.mark.parametrize("text", ["", " ", "\u00a0", "\u2028", "\ue000", "zürich", "東京", "🛫"])
def test_other_characters_are_printable(text: str) -> None:
    assert is_printable(text)


@pytest.mark.parametrize("raw", [b"", b"\x01", b"\x03ab", b"\x01\xff", b"\x01\xc3", b"\x03\xed\xa0\x80"])
def test_a_truncated_or_non_utf8_short_string_is_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        read_short(raw, 0)


# --- tables -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-109")
@given(TABLES)
def test_an_encoded_table_is_decoded(table: dict[str, Value]) -> None:
    back = decode_table(encode_table(table))
    assert back == table
    assert list(back) == list(table)
    assert encode_table(back) == encode_table(table)


@pytest.mark.requirement("MTL-109")
@pytest.mark.parametrize(
    ("value", "tag", "octets"),
    [
        (True, "t", "01"),
        (False, "t", "00"),
        (-2, "l", "fffffffffffffffe"),
        (1.5, "d", "3ff8000000000000"),
        ("é", "S", "00000002c3a9"),
        (b"\0\xff", "x", "0000000200ff"),
        (datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC), "T", "000000003b9aca00"),
        (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), "T", "0000003afff4417f"),
        (LateTime(253_402_300_800), "T", "0000003afff44180"),
        (LateTime(2**64 - 1), "T", "ffffffffffffffff"),
        (Decimal("1.50"), "D", "0200000096"),
        ([1, None], "A", "0000000a6c000000000000000156"),
        ({"a": True}, "F", "0000000401617401"),
        ({}, "F", "00000000"),
        (None, "V", ""),
    ],
)
def test_python_values_have_these_tags(value: Value, tag: str, octets: str) -> None:
    assert encode_table({"k": value}) == entry(tag, octets)
    assert decode_table(entry(tag, octets)) == {"k": value}


@pytest.mark.requirement("MTL-107", "MTL-109")
@pytest.mark.parametrize(
    ("tag", "octets", "value"),
    [
        ("t", "02", True),
        ("b", "ff", -1),
        ("B", "ff", 255),
        ("s", "fffe", -2),
        ("u", "fffe", 65534),
        ("I", "ffffffff", -1),
        ("i", "ffffffff", (1 << 32) - 1),
        ("L", "8000000000000000", -(1 << 63)),
        ("f", "3fc00000", 1.5),
    ],
)
def test_tags_that_are_only_decoded(tag: str, octets: str, value: Value) -> None:
    assert decode_table(entry(tag, octets)) == {"k": value}


def test_nan_is_encoded_and_decoded() -> None:
    value = decode_table(encode_table({"k": math.nan}))["k"]
    assert isinstance(value, float)
    assert math.isnan(value)


def test_the_empty_table() -> None:
    assert encode_table({}) == EMPTY == bytes(4)
    assert decode_table(EMPTY) == {}


def test_any_buffer_is_decoded() -> None:
    raw = encode_table({"k": 1})
    assert decode_table(bytearray(raw)) == decode_table(memoryview(raw)) == {"k": 1}


def test_subclasses_and_similar_types_are_encoded_as_their_base_types() -> None:
    class Level(IntEnum):
        HIGH = 3

    table = {"i": Level.HIGH, "t": (1, "a"), "x": bytearray(b"ab"), "v": memoryview(b"cd")}
    assert decode_table(encode_table(table)) == {"i": 3, "t": [1, "a"], "x": b"ab", "v": b"cd"}  # type: ignore[arg-type]


def test_times_lose_fractions_of_seconds_and_zone() -> None:
    berlin = datetime(2020, 1, 1, 12, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=1)))
    assert decode_table(encode_table({"k": berlin})) == {"k": datetime(2020, 1, 1, 11, tzinfo=UTC)}


def test_decimals_with_a_positive_exponent_are_written_out() -> None:
    assert encode_table({"k": Decimal("12e3")}) == entry("D", "0000002ee0")


# --- values without field type ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        1 << 63,
        -(1 << 63) - 1,
        object(),
        {1, 2},
        1j,
        "\ud800",
        datetime(2020, 1, 1),  # noqa: DTZ001 that it has no zone is the point
        datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("Infinity"),
        Decimal(-1),
        Decimal(1 << 32),
        Decimal("1e-256"),
        Decimal("1e999999999"),
        [object()],
        {"a": object()},
        {1: "name"},
        {"a\0": 1},
        {"n" * (MAX_FIELD_NAME + 1): 1},
    ],
)
def test_a_value_without_field_type_is_a_field_error(value: Any) -> None:
    with pytest.raises(FieldError):
        encode_table({"k": value})


def test_a_table_above_the_limit_is_refused_at_both_ends() -> None:
    with pytest.raises(FieldError, match="octets"):
        encode_table({"k": bytes(MAX_TABLE)})
    size = MAX_TABLE + RESERVED_FIELDS - 11  # of the value, so that the table has exactly the most octets
    largest, larger = (entry("x", n.to_bytes(4, "big").hex() + "00" * n) for n in (size, size + 1))
    assert decode_table(largest) == {"k": bytes(size)}
    with pytest.raises(Malformed, match=f"a field table of {len(larger)} octets"):
        decode_table(larger)


def test_nesting_has_a_limit_at_both_ends() -> None:
    assert decode_table(encode_table(nested(MAX_TABLE_DEPTH))) == nested(MAX_TABLE_DEPTH)
    with pytest.raises(FieldError, match="deep"):
        encode_table(nested(MAX_TABLE_DEPTH + 1))
    raw = b""
    for _ in range(MAX_TABLE_DEPTH + 1):
        raw = entry("F", raw.hex() or EMPTY.hex())
    with pytest.raises(Malformed, match="deeper"):
        decode_table(raw)
    raw = EMPTY
    for _ in range(5_000):
        raw = (len(raw) + 1).to_bytes(4, "big") + b"A" + raw
    with pytest.raises(Malformed, match="deeper"):
        decode_table(entry("A", raw.hex()))


def test_a_recursive_table_is_a_field_error() -> None:
    table: dict[str, Any] = {}
    table["k"] = [table]
    with pytest.raises(FieldError, match="deep"):
        encode_table(table)


# --- malformed tables ---------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-111")
@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "cut off"),
        (b"\0\0\0", "cut off"),
        (b"\0\0\0\x01", "end"),
        (EMPTY + b"\0", "after"),
        (b"\0\0\0\x02\x01k", "cut off"),
        (entry("z", "00"), "unknown"),
        (entry("l", "00"), "cut off"),
        (entry("S", "00000002ff"), "end"),
        (entry("S", "00000001ff"), "impossible"),
        (entry("x", "ffffffff"), "end"),
        (entry("A", "0000000174"), "cut off|over"),
        (entry("F", "00000001"), "end"),
        (bytes.fromhex("00000006 01 6b 56 01 6b 56"), "twice"),
        (bytes.fromhex("00000003 01 0a 56"), "control"),
        (b"\0\0\0\x83\x81" + b"n" * 129 + b"V", "129 octets"),
        # The inner table's only entry runs over the inner end, into octets that the outer one has.
        (bytes.fromhex("0000000c 01 61 46 00000003 01 62 74 01 56"), "over|end"),
    ],
)
def test_octets_that_are_not_a_table_are_malformed(raw: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        decode_table(raw)


@given(st.binary(max_size=80))
def test_any_octets_are_a_table_or_malformed(raw: bytes) -> None:
    try:
        table = decode_table(raw)
    except Malformed:
        return
    assert isinstance(table, dict)


@given(TABLES, st.data())
def test_a_damaged_table_is_a_table_or_malformed(table: dict[str, Value], data: st.DataObject) -> None:
    raw = bytearray(encode_table(table))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(Malformed):
        decode_table(raw)


@given(TABLES, st.data())
def test_a_table_truncated_at_any_octet_is_malformed(table: dict[str, Value], data: st.DataObject) -> None:
    raw = encode_table(table)
    with pytest.raises(Malformed):
        decode_table(raw[: data.draw(st.integers(0, len(raw) - 1))])


# --- properties ---------------------------------------------------------------------------------------------


def test_reserved_names_in_properties_are_refused() -> None:
    assert encode_properties(None) == encode_properties({}) == EMPTY
    assert encode_properties({"mtl": 1}) == encode_table({"mtl": 1})
    with pytest.raises(FieldError, match="mtl-count"):
        encode_properties({"a": 1, "mtl-count": 3})


@given(TABLES, TABLES)
def test_joined_tables_have_the_entries_of_both(table: dict[str, Value], other: dict[str, Value]) -> None:
    other = {name: value for name, value in other.items() if name not in table}
    assert join_tables(encode_table(table), encode_table(other)) == encode_table({**table, **other})


def test_a_known_small_table_is_decoded_once() -> None:
    small, large = (encode_table({"k": "x" * length}) for length in (10, KNOWN_TABLE))
    assert cached_table(small) is cached_table(bytes(bytearray(small)))
    assert cached_table(large) == decode_table(large)
    assert cached_table(large) is not cached_table(large)
    with pytest.raises(Malformed):
        cached_table(small[:-1])
