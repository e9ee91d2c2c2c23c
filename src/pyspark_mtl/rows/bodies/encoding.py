"""Encodes columns as bodies: the inverse of `decoding`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import types

from mtl.errors import ContentTooLarge, SchemaError
from mtl.limits import MAX_CONTENT
from pyspark_mtl.limits import ARROW_BODY

_JSON = msgspec.json.Encoder(decimal_format="number")
_MSGPACK = msgspec.msgpack.Encoder()


def encode(name: str, rows: Any) -> Any:
    """One body (binary) for each row, in format text, json or msgpack. SchemaError, with the column, for a value that
    the format cannot express.

    In JSON NaN and infinity become null, binary becomes base64, a time RFC 3339 and a decimal a number.
    """
    try:
        return _ENCODERS[name](rows)
    except _INEXPRESSIBLE as error:
        place, reason = next(_refused(name, rows), ("", error))
        raise SchemaError(
            f"the column {place!r} has a value that cannot be written as {name}: {reason}. Times have to be in the "
            "years 1 to 9999 in UTC, and the keys of a map distinct"
        ) from error


def _text(rows: Any) -> Any:
    return rows.column(0).cast(pa.binary())


def _json(rows: Any) -> Any:
    lines = _JSON.encode_lines(_dicts(rows)).split(b"\n")  # JSON escapes its line feeds
    return pa.array(lines[:-1], pa.binary())


def _msgpack(rows: Any) -> Any:
    return pa.array(map(_MSGPACK.encode, _dicts(rows)), pa.binary())


_ENCODERS: dict[str, Callable[[Any], Any]] = {"text": _text, "json": _json, "msgpack": _msgpack}


_INEXPRESSIBLE = (ValueError, TypeError, OverflowError, KeyError)
"""The errors of Arrow and msgspec for a value without an equal one in Python or in the format."""


def _refused(name: str, rows: Any) -> Iterator[tuple[str, Exception]]:
    """The paths of the columns with values that cannot be encoded, innermost ones first, and the reasons."""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        try:
            _ENCODERS[name](pa.RecordBatch.from_arrays([column], names=[field.name]))
        except _INEXPRESSIBLE as error:
            inner = _inside(column)
            for place, reason in _refused(name, inner):
                yield f"{field.name}.{place}", reason
            yield field.name, error


def _inside(column: Any) -> Any:
    """The columns inside a nested column, as a batch."""
    if types.is_struct(column.type):
        names = [column.type.field(at).name for at in range(column.type.num_fields)]
        return pa.RecordBatch.from_arrays(column.flatten(), names=names)
    if types.is_map(column.type):
        return pa.RecordBatch.from_arrays([column.keys, column.items], names=["key", "value"])
    if types.is_list(column.type):
        return pa.RecordBatch.from_arrays([column.flatten()], names=["element"])
    return pa.RecordBatch.from_arrays([], names=[])


def _dicts(rows: Any) -> list[dict[str, Any]]:
    dicts: list[dict[str, Any]] = rows.to_pylist(maps_as_pydicts="strict")
    return dicts


def streams(rows: Any, octets: int = ARROW_BODY) -> Iterator[bytes]:
    """The rows as Arrow IPC streams of about `octets` octets, each a body. ContentTooLarge for too large a row."""
    count = rows.num_rows
    step = max(1, count * octets // max(1, rows.nbytes))
    for start in range(0, count, step):
        yield from _fitting(rows.slice(start, step))


def _fitting(rows: Any) -> Iterator[bytes]:
    """The rows as one stream, or as halves while the stream is too large for a content."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    body = sink.getvalue()
    if body.size <= MAX_CONTENT:
        yield body.to_pybytes()
    elif rows.num_rows == 1:
        raise ContentTooLarge(body.size, MAX_CONTENT, "row as an Arrow stream")
    else:
        half = rows.num_rows // 2
        yield from _fitting(rows.slice(0, half))
        yield from _fitting(rows.slice(half))
