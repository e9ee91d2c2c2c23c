"""Decodes bodies by their format: text, JSON and MessagePack here, Arrow in `from_arrow`.

A JSON or MessagePack body is one object or map with the fields. msgspec (C) decodes each by itself, so the meaning of a
body never depends on its neighbours. It is also faster than Arrow's JSON reader: that reads many objects at once, but
needs a check first that no body is part of an object or several objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

from pyspark_mtl.rows.bodies.fitting import fit_of_row
from pyspark_mtl.rows.bodies.from_arrow import FromArrow
from pyspark_mtl.rows.bodies.values import Decoded, decode_rows, row_type

Decoder = Callable[[Any], Decoded]
"""Takes bodies (binary, none null) and returns their rows."""


class FromText:
    """Decodes bodies (binary), each a string in UTF-8, into the one column of `schema`, by a cast that checks the
    octets without a copy.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        (self._name,) = schema.names

    def __call__(self, bodies: Any) -> Decoded:
        """One row for each body."""
        try:
            return Decoded(pa.RecordBatch.from_arrays([bodies.cast(pa.string())], schema=self._schema), {})
        except pa.ArrowInvalid:
            return decode_rows(bodies.to_pylist(), self._row, self._schema)

    def _row(self, body: bytes) -> dict[str, str]:
        return {self._name: body.decode()}


def from_json(schema: Any) -> Callable[[Any], Decoded]:
    """A decoder of JSON bodies (binary) with these fields. Strictly RFC 8259: NaN, for example, is an error."""
    return _one_by_one(msgspec.json.Decoder(row_type(schema)).decode, schema)


def from_msgpack(schema: Any) -> Callable[[Any], Decoded]:
    """A decoder of MessagePack bodies (binary) with these fields."""
    return _one_by_one(msgspec.msgpack.Decoder(row_type(schema)).decode, schema)


def _one_by_one(decode: Callable[[bytes], Any], schema: Any) -> Callable[[Any], Decoded]:
    fit = fit_of_row(schema)
    row = decode if fit is None else lambda body: fit(decode(body))

    def rows(bodies: Any) -> Decoded:
        return decode_rows(bodies.to_pylist(), row, schema)

    return rows


DECODERS: dict[str, Callable[[Any], Decoder]] = {
    "text": FromText,
    "json": from_json,
    "msgpack": from_msgpack,
    "arrow": FromArrow,
}


def decoder(name: str, schema: Any) -> Decoder:
    """The decoder of a format for the body's columns (a pyarrow.Schema)."""
    return DECODERS[name](schema)
