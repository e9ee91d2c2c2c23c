"""Decodes text: a body is one string in UTF-8."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyspark_mtl.rows.bodies.values import Decoded, decode_rows


class FromText:
    """Decodes bodies (binary) into the one column of `schema`, by a cast that checks the octets without a copy."""

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
