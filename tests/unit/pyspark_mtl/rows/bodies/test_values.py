from __future__ import annotations

import msgspec
import pyarrow as pa

from pyspark_mtl.rows.bodies.values import decode_rows, row_type

SCHEMA = pa.schema([("n", pa.int8()), ("d", pa.decimal128(4, 2)), ("t", pa.timestamp("us"))])
DECODE = msgspec.json.Decoder(row_type(SCHEMA)).decode


def test_members_missing_in_a_body_are_nulls() -> None:
    found = decode_rows([b'{"n": 1, "more": []}', b'{"d": 1.5}'], DECODE, SCHEMA)
    assert found.rows.to_pylist()[0] == {"n": 1, "d": None, "t": None}
    assert str(found.rows.column("d")[1]) == "1.50"
    assert found.bad == {}


def test_a_value_of_another_type_makes_only_its_body_bad() -> None:
    bodies = [
        b'{"n": 128}',
        b'{"n": 1}',
        b'{"n": "1"}',
        b'{"n": 1.5}',
        b'{"t": "2026-01-31T12:00:00Z"}',
        b"[]",
    ]
    found = decode_rows(bodies, DECODE, SCHEMA)
    assert sorted(found.bad) == [0, 2, 3, 4, 5]
    assert found.rows.column("n").to_pylist() == [None, 1, None, None, None, None]


def test_a_value_outside_of_its_columns_range_is_bad() -> None:
    found = decode_rows([b'{"n": 1, "d": 1.555}', b'{"n": 2, "d": 100}', b'{"n": 3}'], DECODE, SCHEMA)
    assert sorted(found.bad) == [0, 1]
    assert found.rows.column("n").to_pylist() == [None, None, 3]


def test_a_time_without_zone_is_utc() -> None:
    schema = pa.schema([("t", pa.timestamp("us", "UTC"))])
    decode = msgspec.json.Decoder(row_type(schema)).decode
    bodies = [b'{"t": "2026-01-31T12:00:00"}', b'{"t": "2026-01-31T13:00:00+01:00"}']
    noon = 1_769_860_800_000_000
    assert decode_rows(bodies, decode, schema).rows.column("t").cast(pa.int64()).to_pylist() == [noon, noon]


def test_deep_nesting_is_a_bad_body() -> None:
    deep = b'{"more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert sorted(decode_rows([deep], DECODE, SCHEMA).bad) == [0]
