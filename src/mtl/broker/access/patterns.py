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


def matching(pattern: str, names: Sequence[str]) -> list[bool]:
    """For each name whether the pattern matches all of it. Raises `Refused` 400 for an invalid or too large pattern.

    The time is bounded for `names_at_once` names.
    """
    check(pattern)
    found = pc.match_substring_regex(pa.array(names, pa.string()), _anchored(pattern))
    return [bool(x) for x in found.to_pylist()]


def names_at_once(pattern: str | None) -> int:
    """The number of names that are compared with the pattern at a time (MAX_PATTERN_WORK); of None, for one page."""
    if not pattern:
        return MAX_PAGE_SCANNED
    return max(1, min(MAX_PAGE_SCANNED, MAX_PATTERN_WORK // (len(pattern) * MAX_SHORT_STRING)))


@lru_cache(maxsize=MAX_MATCHES_REMEMBERED)
def matches(pattern: str, name: str) -> bool:
    """Whether the pattern, which was checked, matches the whole name."""
    return matching(pattern, [name])[0]


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
    counts = (max(int(x or 1) for x in found.groups()) for found in _COUNTED.finditer(pattern))
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
