"""The digest of a batch: counts of its rows and a hash of them, with which the broker recognizes a repeated batch
(PROTOCOL.md 5.5).

A row has a hash of 64 bits, and the digest has the sum of these hashes modulo 2^64. So it depends neither on the order
of the rows nor on their tasks and record batches, and digests of parts add up to that of the batch. Two rows that
exchange a value change it, because the hash of a row is not linear in its columns. It protects against accidents, not
against rows that were chosen for their hashes.

Fixed-width columns are hashed as whole columns, like nested ones by their children. Texts and octets have a call of
XXH3 each.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

_MODULUS = 1 << 64
_UINT64 = pa.uint64()


@dataclass(frozen=True)
class Digest:
    """The digest of some rows: their number, and the sums of the hashes of their target resources and of all their
    values. `contents` is None if the values are not hashed.
    """

    rows: int = 0
    targets: int = 0
    contents: int | None = 0

    def __add__(self, other: Digest) -> Digest:
        """The digest of the rows of both."""
        contents = None
        if self.contents is not None and other.contents is not None:
            contents = (self.contents + other.contents) % _MODULUS
        return Digest(self.rows + other.rows, (self.targets + other.targets) % _MODULUS, contents)

    @property
    def values(self) -> dict[str, str]:
        """The digest as Stage.Commit has it. A change of a hash needs another name: the broker compares by names."""
        members = {"rows": str(self.rows), "targets": f"{self.targets:016x}"}
        return members if self.contents is None else {**members, "contents": f"{self.contents:016x}"}


def of_rows(frame: Any, resource: str | None, *, hashed: bool) -> Digest:
    """The digest of a frame of rows for `resource`, or with None for the resources in the column of this name. With
    `hashed` false their values are only counted.
    """
    columns = dict(zip(frame.schema.names, frame.columns, strict=True))
    count = frame.num_rows
    targets = _number(_hash_of_text(resource or ""))
    if resource is None and "resource" in columns:
        targets = _hashes(columns.pop("resource").dictionary_encode())
    targeted = Digest(count, _sum(targets, count), None)
    if not hashed:
        return targeted
    nulls = {name for name, column in columns.items() if column.null_count == count}
    values = [_number(_NULL) if name in nulls else _hashes(columns[name]) for name in columns]
    rows = _folded(_hash_of_text(repr(list(columns))), [targets, *values])
    return replace(targeted, contents=_sum(rows, count))


def of_contents(batch: Any, resource: str, *, hashed: bool) -> Digest:
    """The digest of contents (a batch of mtl.wire.packs.SCHEMA), each of which is a row."""
    columns = [
        batch.column("properties").dictionary_encode(),
        batch.column("body"),
    ]  # few tables are distinct
    return of_rows(pa.RecordBatch.from_arrays(columns, names=["properties", "body"]), resource, hashed=hashed)


# --- the hashes of a column ---------------------------------------------------------------------------------


def _number(value: int) -> Any:
    """A scalar, without pa.scalar, which would import pandas (rows/frames.py)."""
    return _numbers([value])[0]


def _numbers(values: Iterable[int]) -> Any:
    return _column(array("Q", values))


def _same(value: int, count: int) -> Any:
    return _column(array("Q", (value,)) * count)


def _column(numbers: array[int]) -> Any:
    return pa.Array.from_buffers(_UINT64, len(numbers), [None, pa.py_buffer(numbers)])


_SHIFT, _FACTORS = _number(32), tuple(map(_number, (0xD6E8FEB86659FD93, 0xD6E8FEB86659FD93)))
_STEP = _number(0x9E3779B97F4A7C15)
_NULL = 0x6A09E667F3BCC909


def _mixed(numbers: Any) -> Any:
    """Each bit of a number changes about half of the bits of its result (the finalizer "rrmxmx", David Stafford's form
    of MurmurHash3's).
    """
    for factor in _FACTORS:
        numbers = pc.multiply(pc.bit_wise_xor(numbers, pc.shift_right(numbers, _SHIFT)), factor)
    return pc.bit_wise_xor(numbers, pc.shift_right(numbers, _SHIFT))


def _folded(seed: int, columns: list[Any]) -> Any:
    """One hash for the values of each row. A scalar is a column of equal values."""
    folded = pc.add(columns[0], _number(seed))
    for column in columns[1:]:
        folded = pc.add(pc.multiply(_mixed(folded), _STEP), column)
    return _mixed(folded)


def _hashes(column: Any) -> Any:
    """The hash of each value of a column of any type; equal values of equal types have the same."""
    count = len(column)
    if column.null_count == count:
        return _same(_NULL, count)
    hashes = next(hashes for is_kind, hashes in _KINDS if is_kind(column.type))
    hashed = hashes(column)
    return hashed if not column.null_count else pc.if_else(column.is_valid(), hashed, _number(_NULL))


# One function for each kind of type; the result for nulls is arbitrary.


def _of_dictionary(column: Any) -> Any:
    return _hashes(column.dictionary).take(column.indices)


def _of_structs(column: Any) -> Any:
    return _folded(0, [_same(0, len(column)), *map(_hashes, column.flatten())])


def _of_maps(column: Any) -> Any:
    pair = pa.struct([column.type.key_field, column.type.item_field])
    return _of_lists(column.cast(pa.list_(pair)))


def _of_lists(lists: Any) -> Any:
    """From the sums of the hashes of the values with their positions, and the lengths."""
    values = lists.flatten()  # without those of null lists
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(_UINT64)
    ends = pc.cumulative_sum(lengths)
    starts = pc.subtract(ends, lengths)
    offsets = pa.concat_arrays([_same(0, 1), ends]).cast(pa.int64())
    parents = pc.list_parent_indices(pa.LargeListArray.from_arrays(offsets, values))
    positions = pc.subtract(_numbers(range(len(values))), starts.take(parents))
    placed = _folded(0, [_hashes(values), positions])
    sums = pa.concat_arrays([_same(0, 1), pc.cumulative_sum(placed)])
    return _folded(0, [pc.subtract(sums.take(ends), sums.take(starts)), lengths])


_AT_ONCE = 2048
"""Values that are Python objects at the same time. So few stay in the processor's cache, which halves the time for
bodies of 100 octets.
"""


def _of_octets(column: Any) -> Any:
    hashes = array("Q")
    for at in range(0, len(column), _AT_ONCE):
        values = column.slice(at, _AT_ONCE).to_pylist()
        if column.null_count:
            values = [value or b"" for value in values]
        hashes.extend(map(xxh3_64_intdigest, values))
    return _column(hashes)


def _of_texts(column: Any) -> Any:
    return _of_octets(
        column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())
    )


def _of_booleans(column: Any) -> Any:
    return column.cast(pa.uint8()).cast(_UINT64)


def _of_decimals(column: Any) -> Any:
    words = column.type.bit_width // 64
    numbers = pa.FixedSizeListArray.from_arrays(_buffer(column, _UINT64, words), words)
    return _folded(0, [pc.list_element(numbers, index) for index in range(words)])


def _of_fixed_width(column: Any) -> Any:
    return _buffer(column, _UNSIGNED[column.type.bit_width], 1).cast(_UINT64)


def _buffer(column: Any, kind: Any, per_value: int) -> Any:
    """The octets of a fixed-width column as numbers, `per_value` for each value."""
    return pa.Array.from_buffers(
        kind, len(column) * per_value, [None, column.buffers()[1]], offset=column.offset * per_value
    )


_UNSIGNED = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: _UINT64}


_KINDS: tuple[tuple[Callable[[Any], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_dictionary, _of_dictionary),
    (pa.types.is_struct, _of_structs),
    (pa.types.is_map, _of_maps),
    (pa.types.is_list, _of_lists),
    (pa.types.is_large_list, _of_lists),
    (pa.types.is_binary, _of_octets),
    (pa.types.is_large_binary, _of_octets),
    (pa.types.is_string, _of_texts),
    (pa.types.is_large_string, _of_texts),
    (pa.types.is_boolean, _of_booleans),
    (pa.types.is_decimal, _of_decimals),
    (lambda _: True, _of_fixed_width),  # numbers and times
)


def _sum(hashes: Any, count: int) -> int:
    """The sum of the hashes of `count` rows modulo 2^64; of a scalar, `count` times its value."""
    total: int = hashes.as_py() * count if isinstance(hashes, pa.Scalar) else pc.sum(hashes).as_py() or 0
    return total % _MODULUS


def _hash_of_text(text: str) -> int:
    return xxh3_64_intdigest(text.encode())
