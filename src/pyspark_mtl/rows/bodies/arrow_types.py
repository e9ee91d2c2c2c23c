"""Which types of Arrow columns can be read as which columns of a schema, as a table.

The types of a body are a peer's choice. Arrow casts between almost all types, and some of its casts read out of bounds
(a decimal with a scale beyond its digits, a number in a text), overflow, or make another value of one that does not
fit. So a cast is done only between types of one kind, and there it checks each value. Types of other formats are as
strict: text is no number, and a number is no time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow import types

Test = Callable[[Any], bool]


def _is_decimal(kind: Any) -> bool:
    """Arrow's tables of powers of ten end at the digits of a type: a scale beyond them is read out of bounds."""
    return bool(types.is_decimal(kind) and 0 <= kind.scale <= kind.precision)


def _is_text(kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_octets(kind: Any) -> bool:
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def _is_local(kind: Any) -> bool:
    return bool(types.is_timestamp(kind) and kind.tz is None)


READABLE: tuple[tuple[Test, tuple[Test, ...]], ...] = (
    (types.is_boolean, (types.is_boolean,)),
    (types.is_integer, (types.is_integer, types.is_floating, _is_decimal)),
    (types.is_floating, (types.is_floating, types.is_integer, _is_decimal)),
    (types.is_decimal, (_is_decimal, types.is_integer)),
    (types.is_string, (_is_text, _is_octets)),
    (types.is_binary, (_is_octets, _is_text)),
    (types.is_date, (types.is_date,)),
    (_is_local, (_is_local,)),
    (types.is_timestamp, (types.is_timestamp,)),
)
"""For each kind of column that bodies may have, the kinds that can be read as it. A time with a zone is not read as one
without: its local time would depend on the reader."""

LISTS = (types.is_list, types.is_large_list, types.is_fixed_size_list)


def check(present: Any, wanted: Any, name: str) -> None:
    """ValueError unless a column of type `present` can be read as `wanted`; `name` is its path in the message."""
    while isinstance(present, pa.BaseExtensionType):
        present = present.storage_type
    if types.is_null(present):
        return
    if types.is_struct(wanted) and types.is_struct(present):
        _check_struct(present, wanted, name)
    elif types.is_map(wanted) and types.is_map(present):
        check(present.key_type, wanted.key_type, f"{name}.key")
        check(present.item_type, wanted.item_type, f"{name}.value")
    elif types.is_list(wanted) and any(test(present) for test in LISTS):
        check(present.value_type, wanted.value_type, f"{name}.element")
    elif not _is_readable(present, wanted):
        raise ValueError(f"the column {name!r} of type {present} cannot be read as {wanted}")


def _is_readable(present: Any, wanted: Any) -> bool:
    """Whether a value of the type `present`, or of a dictionary of that type, can be read as `wanted`."""
    if types.is_dictionary(present):
        present = present.value_type
        if types.is_string_view(present) or types.is_binary_view(present):
            return False  # their octets cannot be computed before the cast
    kinds: tuple[Test, ...] = next((kinds for test, kinds in READABLE if test(wanted)), ())
    return any(test(present) for test in kinds)


def _check_struct(present: Any, wanted: Any, name: str) -> None:
    for at in range(wanted.num_fields):
        field = wanted.field(at)
        places = present.get_all_field_indices(field.name)
        if len(places) > 1:
            raise ValueError(f"the column {name}.{field.name!r} occurs {len(places)} times")
        if places:
            check(present.field(places[0]).type, field.type, f"{name}.{field.name}")
