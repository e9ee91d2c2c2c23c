"""The kinds of option values: strict parsers. Pure.

A parser takes the text from Spark and returns the value, or raises ValueError with the rest of the sentence "option
x: ...". It does not guess: a number without a unit, for example, is not a duration. The sentence never quotes the
value, which may be a password in the wrong option; an exception reaches logs and Spark's event log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mtl.limits import MAX_SHORT_STRING
from mtl.wire import quantities
from pyspark_mtl.limits import LONGEST_WAIT_S, MAX_NAMES

BOOLEANS = {"true": True, "false": False}

LARGEST = (1 << 63) - 1
"""The largest bigint of Spark: sequences and limits above it cannot be passed to Spark."""


@dataclass(frozen=True)
class ReadPosition:
    """Where reading begins or ends in one resource. `value` is a sequence, or a time in µs since 1970 (UTC)."""

    kind: Literal["earliest", "latest", "group", "sequence", "time"]
    value: int = 0


@dataclass(frozen=True)
class ReadPositions:
    """A position for each resource: its position in `named`, else `default`."""

    default: ReadPosition | None
    named: Mapping[str, ReadPosition] = field(default_factory=dict)

    def of(self, resource: str, otherwise: ReadPosition) -> ReadPosition:
        """The position of `resource`; `otherwise` if it is neither in `named` nor covered by a default."""
        return self.named.get(resource, self.default or otherwise)

    def uses(self, kind: str) -> bool:
        """Whether any resource's position is of this kind."""
        return any(position.kind == kind for position in (self.default, *self.named.values()) if position)


EARLIEST = ReadPosition("earliest")
LATEST = ReadPosition("latest")
GROUP = ReadPosition("group")

_WORDS = {"earliest": EARLIEST, "latest": LATEST, "group": GROUP}
_NUMBERS = {-2: EARLIEST, -1: LATEST}  # Kafka's


def text(value: str) -> str:
    """Text that is not empty, without the blanks around it."""
    if not value.strip():
        raise ValueError("it is empty")
    return value.strip()


def secret(value: str) -> str:
    """Text that is not empty, unchanged; never shown in an error."""
    if not value:
        raise ValueError("it is empty")
    return value


def name(value: str) -> str:
    """The name of a resource, group, application or virtual host: it fits an RFC 11 short string."""
    parsed = text(value)
    if len(parsed.encode()) > MAX_SHORT_STRING:
        raise ValueError(f"a name has at most {MAX_SHORT_STRING} octets")
    if any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in parsed):
        raise ValueError("a name has no control characters")
    return parsed


def boolean(value: str) -> bool:
    """True or false, in upper or lower case; Spark passes booleans as text."""
    parsed = BOOLEANS.get(value.strip().lower())
    if parsed is None:
        raise ValueError("it is neither true nor false")
    return parsed


def count(value: str) -> int:
    """A whole number from 1."""
    return _parse_integer(value, 1)


def version(value: str) -> int:
    """A whole number from 0."""
    return _parse_integer(value, 0)


def _parse_integer(value: str, least: int) -> int:
    digits = value.strip()
    if not (digits.isascii() and digits.isdigit()) or not least <= int(digits) <= LARGEST:
        raise ValueError(f"it is not a whole number from {least} to {LARGEST}")
    return int(digits)


def duration(value: str) -> float:
    """Seconds to wait, more than 0: a number with its unit, such as 500ms, 5s, 15m, 2h or 1d."""
    return quantities.duration(value, LONGEST_WAIT_S)


def names(value: str) -> tuple[str, ...]:
    """Names of resources or groups, separated by commas; or a JSON array, for names that hold a comma. Sorted."""
    if value.strip().startswith("["):
        items = _json(value)
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise ValueError('a JSON array of names looks like ["orders", "returns"]')
    else:
        items = value.split(",")
    parsed = tuple(sorted(name(item) for item in items))
    if len(set(parsed)) != len(parsed):
        raise ValueError("a name occurs twice")
    if not 1 <= len(parsed) <= MAX_NAMES:
        raise ValueError(f"it has {len(parsed)} names; 1 to {MAX_NAMES} can be given together")
    return parsed


def pattern(value: str) -> str:
    """A regular expression in RE2's syntax, as the broker requires, that matches whole names."""
    expression = text(value)
    matches(expression, "")
    return expression


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern matches the whole name. ValueError for an invalid pattern."""
    # RE2 is part of Arrow, which is imported here because nothing else in this module needs it. The syntax of
    # Python's `re` is different.
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    try:
        matching = pc.match_substring_regex(pa.array([name], pa.string()), rf"\A(?:{pattern})\z")
    except pa.ArrowInvalid:  # whose text quotes the pattern
        raise ValueError("it is not a regular expression in RE2's syntax") from None
    return bool(matching[0].as_py())


def starting(value: str) -> ReadPositions:
    """earliest, latest, group, or a JSON object from name to one of these or a sequence (also Kafka's -2 and -1)."""
    return _positions(value, _start_of, "earliest, latest, group")


def ending(value: str) -> ReadPositions:
    """Latest, or a JSON object from name to "latest" (or -1) or to the sequence to end before."""
    return _positions(value, _end_of, "latest")


def instant(value: str) -> ReadPositions:
    """One time for all resources."""
    return ReadPositions(ReadPosition("time", _microseconds(value)))


def instants(value: str) -> ReadPositions:
    """A JSON object from name to time."""
    return ReadPositions(
        None, {key: ReadPosition("time", _microseconds(time)) for key, time in _object(value).items()}
    )


def one_of(*words: str) -> Any:
    """A parser for one of `words`, in upper or lower case."""

    def parse(value: str) -> str:
        word = value.strip().lower()
        if word not in words:
            raise ValueError(f"it is not one of {', '.join(words)}")
        return word

    parse.__doc__ = ", ".join(words)
    return parse


def _positions(value: str, parse: Any, words: str) -> ReadPositions:
    if value.strip().startswith("{"):
        return ReadPositions(None, {key: parse(item) for key, item in _object(value).items()})
    try:
        return ReadPositions(parse(value.strip().lower()))
    except ValueError:
        raise ValueError(f"it is neither one of {words} nor a JSON object from resource to place") from None


def _start_of(value: object) -> ReadPosition:
    if isinstance(value, str) and value in _WORDS:
        return _WORDS[value]
    if type(value) is int and (value in _NUMBERS or 1 <= value <= LARGEST):
        return _NUMBERS.get(value) or ReadPosition("sequence", value)
    raise ValueError("a place to start at is earliest, latest, group or a sequence from 1")


def _end_of(value: object) -> ReadPosition:
    position = _start_of(value)
    if position.kind in {"earliest", "group"}:
        raise ValueError("a place to end at is latest or a sequence from 1")
    return position


def _microseconds(value: object) -> int:
    """A time in µs, from Kafka's milliseconds since 1970 or ISO 8601 with a time zone."""
    written = str(value).strip()  # a boolean becomes "True", which has no digits
    if written.isascii() and written.isdigit() and int(written) <= LARGEST // 1000:
        return int(written) * 1000
    try:
        return quantities.microseconds(written)
    except ValueError:
        raise ValueError(
            "it is not a time; give milliseconds since 1970 or ISO 8601 with a time zone, such as 2026-01-31T12:00:00Z"
        ) from None


def _object(value: str) -> dict[str, Any]:
    members = _json(value)
    if not isinstance(members, dict) or not members:
        raise ValueError("a JSON object from resource to value is needed")
    return {name(key): item for key, item in members.items()}


def _json(value: str) -> Any:
    try:
        return json.loads(value, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from error


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name occurs twice")
    return members
