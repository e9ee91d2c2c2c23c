"""Decodes JSON and MessagePack: a body is one object or map with the fields. msgspec (C) decodes each by itself.

So the meaning of a body never depends on its neighbours. It is also faster than Arrow's JSON reader: that reads many
objects at once, but needs a check first that no body is part of an object or several objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pyspark_mtl.rows.bodies.values import Decoded, decode_rows, row_type


def from_json(schema: Any) -> Callable[[Any], Decoded]:
    """A decoder of JSON bodies (binary) with these fields. Strictly RFC 8259: NaN, for example, is an error."""
    return _one_by_one(msgspec.json.Decoder(row_type(schema)).decode, schema)


def from_msgpack(schema: Any) -> Callable[[Any], Decoded]:
    """A decoder of MessagePack bodies (binary) with these fields."""
    return _one_by_one(msgspec.msgpack.Decoder(row_type(schema)).decode, schema)


def _one_by_one(decode: Callable[[bytes], Any], schema: Any) -> Callable[[Any], Decoded]:
    def rows(bodies: Any) -> Decoded:
        return decode_rows(bodies.to_pylist(), decode, schema)

    return rows
