"""JSON: a body is one object. Bodies are read together by Arrow; a block that it refuses, one by one by msgspec.

What a body means never depends on its neighbours: the second way is the definition, the first is only faster, and is
taken where both give the same. Bodies are not simply joined: an empty one would vanish, one of two objects would add a
row, and both together would go unnoticed. Each object gets its number as a first member, whose name no body can know;
numbers that come back complete and in order say that each body was one object. (Wrapping a body as a member of another
object would not do: `{}, "x": {}` then is valid, too.)
"""

from __future__ import annotations

import re
import secrets
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json, types

from pyspark_mtl.bodies.values import Decoded, decode_rows, optional, row_type

_NO_NUMBER = re.compile(rb"(?:NaN|Inf(?:inity)?)\s*[,\]}]")
"""Words that Arrow takes for numbers and that are none in JSON (RFC 8259, section 6); and some ends of strings."""

_NATIVE = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_string)


class FromJson:
    """Decodes bodies (binary) with these fields.

    Arrow reads times and base64 by other rules than msgspec, so a column of them is read as text and converted by
    msgspec as a whole; where they are nested, and where there are maps, every body is read by itself.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._decode = msgspec.json.Decoder(row_type(schema)).decode
        self._number = f"#{secrets.token_hex(8)}"
        carriers = [_carrier(field.type) for field in schema]
        self._carriers = None
        if None not in carriers:
            fields = [pa.field(name, kind) for name, kind in zip(schema.names, carriers, strict=True)]
            self._carriers = pa.schema([(self._number, pa.int64()), *fields])

    def __call__(self, bodies: Any) -> Decoded:
        """The rows, one of each body."""
        if self._carriers is not None and len(bodies):
            try:
                together = self._together(bodies)
            except (pa.ArrowException, msgspec.MsgspecError, ValueError):
                together = None
            if together is not None:
                return Decoded(together, {})
        return decode_rows(bodies.to_pylist(), self._decode, self._schema)

    def _together(self, bodies: Any) -> Any | None:
        """All rows at once; None or an error when there is a body that may be bad."""
        text = bodies.cast(pa.string())
        if not pc.all(pc.starts_with(text, "{")).as_py():
            return None
        numbers = pa.array(range(len(bodies)), pa.int64())
        lines = pc.binary_join_element_wise(
            f'{{"{self._number}":', numbers.cast(pa.string()), ",", pc.utf8_slice_codeunits(text, 1), "\n", ""
        )
        octets = lines.buffers()[2]
        if _may_have_no_number(octets.to_pybytes()):
            return None
        table = json.read_json(
            pa.BufferReader(octets),
            read_options=json.ReadOptions(use_threads=False, block_size=octets.size + 1),
            parse_options=json.ParseOptions(
                explicit_schema=self._carriers, newlines_in_values=True, unexpected_field_behavior="ignore"
            ),
        ).combine_chunks()
        if not table.column(0).combine_chunks().equals(numbers):
            return None
        columns = [
            _converted(column.combine_chunks(), field.type)
            for column, field in zip(table.columns[1:], self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _may_have_no_number(octets: bytes) -> bool:
    return (b"NaN" in octets or b"Inf" in octets) and _NO_NUMBER.search(octets) is not None


def _carrier(kind: Any) -> Any | None:
    """The type that Arrow's JSON reader is asked for, to become `kind` afterwards; None where there is none."""
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_binary(kind):
        return pa.string()
    return _native(kind)


def _native(kind: Any) -> Any | None:
    if types.is_float32(kind):
        return pa.float64()  # as Python has it: rounded once, from a double
    if any(is_one(kind) for is_one in _NATIVE):
        return kind
    if types.is_list(kind):
        inner = _native(kind.value_type)
        return None if inner is None else pa.list_(kind.value_field.with_type(inner))
    if types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        inner = [_native(field.type) for field in fields]
        if None in inner:
            return None
        return pa.struct([field.with_type(one) for field, one in zip(fields, inner, strict=True)])
    return None


def _converted(column: Any, kind: Any) -> Any:
    if types.is_string(column.type) and not types.is_string(kind):
        return pa.array(msgspec.convert(column.to_pylist(), list[optional(kind)]), kind)  # type: ignore[misc]
    return column.cast(kind)
