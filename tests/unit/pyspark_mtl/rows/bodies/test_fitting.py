from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_mtl.rows.bodies.decoding import decoder
from pyspark_mtl.rows.bodies.fitting import fit_of_row

PRICE = pa.schema([("price", pa.decimal128(10, 2))])

OUT_OF_BOUNDS = """
import pyarrow as pa
from pyspark_mtl.rows.bodies.decoding import decoder
schema = pa.schema([("price", pa.decimal128(10, 2)), ("more", pa.list_(pa.decimal128(38, 0)))])
bodies = [b'{"price": 1e-5000000}', b'{"price": "0e-5000000"}', b'{"more": [1e-5000000]}', b'{"price": 1}']
found = decoder("json", schema)(pa.array(bodies, pa.binary()))
print(sorted(found.bad), found.rows.column("price").to_pylist())
"""


def test_no_exponent_ends_the_process() -> None:
    """In a process of its own: a failure ends it."""
    ended = subprocess.run(
        [sys.executable, "-c", OUT_OF_BOUNDS], capture_output=True, text=True, check=False, timeout=60
    )
    expected = "[0, 2] [None, Decimal('0.00'), None, Decimal('1.00')]"
    assert (ended.returncode, ended.stdout.strip()) == (0, expected), ended.stderr


def price(number: str) -> Decimal | None:
    """The decimal(10,2) of a JSON number; None if its body is bad."""
    found = decoder("json", PRICE)(pa.array([b'{"price": %s}' % number.encode()], pa.binary()))
    if found.bad:
        assert found.bad[0].startswith("Expected a decimal(10,2), got `")
        assert found.bad[0].endswith("` - at `$.price`")
        assert len(found.bad[0]) < 100
    (value,) = found.rows.column("price").to_pylist()
    assert (value is None) is bool(found.bad)
    return value  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("number", "value"),
    [
        ("12", "12.00"),
        ("-0.5", "-0.50"),
        ("12345678.900000000000", "12345678.90"),  # zeros are not digits that are lost
        ("1." + "0" * 100, "1.00"),
        ("1" + "0" * 100 + "e-100", "1.00"),
        ("99999999.99", "99999999.99"),
        ("1e7", "10000000.00"),
        ("0e400", "0.00"),
    ],
)
def test_a_number_is_exact(number: str, value: str) -> None:
    assert str(price(number)) == value


@pytest.mark.parametrize(
    "number",
    ["0.001", "1e-77", "1e-78", "1e-5000", "100000000", "1e8", "1e5000", "9" * 1000, "1e999999999999999999"],
)
def test_a_number_that_does_not_fit_is_bad(number: str) -> None:
    assert price(number) is None


@pytest.mark.parametrize("text", ["NaN", "sNaN", "Infinity", "-Infinity"])
def test_text_that_is_no_finite_number_is_bad(text: str) -> None:
    assert price(json.dumps(text)) is None


@given(st.decimals(allow_nan=False, allow_infinity=False), st.integers(1, 38), st.integers(0, 38))
def test_a_decimal_is_equal_or_refused(number: Decimal, precision: int, scale: int) -> None:
    kind = pa.decimal128(precision, min(scale, precision))
    schema = pa.schema([("d", kind)])
    found = decoder("msgpack", schema)(pa.array([msgspec.msgpack.encode({"d": number})], pa.binary()))
    (value,) = found.rows.column("d").to_pylist()
    if not found.bad:
        assert value == number
    else:
        digits = number.normalize().as_tuple()
        exponent = int(digits.exponent)
        assert -exponent > kind.scale or len(digits.digits) + exponent > precision - kind.scale


def test_the_place_of_a_nested_value_is_named() -> None:
    rows: list[tuple[Any, bytes, str]] = [
        (pa.list_(PRICE.field(0).type), b'{"v": [1, 1e-3]}', "$.v[...]"),
        (pa.struct([("a", PRICE.field(0).type)]), b'{"v": {"a": 1e-3}}', "$.v.a"),
        (pa.map_(pa.string(), PRICE.field(0).type), b'{"v": {"k": 1e-3}}', "$.v[...]"),
        (pa.list_(pa.struct([("a", pa.list_(pa.float32()))])), b'{"v": [{"a": [1e39]}]}', "$.v[...].a[...]"),
    ]
    for kind, body, place in rows:
        found = decoder("json", pa.schema([("v", kind)]))(pa.array([body], pa.binary()))
        assert found.bad[0].endswith(f"- at `{place}`"), found.bad


def test_a_number_beyond_short_floats_is_bad_and_not_infinite() -> None:
    schema = pa.schema([("f", pa.float32()), ("g", pa.float64())])
    bodies = [b'{"f": 1e39}', b'{"f": -3.5e38}', b'{"f": 3.4e38, "g": 1e39}']
    found = decoder("json", schema)(pa.array(bodies, pa.binary()))
    assert sorted(found.bad) == [0, 1]
    infinite = msgspec.msgpack.encode({"f": float("-inf")})
    found = decoder("msgpack", schema)(pa.array([infinite], pa.binary()))
    assert (found.bad, found.rows.column("f").to_pylist()) == ({}, [float("-inf")])


def test_types_without_such_values_need_no_check() -> None:
    safe = [("a", pa.int64()), ("b", pa.list_(pa.string())), ("c", pa.map_(pa.string(), pa.timestamp("us")))]
    assert fit_of_row(pa.schema([*safe, ("d", pa.struct(safe))])) is None
