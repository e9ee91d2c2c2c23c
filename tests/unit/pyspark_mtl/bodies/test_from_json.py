from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_mtl.bodies.encoding import encode
from pyspark_mtl.bodies.from_json import FromJson
from pyspark_mtl.bodies.values import decode_rows
from tests.support.typed import batches, element

SCHEMA = pa.schema([
    ("n", pa.int32()),
    ("f", pa.float32()),
    ("s", pa.string()),
    ("t", pa.timestamp("us", "UTC")),
    ("b", pa.binary()),
    ("l", element(pa.float64())),
    ("r", pa.struct([("x", pa.int8())])),
])  # fmt: skip
DECODER = FromJson(SCHEMA)
GOOD = (
    b'{"n": 1, "s": "one", "t": "2026-01-31T12:00:00Z", "b": "AP8=", "l": [1, null], "r": {"x": 2}, "z": {}}'
)


def binary(*bodies: bytes) -> Any:
    return pa.array(bodies, pa.binary())


@given(batches())
def test_what_is_written_is_read_as_it_was(rows: Any) -> None:
    found = FromJson(rows.schema)(encode("json", rows))
    found.rows.validate(full=True)
    assert found.bad == {}
    assert found.rows.equals(rows)


def test_good_bodies_are_read_together() -> None:
    together = DECODER._together(binary(GOOD, GOOD))
    assert together is not None
    assert together.equals(decode_rows([GOOD, GOOD], DECODER._decode, SCHEMA).rows)


def test_words_of_a_text_are_no_numbers() -> None:
    assert DECODER._together(binary(b'{"s": "Information: NaN is no number, Infinity neither"}')) is not None
    for body in (b'{"f": NaN}', b'{"z": [-Inf ], "f": 1}', b'{"z":Infinity\n,"f":1}'):
        assert DECODER._together(binary(body)) is None


def test_a_slice_is_read_as_what_it_shows() -> None:
    found = DECODER(binary(b"bad", GOOD, b'{"n": 2}', b"bad").slice(1, 2))
    assert (found.bad, found.rows.column("n").to_pylist()) == ({}, [1, 2])


def test_no_bodies_are_no_rows() -> None:
    assert DECODER(binary()).rows.num_rows == 0


TRICKS = [
    b"",
    b" ",
    b"{}",
    b"null",
    b"[]",
    b'{"n": 1}{"n": 2}',
    b'{"n": 1}\n{"n": 2}',
    b'{"n": 1}, "x": {}',
    b'{"n": 1}, {"n": 2}',
    b'{"n": 1, "x": [',
    b"]}",
    b'{"n": 1, "n": 2}',
    b'{"n": 1.0}',
    b'{"n": 2147483648}',
    b'{"n": true}',
    b'{"f": NaN}',
    b'{"z": Infinity}',
    b'{"f": 1e999}',
    b'{"s": "\\ud800"}',
    b'{"s": "\xff"}',
    b'{"s": "NaN"}',
    b'{"s": 5}',
    b'{"t": "2026-01-31"}',
    b'{"t": "2026-01-31T12:00:00"}',
    b'{"t": 5}',
    b'{"b": "?"}',
    b'{"r": {"x": 200}}',
    b'{"r": []}',
    b'{"l": {}}',
    b' {"n": 1} ',
    b'{"n": 1}\x00',
    GOOD,
]


@given(st.lists(st.sampled_from(TRICKS) | st.binary(max_size=9), min_size=1, max_size=6))
def test_what_a_body_means_does_not_depend_on_its_neighbours(bodies: list[bytes]) -> None:
    found = DECODER(binary(*bodies))
    assert found.rows.num_rows == len(bodies)
    for index, body in enumerate(bodies):
        alone = decode_rows([body], DECODER._decode, SCHEMA)
        assert (index in found.bad) is bool(alone.bad), body
        assert found.rows.slice(index, 1).equals(alone.rows), body


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("nfstblrx"), inner, max_size=4)
    ),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(st.sampled_from("nfstblrz"), JSON), min_size=1, max_size=3))
def test_both_ways_agree_about_any_object(objects: list[Any]) -> None:
    bodies = [json.dumps(one).encode() for one in objects]
    found, one_by_one = DECODER(binary(*bodies)), decode_rows(bodies, DECODER._decode, SCHEMA)
    assert found.bad == one_by_one.bad
    assert found.rows.equals(one_by_one.rows)


@pytest.mark.parametrize("kind", [pa.map_(pa.string(), pa.int8()), element(pa.date32())])
def test_what_arrow_reads_by_other_rules_is_read_one_by_one(kind: Any) -> None:
    assert FromJson(pa.schema([("x", kind)]))._carriers is None
