"""JSON and MessagePack: a body is one object, or map, of the fields. Each is decoded by itself, in C.

What a body means so never depends on its neighbours. It is quicker, too, than Arrow's reader of JSON, which takes many
objects at once, but first has to be kept from taking two bodies for one, or one for two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pyspark_mtl.rows.bodies.values import Decoded, decode_rows, row_type


def from_json(schema: Any) -> Callable[[Any], Decoded]:
    """A decoder of JSON bodies (binary) with these fields. Its words and numbers are RFC 8259's: NaN is none."""
    return _one_by_one(msgspec.json.Decoder(row_type(schema)).decode, schema)


def from_msgpack(schema: Any) -> Callable[[Any], Decoded]:
    """A decoder of MessagePack bodies (binary) with these fields."""
    return _one_by_one(msgspec.msgpack.Decoder(row_type(schema)).decode, schema)


def _one_by_one(decode: Callable[[bytes], Any], schema: Any) -> Callable[[Any], Decoded]:
    def rows(bodies: Any) -> Decoded:
        return decode_rows(bodies.to_pylist(), decode, schema)

    return rows
