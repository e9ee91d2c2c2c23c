"""Rows with typed bodies: converts packs to rows of a schema, with a mode for bad bodies, and frames to contents.

The sink gets raw frames (`frames.contents`), so it does not depend on body formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from mtl.errors import BadBody, SchemaError
from pyspark_mtl.rows import frames
from pyspark_mtl.rows.bodies.decoding import decoder
from pyspark_mtl.rows.bodies.encoding import encode, streams
from pyspark_mtl.rows.bodies.shape import Shape
from pyspark_mtl.rows.bodies.values import Decoded

# --- reading ------------------------------------------------------------------------------------------------


class BadContent(NamedTuple):
    """A content with a bad body, and the reason."""

    sequence: int
    body: bytes
    properties: bytes | None
    reason: str


class TypedRows:
    """Makes rows of packs. Pure; one per task, since it holds the decoder made for the schema."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._decode = decoder(shape.options.format, shape.body)

    def __call__(
        self, pack: Any, resource: str, first: int, timestamp_us: int | None
    ) -> Iterator[tuple[Any, list[BadContent]]]:
        """The rows of a pack (arguments as `frames.rows`), and its contents with bad bodies; in several parts if all
        would take too much memory at a time. BadBody with mode FAILFAST.
        """
        while pack.num_rows:
            decoded = self._decode(pack.column("body"))
            count = pack.num_rows if decoded.taken is None else decoded.taken
            yield self._part(decoded, pack.slice(0, count), resource, first, timestamp_us)
            pack, first = pack.slice(count), first + count

    def _part(
        self, decoded: Decoded, pack: Any, resource: str, first: int, timestamp_us: int | None
    ) -> tuple[Any, list[BadContent]]:
        options = self._shape.options
        rows, bad, origin, _ = decoded
        if bad and options.mode == "failfast":
            index = min(bad)
            raise BadBody(resource, first + index, options.format, bad[index])
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        if options.metadata:
            with_properties = "properties" in self._shape.columns.names
            others = frames.rows(pack, resource, first, timestamp_us, include_properties=with_properties)
            others = _spread(others.drop_columns(["body"]), origin)
            columns |= zip(others.schema.names, others.columns, strict=True)
            if "timestamp" in self._shape.columns.names:
                kind = self._shape.columns.field("timestamp").type
                columns["timestamp"] = columns["timestamp"].cast(kind)
        if self._shape.corrupt is not None:
            columns[self._shape.corrupt] = _spread(_corrupt(pack, bad), origin).column(0)
        batch = pa.RecordBatch.from_arrays(
            [columns[name] for name in self._shape.columns.names], schema=self._shape.columns
        )
        if bad and options.mode == "dropmalformed":
            places = pa.array(range(pack.num_rows), pa.int64()) if origin is None else origin
            batch = batch.filter(pc.invert(pc.is_in(places, pa.array(list(bad), pa.int64()))))
        return batch, [_letter(pack, first, index, bad[index]) for index in sorted(bad)]


def _spread(batch: Any, origin: Any) -> Any:
    return batch if origin is None else batch.take(origin)


def _corrupt(pack: Any, bad: dict[int, str]) -> Any:
    """A column with the bad bodies as text; octets that are not UTF-8 become U+FFFD."""
    if not bad:
        column = pa.nulls(pack.num_rows, pa.string())
    else:
        body = pack.column("body")
        texts: list[str | None] = [None] * pack.num_rows
        for index in bad:
            texts[index] = body[index].as_py().decode(errors="replace")
        column = pa.array(texts, pa.string())
    return pa.RecordBatch.from_arrays([column], names=["corrupt"])


def _letter(pack: Any, first: int, index: int, reason: str) -> BadContent:
    return BadContent(
        first + index, pack.column("body")[index].as_py(), pack.column("properties")[index].as_py(), reason
    )


# --- writing ------------------------------------------------------------------------------------------------


def raw(shape: Shape, rows: Iterable[Any]) -> Iterator[Any]:
    """Frames of typed rows as raw frames: encoded bodies, and the columns of the content."""
    for frame in rows:
        given = frame.cast(shape.columns)
        body = given.select(shape.body.names)
        others = [name for name in given.schema.names if name not in shape.body.names]
        if shape.options.format == "arrow":
            yield from _bundled(given, body)
        else:
            columns = {name: given.column(name) for name in others}
            bodies = encode(shape.options.format, body)
            yield pa.RecordBatch.from_pydict(columns | {"body": bodies})


def _bundled(given: Any, body: Any) -> Iterator[Any]:
    """Bodies of many rows: each body has rows of one resource, in their order."""
    if "resource" not in given.schema.names or "resource" in body.schema.names:
        bodies = list(streams(body))
        yield pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})
        return
    names = given.column("resource")
    if names.null_count:
        raise SchemaError("the resource of a row is null; every row has to name one")
    for name in names.unique().to_pylist():
        bodies = list(streams(body.filter(pc.equal(names, name))))
        columns = {"resource": [name] * len(bodies), "body": pa.array(bodies, pa.binary())}
        yield pa.RecordBatch.from_pydict(columns)
