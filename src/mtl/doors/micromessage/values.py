"""The elements of MicroMessage2's strings: FIELD, FILTER_VALUE, pairs and lists of them. Pure functions.

    FIELD          lower-case letters, digits, hyphen                         (MM2-62)
    FILTER_VALUE   N17, N-1.5 | D1413198000.0 | THello%20%22world%22          (MM2-57)
    properties     key:FILTER_VALUE;key:FILTER_VALUE;                         (MM2-39)
    command        name;key=value,key=value                                   (MM2-43)

Numbers are int or float, dates datetime in UTC with µs, texts str. A value without one of the three prefixes is a text,
as in the document's own example; so is a value that is invalid for its prefix (`Nora`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import TypeAlias, TypeVar
from urllib.parse import quote, unquote_to_bytes

from mtl.errors import FieldError, Malformed

T = TypeVar("T")

FilterValue: TypeAlias = int | float | datetime | str

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_FIELD = re.compile(r"[a-z0-9-]+")
_LENIENT = re.compile(r"[A-Za-z0-9_-]+")
_SHORT = re.compile(r"[0-9]{1,18}")
"""The form of most numbers: sequences, counts, whole times."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,4})?")
_DATE = re.compile(r"(-?)([0-9]{1,12})(?:\.([0-9]{1,20}))?")


def is_field(name: str) -> bool:
    """Whether a name is a FIELD in the strict sense, which applies to sent names."""
    return _FIELD.fullmatch(name) is not None


def read_field(name: str) -> str:
    """The name, if it is a FIELD; upper case and underscores are accepted, as the document's examples have them."""
    if _LENIENT.fullmatch(name) is None:
        raise Malformed(f"{name[:40]!r} is not a name: letters, digits and hyphens are")
    return name


def ascii_text(data: bytes, noun: str) -> str:
    """Octets that have to be ASCII. Raises `Malformed`."""
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise Malformed(f"{noun} is not ASCII") from None


# --- URL encoding ---------------------------------------------------------------------------------------------


def url_encoded(text: str) -> str:
    """Every octet of its UTF-8 that is not a letter, a digit or one of _.-~ as %XX. Raises `FieldError`."""
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise FieldError(f"{text[:40]!r} is not Unicode text") from None


def url_decoded(text: str) -> str:
    """The text again. Raises `Malformed` where it is not UTF-8; a % without two digits is itself."""
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise Malformed("a URL-encoded value is not UTF-8") from None


# --- FILTER_VALUE ---------------------------------------------------------------------------------------------


def encode_value(value: FilterValue) -> str:
    """A value with its prefix. Raises `FieldError` for values without a text form: NaN, an integer above 64 bits."""
    if isinstance(value, str):
        return "T" + url_encoded(value)
    if isinstance(value, datetime):
        micro = (value.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
        whole, part = divmod(abs(micro), 1_000_000)
        fraction = f"{part:06d}".rstrip("0") or "0"
        return f"D{'-' if micro < 0 else ''}{whole}.{fraction}"
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise FieldError(f"{value} does not fit 64 bits")
    if not isfinite(value):
        raise FieldError(f"{value} is not a number in text form")
    return f"N{value!r}"


def decode_value(text: str) -> FilterValue:
    """The value of a FILTER_VALUE. Raises `Malformed` for a number above 64 bits (MM2-58) or a date after year 9999."""
    prefix, rest = text[:1], text[1:]
    if prefix == "T":
        return url_decoded(rest)
    if prefix == "N" and _SHORT.fullmatch(rest):
        return int(rest)
    if prefix == "N" and _NUMBER.fullmatch(rest):
        return _number(rest)
    if prefix == "D" and (date := _DATE.fullmatch(rest)):
        return _date(date)
    return url_decoded(text)


def _number(text: str) -> int | float:
    if _INTEGER.fullmatch(text):
        whole = int(text)
        if -(1 << 63) <= whole < 1 << 63:
            return whole
        raise Malformed(f"the number {text} does not fit 64 bits")
    value = float(text)
    if not isfinite(value):
        raise Malformed(f"the number {text[:40]} is out of range")
    return value


def _date(match: re.Match[str]) -> datetime:
    sign, whole, fraction = match.groups()
    since = int(whole) * _SECOND + timedelta(microseconds=int(((fraction or "") + "000000")[:6]))
    try:
        return _EPOCH - since if sign else _EPOCH + since
    except OverflowError:
        raise Malformed(f"the date {match[0]} is out of range") from None


# --- pairs ----------------------------------------------------------------------------------------------------


def encode_properties(properties: Mapping[str, FilterValue]) -> str:
    """`key:value;` for each. Raises `FieldError` for a key that is not a FIELD."""
    return "".join(f"{_strict(name)}:{encode_value(value)};" for name, value in properties.items())


def encode_whole(name: str, number: int) -> str:
    """The same for one property, a FIELD with a number of 64 bits: often the only one that differs between messages."""
    return f"{name}:N{number};"


def decode_properties(text: str) -> dict[str, FilterValue]:
    """The properties of a message. Raises `Malformed`, also for a duplicate key."""
    return _unique((pair(part, ":") for part in parts(text, ";")), decode_value)


def encode_arguments(arguments: Mapping[str, str]) -> str:
    """`key=value,key=value`, values URL-encoded. Raises `FieldError`."""
    return ",".join(f"{_strict(name)}={url_encoded(value)}" for name, value in arguments.items())


def decode_arguments(text: str, separators: str = "=") -> dict[str, str]:
    """Parse arguments; any of `separators` is between key and value. Raises `Malformed`."""
    return _unique((pair(part, separators) for part in parts(text, ",")), url_decoded)


def parts(text: str, separator: str) -> list[str]:
    """The parts between separators; a separator at the end adds no empty part."""
    texts = text.split(separator)
    return texts[:-1] if not texts[-1] else texts


def pair(text: str, separators: str) -> tuple[str, str]:
    """Key and value, at the first of any of the separators. Raises `Malformed`."""
    if len(separators) == 1:
        at = text.find(separators)
    else:
        at = min((place for separator in separators if (place := text.find(separator)) >= 0), default=-1)
    if at < 0:
        raise Malformed(f"{text[:40]!r} is not key{separators[0]}value")
    return read_field(text[:at]), text[at + 1 :]


def _unique(pairs: Iterable[tuple[str, str]], decode: Callable[[str], T]) -> dict[str, T]:
    values: dict[str, T] = {}
    for name, value in pairs:
        if name in values:
            raise Malformed(f"{name[:40]!r} is given twice")
        values[name] = decode(value)
    return values


def _strict(name: str) -> str:
    if not is_field(name):
        raise FieldError(f"{name[:40]!r} is not a FIELD: lower-case letters, digits and hyphens are")
    return name
