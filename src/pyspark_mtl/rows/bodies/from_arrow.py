"""Decodes Arrow bodies: each is an IPC stream with any number of record batches, and so of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from mtl.errors import Malformed
from pyspark_mtl.limits import MAX_BODY_OCTETS, MAX_BODY_ROWS
from pyspark_mtl.rows.bodies import arrow_octets, arrow_types
from pyspark_mtl.rows.bodies.values import UNFIT, Decoded

_DAMAGED = (*UNFIT, OSError, MemoryError, KeyError, EOFError, Malformed)
"""The errors that a damaged stream can raise; see mtl.wire.packs."""


class FromArrow:
    """Decodes bodies (binary) with the fields of `schema`. Columns are found by name, and cast between types of one
    kind (`arrow_types`) if that changes no value; floats may be rounded.
    Other columns of a body are not decompressed; if it has none of the fields, its first column gives the row count.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._names = frozenset(schema.names)
        self._wide = [_widened(field.type) for field in schema]
        self._nulls = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)

    def __call__(self, bodies: Any) -> Decoded:
        """The rows of each body, in order; a bad body becomes one row of nulls. Stops after the body that makes the
        total exceed MAX_BODY_OCTETS.
        """
        parts: list[Any] = []
        bad: dict[int, str] = {}
        origin: list[int] = []
        octets = 0
        for index, body in enumerate(bodies):
            try:
                batches, size = self._rows(body.as_buffer())
            except _DAMAGED as error:
                bad[index] = str(error) or type(error).__name__
                batches, size = [self._nulls], 0
            parts += batches
            origin += [index] * sum(part.num_rows for part in batches)
            octets += size
            if octets > MAX_BODY_OCTETS:
                bodies = bodies.slice(0, index + 1)
                break
        table = pa.Table.from_batches(parts, self._schema).combine_chunks()
        columns = [column.combine_chunks() for column in table.columns]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return Decoded(rows, bad, pa.array(origin, pa.int64()), len(bodies))

    def _rows(self, body: Any) -> tuple[list[Any], int]:
        """The rows of a body, and the most octets that they take."""
        with pa.ipc.open_stream(body) as stream:
            names = stream.schema.names
            self._check_types(stream.schema)
        included = [at for at, name in enumerate(names) if name in self._names] or [
            0
        ]  # an empty list would include all columns
        _check_octets(arrow_octets.decompressed(body, {names[at] for at in included if names}))
        options = pa.ipc.IpcReadOptions(included_fields=included if names else [])
        batches, count, octets = [], 0, 0
        with pa.ipc.open_stream(body, options=options) as stream:
            for batch in stream:
                count += batch.num_rows
                if count > MAX_BODY_ROWS:
                    raise ValueError(f"more than {MAX_BODY_ROWS} rows in one body")
                batch.validate(full=True)
                octets += self._octets(batch)
                _check_octets(octets)
                batches.append(self._fitted(batch))
        return batches, octets

    def _octets(self, batch: Any) -> int:
        return sum(
            arrow_octets.cast(batch.column(place), field.type)
            if (place := batch.schema.get_field_index(field.name)) >= 0
            else arrow_octets.nulls(batch.num_rows, field.type)
            for field in self._schema
        )

    def _check_types(self, schema: Any) -> None:
        """ValueError unless the columns of a stream with this schema can be read as the fields."""
        for field in self._schema:
            places = schema.get_all_field_indices(field.name)
            if len(places) > 1:
                raise ValueError(f"the column {field.name!r} occurs {len(places)} times")
            if places:
                arrow_types.check(schema.field(places[0]).type, field.type, field.name)

    def _fitted(self, batch: Any) -> Any:
        columns = []
        for field, wide in zip(self._schema, self._wide, strict=True):
            place = batch.schema.get_field_index(field.name)
            if place < 0:
                columns.append(pa.nulls(batch.num_rows, field.type))
                continue
            column = batch.column(place)
            if wide != field.type:
                column = column.cast(wide)
                _check_floats(column, field)
            columns.append(column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _widened(kind: Any) -> Any:
    """The type with floats of 64 bits in place of 32."""
    if types.is_float32(kind):
        return pa.float64()
    if types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return pa.struct([field.with_type(_widened(field.type)) for field in fields])
    if types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_widened(kind.item_type)))
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_widened(kind.value_type)))
    return kind


def _check_floats(column: Any, field: Any) -> None:
    """ValueError for a number that would become infinite with 32 bits: Arrow's cast does not check that."""
    for numbers in _narrowed(column, field.type):
        if pc.any(pc.not_equal(pc.is_inf(numbers), pc.is_inf(numbers.cast(pa.float32())))).as_py():
            raise ValueError(f"the column {field.name!r} has a number beyond floats of 32 bits")


def _narrowed(column: Any, kind: Any) -> Iterator[Any]:
    """The columns inside a widened column that are floats of 32 bits in the type `kind`."""
    if types.is_float32(kind):
        yield column
    elif types.is_struct(kind):
        for at in range(kind.num_fields):
            yield from _narrowed(column.field(at), kind.field(at).type)
    elif types.is_map(kind):
        yield from _narrowed(column.items, kind.item_type)
    elif types.is_list(kind):
        yield from _narrowed(column.values, kind.value_type)


def _check_octets(octets: int) -> None:
    if octets > MAX_BODY_OCTETS:
        raise ValueError(
            f"a body of {octets} octets after decompression and cast, more than {MAX_BODY_OCTETS}; "
            "put fewer rows into a body"
        )
