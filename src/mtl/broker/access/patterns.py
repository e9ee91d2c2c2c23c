"""Matching of names with a peer's regular expressions, in bounded time.

Python's own `re` backtracks: a pattern of twenty characters can block the process, and so the loop, for years. RE2
(it comes with Arrow) takes time proportional to the pattern and the names; it has neither back references nor
look-around. Counted repetitions multiply the size of a pattern, so the size after expansion is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from math import prod

import pyarrow as pa
import pyarrow.compute as pc

from mtl.broker.limits import MAX_MATCHES_REMEMBERED, MAX_PAGE_SCANNED, MAX_PATTERN_COST, MAX_PATTERN_WORK
from mtl.errors import Refused
from mtl.limits import MAX_SHORT_STRING
from mtl.wire.control import BAD_ARGUMENTS

_COUNTED = re.compile(r"\{(\d*),?(\d*)\}")
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|.", re.DOTALL)
"""An escaped character, a class of characters, or one character."""
_REPETITIONS, _SPECIAL = frozenset("*+?{"), frozenset(".()[]}^$")
_NOT_DIVISIBLE = re.compile(r"\\Q|\(\?[^:]")
"""The beginning of a quoted text, in which no character is special, and of flags, such as (?i)."""


def matching(pattern: str, names: Sequence[str]) -> list[bool]:
    """For each name whether the pattern matches all of it. Raises `Refused` 400 for an invalid or too large pattern.

    The time is bounded for `names_at_once` names.
    """
    check(pattern)
    matches = pc.match_substring_regex(pa.array(names, pa.string()), _anchored(pattern))
    return [bool(x) for x in matches.to_pylist()]


def names_at_once(pattern: str | None) -> int:
    """The number of names that are compared with the pattern at a time (MAX_PATTERN_WORK); of None, for one page."""
    if not pattern:
        return MAX_PAGE_SCANNED
    return max(1, min(MAX_PAGE_SCANNED, MAX_PATTERN_WORK // (len(pattern) * MAX_SHORT_STRING)))


@lru_cache(maxsize=MAX_MATCHES_REMEMBERED)
def matches(pattern: str, name: str) -> bool:
    """Whether the pattern, which was checked, matches the whole name."""
    return matching(pattern, [name])[0]


@lru_cache(maxsize=256)
def beginnings(pattern: str) -> tuple[str, ...]:
    """Texts with one of which each name begins that the pattern matches: a text for each alternative. It may be empty:
    then any name may match.
    """
    if _NOT_DIVISIBLE.search(pattern):
        return ("",)
    alternatives: list[list[str]] = [[]]
    depth = 0
    for part in _PART.findall(pattern):
        depth += (part == "(") - (part == ")")
        if part == "|" and depth == 0:
            alternatives.append([])
        else:
            alternatives[-1].append(part)
    return tuple(map(_beginning, alternatives))


def _beginning(parts: Sequence[str]) -> str:
    """The characters before the first part that stands for others than itself, or may be repeated."""
    literals: list[str] = []
    for part in parts:
        if part in _REPETITIONS:
            return "".join(literals[:-1])
        literal = part[1:] if part[0] == "\\" and not part[1:].isalnum() else part
        if len(literal) > 1 or part in _SPECIAL:
            break
        literals.append(literal)
    return "".join(literals)


def _anchored(pattern: str) -> str:
    return rf"\A(?:{pattern})\z"


def is_pattern(pattern: str) -> bool:
    """Whether `matching` accepts this pattern."""
    try:
        check(pattern)
    except Refused:
        return False
    return True


@lru_cache(maxsize=256)
def check(pattern: str) -> None:
    r"""Raises `Refused` 400 for an invalid or too large pattern.

    It is checked alone, and within the brackets of `_anchored`: brackets can make an invalid pattern valid, and a
    pattern that ends within a quoted text (\Q) invalid.
    """
    counts = (max(int(x or 1) for x in repetition.groups()) for repetition in _COUNTED.finditer(pattern))
    cost = len(pattern) * prod(max(1, n) for n in counts)
    if cost > MAX_PATTERN_COST:
        raise Refused(
            400,
            BAD_ARGUMENTS,
            f"the pattern is too large: {len(pattern)} characters times its counted repetitions is {cost}, above "
            f"{MAX_PATTERN_COST}",
        )
    try:
        for expression in (pattern, _anchored(pattern)):
            pc.match_substring_regex(pa.array([""], pa.string()), expression)
    except pa.ArrowException as e:
        raise Refused(400, BAD_ARGUMENTS, f"{pattern!r} is not a regular expression: {e}") from e
