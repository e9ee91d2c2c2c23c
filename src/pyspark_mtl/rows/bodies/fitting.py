"""Checks decoded values before they reach Arrow, which fails in two ways for some of them.

It reads out of bounds for a decimal with a large negative exponent: the process ends, or the result is another number.
And it changes values silently: NaN of a decimal becomes null, and a number beyond 32-bit floats becomes infinite.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

from pyarrow import types

Fit = Callable[[Any], Any]
"""Takes a value of msgspec's type for a column (not null), and returns the value for Arrow. Raises Unfit."""

_SHOWN = 40
"""Characters of a refused number that a message shows: it may have millions of digits."""


class Unfit(ValueError):
    """A value that its column cannot hold. `path` is its place in the row, as in messages of msgspec."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = ""

    def __str__(self) -> str:
        return f"{self.reason} - at `${self.path}`"


def fit_of_row(fields: Iterable[Any]) -> Fit | None:
    """The check of a row (a dict, changed in place) with these fields, or None if its types need no check."""
    checks = {field.name: fit for field in fields if (fit := _fit(field.type)) is not None}
    if not checks:
        return None

    def of_row(row: Any) -> Any:
        for name, fit in checks.items():
            value = row.get(name)
            if value is not None:
                row[name] = _at(f".{name}", fit, value)
        return row

    return of_row


def _fit(kind: Any) -> Fit | None:
    if types.is_decimal(kind):
        return _decimal(kind.precision, kind.scale)
    if types.is_float32(kind):
        return _float32
    if types.is_struct(kind):
        return fit_of_row(kind.field(at) for at in range(kind.num_fields))
    if types.is_list(kind):
        return _list(_fit(kind.value_type))
    if types.is_map(kind):
        return _map(_fit(kind.item_type))
    return None


def _list(fit: Fit | None) -> Fit | None:
    if fit is None:
        return None
    return lambda values: [None if value is None else _at("[...]", fit, value) for value in values]


def _map(fit: Fit | None) -> Fit | None:
    if fit is None:
        return None
    return lambda values: {
        key: None if value is None else _at("[...]", fit, value) for key, value in values.items()
    }


def _at(place: str, fit: Fit, value: Any) -> Any:
    try:
        return fit(value)
    except Unfit as unfit:
        unfit.path = place + unfit.path
        raise


def _decimal(precision: int, scale: int) -> Fit:
    """Digits that are not zero are never rounded away; zeros at the end are added or removed."""
    unit = Decimal(1).scaleb(-scale)
    exact = Context(prec=precision, traps=[Inexact, InvalidOperation])

    def decimal(value: Decimal) -> Decimal:
        if value.is_finite():
            try:
                return value.quantize(unit, context=exact)
            except (Inexact, InvalidOperation):
                pass
        raise Unfit(f"Expected a decimal({precision},{scale}), got `{_shown(value)}`")

    return decimal


def _shown(value: Decimal) -> str:
    digits = len(value.as_tuple().digits)
    return str(value) if digits <= _SHOWN else f"a number of {digits} digits"


def _float32(value: float) -> float:
    if math.isfinite(value):
        try:
            struct.pack("<f", value)
        except OverflowError:
            raise Unfit(f"Expected a float of 32 bits, got `{value}`") from None
    return value
