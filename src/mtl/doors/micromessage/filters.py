"""Server-side filters of a subscription: which messages a receiver gets (MM2-56 to 60). Pure functions.

    filter      term;term;...                                                 all of them must match
    term        name operator FILTER_VALUE            stock<N10   kind&Torder   at>=D1413198000.0

    operator    numbers and dates     texts (case-sensitive)
    =           equal                 equal
    !=          not equal             not equal
    <           less                  begins with
    >           greater               ends with
    <=  >=      at most, at least     -
    &           -                     contains
    ~           -                     does not contain

A term does not match if the message does not have its property, or has it with another type.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from mtl.doors.limits import MM2_TERMS
from mtl.doors.micromessage.values import FilterValue, decode_value, parts, read_field
from mtl.errors import Malformed

_TERM: Final = re.compile(r"([^<>=!~& ]+) ?(<=|>=|!=|=|<|>|~|&) ?(.*)", re.DOTALL)

_ORDERED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_TEXT: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": str.startswith,
    ">": str.endswith,
    "&": operator.contains,
    "~": lambda text, part: part not in text,
}

OPERATORS: Final[dict[type, dict[str, Callable[[Any, Any], bool]]]] = {
    float: _ORDERED,
    datetime: _ORDERED,
    str: _TEXT,
}
"""The operators of each type of value; float stands for all numbers."""


@dataclass(frozen=True, slots=True)
class Term:
    """One condition. `operator` is one of those that the value's type has."""

    name: str
    operator: str
    value: FilterValue

    def matches(self, properties: Mapping[str, FilterValue]) -> bool:
        """Whether a message with these properties meets it."""
        value = properties.get(self.name)
        if value is None or kind(value) is not kind(self.value):
            return False
        return OPERATORS[kind(value)][self.operator](value, self.value)


def kind(value: FilterValue) -> type:
    """The type that decides how a value is compared."""
    return float if isinstance(value, int) else type(value)


@dataclass(frozen=True, slots=True)
class Filter:
    """All of these terms; none: every message."""

    terms: tuple[Term, ...] = ()

    def matches(self, properties: Mapping[str, FilterValue]) -> bool:
        """Whether a message with these properties is for this receiver."""
        return all(term.matches(properties) for term in self.terms)


def decode_filter(text: str) -> Filter:
    """The filter of its text form. Raises `Malformed`, also for an operator that the value's type does not have."""
    written = parts(text, ";")
    if len(written) > MM2_TERMS:
        raise Malformed(f"a filter of {len(written)} terms; {MM2_TERMS} are the most")
    return Filter(tuple(map(_term, written)))


def _term(text: str) -> Term:
    match = _TERM.fullmatch(text)
    if match is None:
        raise Malformed(f"{text[:40]!r} is not a condition; name, operator and value are expected")
    name, sign, value = read_field(match[1]), match[2], decode_value(match[3])
    if sign not in OPERATORS[kind(value)]:
        words = {float: "numbers", datetime: "dates", str: "texts"}[kind(value)]
        raise Malformed(f"{text[:40]!r}: {words} cannot be compared with {sign}")
    return Term(name, sign, value)
