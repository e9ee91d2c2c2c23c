from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.errors import FieldError
from mtl.wire.fields import decode_table, encode_table
from pyspark_mtl.rows.properties import MAP, to_maps, to_tables

NAMES = st.text(
    st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20
).filter(lambda name: not name.startswith("mtl-"))  # fmt: skip
VALUES = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
MAPS = st.lists(st.none() | st.dictionaries(NAMES, VALUES, max_size=4), max_size=12)


def column(maps: list[dict[str, str | None] | None]) -> pa.MapArray:
    return pa.array([None if entries is None else list(entries.items()) for entries in maps], MAP)


@given(MAPS, st.data())
def test_maps_become_tables_and_maps_again(
    maps: list[dict[str, str | None] | None], data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(maps)))
    tables = to_tables(len(maps) - first, column(maps).slice(first), None)
    assert [dict(entries) for entries in to_maps(tables).to_pylist()] == [
        entries or {} for entries in maps[first:]
    ]


@given(MAPS)
def test_tables_are_decoded_by_the_wire_codec(maps: list[dict[str, str | None] | None]) -> None:
    tables = to_tables(len(maps), column(maps), None).to_pylist()
    assert [None if table is None else decode_table(table) for table in tables] == [
        entries or None for entries in maps
    ]


def test_without_a_column_there_are_no_properties() -> None:
    assert to_tables(3, None, None).to_pylist() == [None, None, None]


def test_a_timestamp_has_microseconds() -> None:
    times = pa.array([0, None, 1_700_000_000_123_456], pa.timestamp("us", "UTC"))
    tables = to_tables(3, None, times).to_pylist()
    assert tables[1] is None
    assert decode_table(tables[0]) == {"timestamp": "1970-01-01T00:00:00.000000Z"}
    assert decode_table(tables[2]) == {"timestamp": "2023-11-14T22:13:20.123456Z"}


def test_a_timestamp_replaces_an_older_one() -> None:
    maps = column([{"timestamp": "old", "a": "1"}, {"timestamp": "old"}])
    times = pa.array([1_000_000, 2_000_000], pa.timestamp("us", "Etc/UTC"))
    assert [dict(entries) for entries in to_maps(to_tables(2, maps, times)).to_pylist()] == [
        {"a": "1", "timestamp": "1970-01-01T00:00:01.000000Z"},
        {"timestamp": "1970-01-01T00:00:02.000000Z"},
    ]


def test_a_timestamp_without_a_plain_year_is_an_error() -> None:
    times = pa.array([253_402_300_800_000_000], pa.timestamp("us", "UTC"))
    with pytest.raises(FieldError, match="outside the years 0 to 9999"):
        to_tables(1, None, times)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mtl-count", "are the broker's"),
        ("x" * 129, "longer than 128 octets"),
        ("a\nb", "control characters"),
    ],
)
def test_an_invalid_property_name_is_an_error(name: str, words: str) -> None:
    with pytest.raises(FieldError, match=words):
        to_tables(1, column([{name: "1"}]), None)


def test_properties_as_large_as_a_body_are_an_error() -> None:
    maps = column([{f"name-{at}": "x" * 1000 for at in range(70)}])
    with pytest.raises(FieldError, match="put large values into the body"):
        to_tables(1, maps, None)


def test_a_typed_value_is_converted_to_text() -> None:
    table = encode_table({"none": None, "octets": b"\x00\xff", "list": [1, "a", True]})
    maps = to_maps(pa.array([table], pa.binary()))
    assert maps.to_pylist() == [[("none", None), ("octets", "AP8="), ("list", '[1,"a",true]')]]
