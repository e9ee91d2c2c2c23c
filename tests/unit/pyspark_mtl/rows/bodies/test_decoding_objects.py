from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_mtl.rows.bodies.decoding import from_json, from_msgpack
from pyspark_mtl.rows.bodies.encoding import encode
from tests.support.typed import batches, element

SCHEMA = pa.schema([
    ("n", pa.int32()),
    ("f", pa.float32()),
    ("s", pa.string()),
    ("t", pa.timestamp("us", "UTC")),
    ("w", pa.timestamp("us")),
    ("y", pa.date32()),
    ("b", pa.binary()),
    ("d", pa.decimal128(4, 2)),
    ("l", element(pa.float64())),
    ("r", pa.struct([("x", pa.int8())])),
    ("m", pa.map_(pa.string(), pa.int8())),
])  # fmt: skip
JSON = from_json(SCHEMA)
MSGPACK = from_msgpack(SCHEMA)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
GOOD = (
    b'{"n": 1, "s": "one", "t": "2026-01-31T12:00:00Z", "b": "AP8=", "l": [1, null], "r": {"x": 2}, "z": {}}'
)
NOTHING = dict.fromkeys(SCHEMA.names)


def binary(*bodies: bytes) -> Any:
    return pa.array(bodies, pa.binary())


def row(body: bytes) -> dict[str, Any] | None:
    """The row of a JSON body; None if it is bad."""
    found = JSON(binary(body))
    assert found.rows.num_rows == 1
    (values,) = found.rows.to_pylist()
    if found.bad:
        assert values == NOTHING
        return None
    return {name: value for name, value in values.items() if value is not None}


# --- both ---------------------------------------------------------------------------------------------------


@given(batches())
@pytest.mark.parametrize(("name", "decoder"), [("json", from_json), ("msgpack", from_msgpack)])
def test_encoded_rows_are_decoded(name: str, decoder: Any, rows: Any) -> None:
    found = decoder(rows.schema)(encode(name, rows))
    found.rows.validate(full=True)
    assert found.bad == {}
    assert found.rows.equals(rows)


@pytest.mark.parametrize("decode", [JSON, MSGPACK])
def test_no_bodies_give_no_rows(decode: Any) -> None:
    assert decode(binary()).rows.num_rows == 0


# --- JSON ---------------------------------------------------------------------------------------------------


def test_a_slice_of_bodies_is_decoded() -> None:
    found = JSON(binary(b"bad", GOOD, b'{"n": 2}', b"bad").slice(1, 2))
    assert (found.bad, found.rows.column("n").to_pylist()) == ({}, [1, 2])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{}", {}),
        (b' {"n": 1} ', {"n": 1}),
        (b'\n\t{"n":1}\r\n', {"n": 1}),
        (b'{"n": 1, "n": 2}', {"n": 2}),  # the last one counts
        (b'{"n": null, "more": [{}, "]}"]}', {}),
        (b'{"n": -2147483648}', {"n": -2147483648}),
        (b'{"f": 1}', {"f": 1.0}),
        (b'{"s": "NaN, Infinity"}', {"s": "NaN, Infinity"}),
        (b'{"s": "\\u00e4\\n"}', {"s": "ä\n"}),
        (b'{"t": "2026-01-31T13:00:00+01:00"}', {"t": NOON}),
        (b'{"t": "2026-01-31T12:00:00"}', {"t": NOON}),
        (b'{"w": "2026-01-31T12:00:00"}', {"w": NOON.replace(tzinfo=None)}),
        (b'{"y": "2026-01-31"}', {"y": date(2026, 1, 31)}),
        (b'{"b": "AP8="}', {"b": b"\x00\xff"}),
        (b'{"d": 1.5}', {"d": Decimal("1.50")}),
        (b'{"d": "1.5"}', {"d": Decimal("1.50")}),
        (b'{"r": {"x": 2, "y": 3}}', {"r": {"x": 2}}),
        (b'{"m": {"k": 1, "z": null}}', {"m": [("k", 1), ("z", None)]}),
    ],
)
def test_bodies_are_decoded_to_rows(body: bytes, expected: dict[str, Any]) -> None:
    assert row(body) == expected


BAD = [
    b"",
    b" ",
    b"null",
    b"[]",
    b'{"n": 1}{"n": 2}',
    b'{"n": 1}\n{"n": 2}',
    b'{"n": 1}, "x": {}',
    b'{"n": 1}, {"n": 2}',
    b'{"n": 1, "x": [',
    b"]}",
    b'{"n": 1}\x00',
    b'{"n": 1.0}',
    b'{"n": 1.5}',
    b'{"n": "1"}',
    b'{"n": 2147483648}',
    b'{"n": true}',
    b'{"f": NaN}',
    b'{"f": -Infinity}',
    b'{"z": Infinity}',
    b'{"z":NaN\n,"f":1}',
    b'{"f": 1e999}',
    b'{"s": "\\ud800"}',
    b'{"s": "\xff"}',
    b'{"s": 5}',
    b'{"t": "2026-01-31"}',
    b'{"t": 5}',
    b'{"w": "2026-01-31T12:00:00Z"}',
    b'{"y": "31.01.2026"}',
    b'{"b": "?"}',
    b'{"d": 1.555}',
    b'{"d": 100}',
    b'{"l": {}}',
    b'{"r": []}',
    b'{"r": {"x": 200}}',
    b'{"m": {"k": "1"}}',
]


@pytest.mark.parametrize("body", BAD)
def test_a_bad_body_is_a_row_of_nulls(body: bytes) -> None:
    assert row(body) is None


@given(st.lists(st.sampled_from([GOOD, b"{}", *BAD]) | st.binary(max_size=9), min_size=1, max_size=6))
def test_a_body_is_decoded_independently_of_adjacent_ones(bodies: list[bytes]) -> None:
    found = JSON(binary(*bodies))
    assert found.rows.num_rows == len(bodies)
    for index, body in enumerate(bodies):
        alone = JSON(binary(body))
        assert found.bad.get(index) == alone.bad.get(0), body
        assert found.rows.slice(index, 1).equals(alone.rows), body


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("nfstblrx"), inner, max_size=4)
    ),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(st.sampled_from("nfstblrz"), ANY), min_size=1, max_size=3))
def test_any_object_gives_a_row_or_a_reason(objects: list[Any]) -> None:
    found = JSON(binary(*(json.dumps(value).encode() for value in objects)))
    found.rows.validate(full=True)
    assert found.rows.num_rows == len(objects)
    assert all(why for why in found.bad.values())
    for index, value in enumerate(objects):
        if type(value.get("n")) in {str, list, dict, bool}:
            assert index in found.bad


@given(st.binary())
def test_binary_is_base64(octets: bytes) -> None:
    assert row(json.dumps({"b": base64.b64encode(octets).decode()}).encode()) == {"b": octets}


# --- MessagePack --------------------------------------------------------------------------------------------


def test_a_bad_map_gives_a_row_of_nulls_only_for_its_body() -> None:
    good = msgspec.msgpack.encode({"n": 1, "more": "!"})
    bodies = [good, b"", b"\xc1", good[:-1], good + b"\x00", msgspec.msgpack.encode({"n": "1"}), good]
    found = MSGPACK(binary(*bodies))
    assert sorted(found.bad) == [1, 2, 3, 4, 5]
    assert found.rows.column("n").to_pylist() == [1, *[None] * 5, 1]


def test_native_types_of_messagepack_are_decoded() -> None:
    """MessagePack has octets and times; NaN is a number."""
    body = msgspec.msgpack.encode({"b": b"\x00\xff", "t": NOON, "f": float("inf")})
    (found,) = MSGPACK(binary(body)).rows.to_pylist()
    assert (found["b"], found["t"], found["f"]) == (b"\x00\xff", NOON, float("inf"))
