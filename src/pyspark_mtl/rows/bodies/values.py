"""What a column's value is in Python, as msgspec decodes it, and rows of such values as columns.

A row is a dict of the fields that its body has; names that the schema does not know are passed over, fields that are
missing are null. A value has to be of its column's type: text is no number, and 1.5 is no whole number.
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
"""What Arrow raises for a value that a column cannot hold."""

_ILLEGIBLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What msgspec raises for octets that are no value of the type that is wanted."""


class Decoded(NamedTuple):
    """Bodies as rows: a batch of the body's columns, and why a body is bad, by its index; its row is nulls.

    `origin` has each row's body (int64) where a body may be several rows, None where body and row are one. `taken` is
    how many of the bodies these are, from the first on, where all of them would take too much memory at a time.
    """

    rows: Any
    bad: dict[int, str]
    origin: Any = None
    taken: int | None = None


def row_type(schema: Any) -> Any:
    """The type of a row with these fields, for msgspec."""
    return _struct(schema)


def optional(kind: Any) -> Any:
    """The type of a value that may be missing, for msgspec."""
    return Optional[_value(kind)]  # noqa: UP045 the type is made here


_Row: Any = TypedDict  # made of a schema, not written down for a type checker


def _struct(fields: Iterable[Any]) -> Any:
    members = {field.name: optional(field.type) for field in fields}
    # msgspec 0.22 finds a name beyond ASCII only if its UTF-8 form was asked for before.
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
        # A time without a zone is UTC where a zone is wanted; one with a zone is no local time.
        return datetime if kind.tz else Annotated[datetime, msgspec.Meta(tz=False)]
    if types.is_decimal(kind):
        return Decimal
    if types.is_floating(kind):
        return float
    return {pa.bool_(): bool, pa.string(): str, pa.binary(): bytes, pa.date32(): date}[kind]


def decode_rows(bodies: Iterable[Any], decode: Callable[[Any], Any], schema: Any) -> Decoded:
    """Bodies one by one: `decode` makes a row of one, or raises what msgspec raises."""
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
    """The rows as a batch. One that a column cannot hold (a decimal with too many digits) is bad, too."""
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
