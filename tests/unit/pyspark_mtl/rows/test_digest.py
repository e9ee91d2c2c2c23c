"""The digest of a batch depends on its rows alone, and on each of their values."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from mtl.wire.packs import SCHEMA
from pyspark_mtl.rows.digest import Digest, of_contents, of_rows

NOW = datetime(2026, 1, 31, tzinfo=UTC)

COLUMNS: dict[str, tuple[Any, Any]] = {
    "boolean": (pa.bool_(), lambda n: n % 2 == 0),
    "byte": (pa.int8(), lambda n: n % 100 - 50),
    "short": (pa.int16(), lambda n: n - 5),
    "integer": (pa.int32(), lambda n: -n),
    "long": (pa.int64(), lambda n: n << 40),
    "float": (pa.float32(), lambda n: n / 4),
    "double": (pa.float64(), lambda n: n / 3),
    "decimal": (pa.decimal128(38, 2), lambda n: Decimal(n << 70) / 4),
    "wide decimal": (pa.decimal256(76, 2), lambda n: Decimal(n << 160) / 4),
    "date": (pa.date32(), lambda n: NOW.date() + timedelta(n)),
    "timestamp": (pa.timestamp("us", tz="UTC"), lambda n: NOW + timedelta(microseconds=n)),
    "duration": (pa.duration("us"), lambda n: timedelta(microseconds=n)),
    "text": (pa.string(), lambda n: "x" * (n % 7) + str(n)),
    "large text": (pa.large_string(), str),
    "octets": (pa.binary(), lambda n: b"x" * n),
    "large octets": (pa.large_binary(), lambda n: b"x" * n),
    "array": (pa.list_(pa.int32()), lambda n: [n, None, *range(n % 4)]),
    "array of arrays": (pa.list_(pa.list_(pa.string())), lambda n: [[str(n)], [], None, ["a", None]]),
    "struct": (pa.struct([("a", pa.int32()), ("b", pa.string())]), lambda n: {"a": n, "b": None}),
    "map": (pa.map_(pa.string(), pa.int64()), lambda n: [(str(n), n), ("k", None)]),
    "text of few values": (pa.dictionary(pa.int32(), pa.string()), lambda n: "abc"[n % 3]),
}


def column(name: str, numbers: list[int | None]) -> Any:
    kind, value = COLUMNS[name]
    return pa.array([None if n is None else value(n) for n in numbers], kind)


def frame(numbers: list[int | None], names: list[str] | None = None) -> Any:
    names = list(COLUMNS) if names is None else names
    return pa.RecordBatch.from_arrays([column(name, numbers) for name in names], names=names)


def digest(rows: Any, resource: str | None = "a") -> Digest:
    return of_rows(rows, resource, hashed=True)


NUMBERS: list[int | None] = [None if n % 10 == 9 else n for n in range(64)]


@pytest.mark.parametrize("seed", range(3))
def test_the_digest_does_not_depend_on_order_tasks_and_batches(seed: int) -> None:
    order = list(range(len(NUMBERS)))
    random.Random(seed).shuffle(order)
    rows, shuffled = frame(NUMBERS), frame([NUMBERS[at] for at in order])
    step = (1, 7, 33)[seed]
    parts = [digest(shuffled.slice(at, step)) for at in range(0, len(order), step)]
    assert sum(parts, Digest()) == digest(rows)
    assert digest(rows.slice(3, 40).slice(5, 9)) == digest(frame(NUMBERS[8:17]))


@pytest.mark.parametrize("name", COLUMNS)
def test_a_changed_value_changes_the_digest(name: str) -> None:
    numbers: list[int | None] = [1, 2, 3]
    found = digest(frame(numbers, [name]))
    for other in ([1, 2, 4], [1, 2, None], [1, 2, 2], [1, 2]):
        assert digest(frame(list(other), [name])) != found


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_that_exchange_a_value_change_the_digest(name: str) -> None:
    names = [name, "integer" if name != "integer" else "text"]
    keys, values = column(names[1], [10, 20, 30]), ([1, 2, None], [2, 1, None], [1, None, 2])
    found = [
        digest(pa.RecordBatch.from_arrays([column(name, list(given)), keys], names=names)).contents
        for given in values
    ]
    assert len(set(found)) == len(values)


def test_similar_rows_have_different_digests() -> None:
    """Sums of a linear hash, such as a CRC, are equal for many of them."""
    found = {
        digest(pa.RecordBatch.from_pydict({"body": [f"x:{a}".encode(), f"y:{b}".encode()]})).contents
        for a in range(100)
        for b in range(100)
    }
    assert len(found) == 100 * 100
    pairs = {
        digest(pa.RecordBatch.from_pydict({"x": [a, b], "y": [b, a + 1]})).contents
        for a in range(60)
        for b in range(60)
    }
    assert len(pairs) == 60 * 60


@pytest.mark.parametrize(
    ("values", "others"),
    [
        ([[1, 2], [3]], [[2, 1], [3]]),
        ([[1, 2], [3]], [[1], [2, 3]]),
        ([[1], []], [[], [1]]),
        ([[1], None], [[1], []]),
        ([[None], [1]], [[1, None], []]),
    ],
)
def test_an_array_has_an_order_and_a_length(values: list[Any], others: list[Any]) -> None:
    kind, keys = pa.list_(pa.int32()), pa.array([1, 2])
    found = [
        digest(pa.RecordBatch.from_arrays([pa.array(given, kind), keys], names=["a", "k"]))
        for given in (values, others)
    ]
    assert found[0] != found[1]


def test_values_behind_a_null_do_not_count() -> None:
    """Arrow leaves arbitrary octets at the place of a null, and the values of a null array."""
    numbers, hidden = pa.array([1, 2, 3]), pa.array([1, 99, 3])
    valid = pa.array([True, False, True]).buffers()[1]
    offsets = pa.array([0, 1, 2, 3], pa.int32()).buffers()[1]

    def rows(values: Any) -> Any:
        plain = pa.Array.from_buffers(pa.int64(), 3, [valid, values.buffers()[1]])
        lists = pa.Array.from_buffers(pa.list_(pa.int64()), 3, [valid, offsets], children=[values])
        structs = pa.StructArray.from_arrays([values], names=["x"], mask=pa.array([False, True, False]))
        return pa.RecordBatch.from_arrays([plain, lists, structs], names=["p", "l", "s"])

    assert digest(rows(numbers)) == digest(rows(hidden))


def test_the_target_of_each_row_counts() -> None:
    """A constant target and a column of the same targets are the same; two rows may not exchange their targets."""
    body = pa.array([b"1", b"2"])
    to = [
        of_rows(
            pa.RecordBatch.from_arrays([pa.array(names), body], names=["resource", "body"]), None, hashed=True
        )
        for names in (["a", "a"], ["a", "b"], ["b", "a"])
    ]
    assert to[0] == digest(pa.RecordBatch.from_arrays([body], names=["body"]))
    assert to[1].targets == to[2].targets != to[0].targets
    assert to[1].contents != to[2].contents


def test_a_content_has_properties_and_body() -> None:
    def contents(tables: list[bytes | None], bodies: list[bytes], resource: str = "a") -> Digest:
        batch = pa.RecordBatch.from_pydict({"properties": tables, "body": bodies}, schema=SCHEMA)
        return of_contents(batch, resource, hashed=True)

    found = [
        contents([None, None], [b"1", b"2"]),
        contents([b"t", None], [b"1", b"2"]),
        contents([None, b"t"], [b"1", b"2"]),
        contents([b"t", b"t"], [b"1", b"2"]),
        contents([b"u", b"u"], [b"1", b"2"]),
        contents([b"1", b"2"], [b"t", b"t"]),
    ]
    assert len({digest.contents for digest in found}) == len(found)
    assert contents([None], [b"1"]) + contents([b"t"], [b"2"]) == found[2]
    assert contents([None, None], [b"1", b"2"], "b").contents != found[0].contents


def test_another_column_is_another_digest() -> None:
    values = pa.array([1, 2])
    assert digest(pa.RecordBatch.from_arrays([values], names=["a"])) != digest(
        pa.RecordBatch.from_arrays([values], names=["b"])
    )


def test_without_hash_rows_are_counted_for_each_target() -> None:
    counted = of_rows(frame([1, 2, 3]), "a", hashed=False)
    assert counted == of_rows(frame([4, 5, 6]), "a", hashed=False)
    assert counted.values == {"rows": "3", "targets": counted.values["targets"]}
    assert of_rows(frame([1, 2, 3]), "b", hashed=False) != counted
    assert (counted + digest(frame([1]))).contents is None, "a sum that lacks a part is none"


def test_the_values_are_those_of_every_version() -> None:
    """A batch that is repeated by a later version has to be recognised: another hash needs another name."""
    assert digest(frame(NUMBERS)).values == {
        "rows": "64",
        "targets": "b18cad87a59387c0",
        "contents": "182c4e2eff13983b",
    }
    assert of_contents(
        pa.RecordBatch.from_pydict({"properties": [None, b"t"], "body": [b"", b"body"]}, schema=SCHEMA),
        "orders",
        hashed=True,
    ).values == {"rows": "2", "targets": "51199b93f492e9f6", "contents": "fb9c5c9d1bd8ac36"}
    assert Digest().values == {"rows": "0", "targets": "0" * 16, "contents": "0" * 16}
