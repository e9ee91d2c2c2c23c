"""Arrow: a body is an IPC stream, its schema and any number of record batches, and so any number of rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyspark_mtl.bodies.values import UNFIT, Decoded
from pyspark_mtl.limits import MAX_BODY_ROWS

_DAMAGED = (*UNFIT, OSError, MemoryError, KeyError, EOFError)
"""What reading a damaged stream raises besides; see mtl.wire.packs."""


class FromArrow:
    """Decodes bodies (binary) with these fields. Columns are found by name, and cast where nothing is lost by it."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._nulls = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)

    def __call__(self, bodies: Any) -> Decoded:
        """The rows of each body, in order; a bad body is one row of nulls."""
        parts, bad, origin = [], {}, []
        for index, body in enumerate(bodies):
            try:
                found = self._rows(body.as_buffer())
            except _DAMAGED as error:
                bad[index] = str(error) or type(error).__name__
                found = [self._nulls]
            parts += found
            origin += [index] * sum(part.num_rows for part in found)
        table = pa.Table.from_batches(parts, self._schema).combine_chunks()
        columns = [column.combine_chunks() for column in table.columns]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return Decoded(rows, bad, pa.array(origin, pa.int64()))

    def _rows(self, body: Any) -> list[Any]:
        found, count = [], 0
        with pa.ipc.open_stream(body) as stream:
            for batch in stream:
                count += batch.num_rows
                if count > MAX_BODY_ROWS:
                    raise ValueError(f"more than {MAX_BODY_ROWS} rows in one body")
                batch.validate(full=True)
                found.append(self._fitted(batch))
        return found

    def _fitted(self, batch: Any) -> Any:
        columns = []
        for field in self._schema:
            places = batch.schema.get_all_field_indices(field.name)
            if len(places) > 1:
                raise ValueError(f"the column {field.name!r} is there {len(places)} times")
            columns.append(
                batch.column(places[0]).cast(field.type) if places else pa.nulls(batch.num_rows, field.type)
            )
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
