"""The Python types of column values, for msgspec, and rows of such values as columns.

A row is a dict of the fields in its body. Names outside the schema are ignored, and missing fields are null. A value
has to have its column's type: text is not converted to a number, nor 1.5 to a whole number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, Optional, TypedDict

import msgspec
import pyarrow as pa
from pyarrow import types

UNFIT = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""The errors of Arrow for a value that a column cannot hold."""

_ILLEGIBLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""The errors of msgspec for octets that are not a value of the wanted type."""


class Decoded(NamedTuple):
    """Bodies as rows: a batch of the body's columns, and the reasons why bodies are bad, by their index. The row of a
    bad body is all nulls.

    `origin` has the index of each row's body (int64), or None if each body is one row. `taken` is the number of bodies
    decoded, if decoding stopped before the last one to bound memory; None if all were decoded.
    """

    rows: Any
    bad: dict[int, str]
    origin: Any = None
    taken: int | None = None


def row_type(schema: Any) -> Any:
    """The msgspec type of a row with these fields."""
    return _struct(schema)


def optional(kind: Any) -> Any:
    """The msgspec type of a value that may be missing."""
    return Optional[_value(kind)]  # noqa: UP045 the type is made here


_Row: Any = TypedDict  # made from a schema at run time: Any hides it from the type checker


def _struct(fields: Iterable[Any]) -> Any:
    members = {field.name: optional(field.type) for field in fields}
    # msgspec 0.22 finds a non-ASCII name only after it was encoded to UTF-8 once.
    msgspec.json.encode(list(members))
    return _Row("Row", members, total=False)


def _value(kind: Any) -> Any:
    if types.is_struct(kind):
        return _struct(kind.field(index) for index in range(kind.num_fields))
    if types.is_list(kind):
        return list[optional(kind.value_type)]  # type: ignore[misc]
    if types.is_map(kind):
        return dict[_value(kind.key_type), optional(kind.item_type)]  # type: ignore[misc]
    if types.is_integer(kind):
        largest = (1 << (kind.bit_width - 1)) - 1
        return Annotated[int, msgspec.Meta(ge=-largest - 1, le=largest)]
    if types.is_timestamp(kind):
        # A column with a zone takes a time without one as UTC; a column without a zone refuses a time with one.
        return datetime if kind.tz else Annotated[datetime, msgspec.Meta(tz=False)]
    if types.is_decimal(kind):
        return Decimal
    if types.is_floating(kind):
        return float
    return {pa.bool_(): bool, pa.string(): str, pa.binary(): bytes, pa.date32(): date}[kind]


def decode_rows(bodies: Iterable[Any], decode: Callable[[Any], Any], schema: Any) -> Decoded:
    """Decode bodies one by one: `decode` makes a row of a body, or raises msgspec's errors."""
    rows: list[dict[str, Any]] = []
    bad: dict[int, str] = {}
    for index, body in enumerate(bodies):
        try:
            rows.append(decode(body))
        except _ILLEGIBLE as error:
            bad[index] = str(error)
            rows.append({})
    return Decoded(_columns(rows, bad, schema), bad)


def _columns(rows: list[dict[str, Any]], bad: dict[int, str], schema: Any) -> Any:
    """The rows as a batch. A row with a value that its column cannot hold (too many digits) is added to `bad`."""
    kind = pa.struct(list(schema))
    try:
        structs = pa.array(rows, kind)
    except UNFIT:
        for index, row in enumerate(rows):
            try:
                pa.array([row], kind)
            except UNFIT as error:
                bad[index] = str(error)
                rows[index] = {}
        structs = pa.array(rows, kind)
    return pa.RecordBatch.from_arrays(structs.flatten(), schema=schema)
