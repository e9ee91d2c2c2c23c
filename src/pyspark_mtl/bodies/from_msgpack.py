"""MessagePack: a body is a map of the fields. Each is decoded by itself, in C, into the types of its columns."""

from __future__ import annotations

from typing import Any

import msgspec

from pyspark_mtl.bodies.values import Decoded, decode_rows, row_type


class FromMsgpack:
    """Decodes bodies (binary) with these fields."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._decode = msgspec.msgpack.Decoder(row_type(schema)).decode

    def __call__(self, bodies: Any) -> Decoded:
        """The rows, one of each body."""
        return decode_rows(bodies.to_pylist(), self._decode, self._schema)
