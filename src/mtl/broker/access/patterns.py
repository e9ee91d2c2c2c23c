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

from mtl.broker.limits import MAX_PATTERN_COST, MAX_PATTERN_WORK
from mtl.errors import Refused
from mtl.wire.control import BAD_ARGUMENTS

_COUNTED = re.compile(r"\{(\d*),?(\d*)\}")


def matching(pattern: str, names: Sequence[str]) -> list[bool]:
    """For each name whether the pattern matches all of it. Raises `Refused` 400 for an invalid or too large pattern."""
    _check(pattern)
    work = len(pattern) * sum(map(len, names))
    if work > MAX_PATTERN_WORK:
        raise Refused(
            400,
            BAD_ARGUMENTS,
            f"the pattern is too large for {len(names)} names: {len(pattern)} characters times those of all names is "
            f"{work}, above {MAX_PATTERN_WORK}",
        )
    found = pc.match_substring_regex(pa.array(names, pa.string()), _anchored(pattern))
    return [bool(x) for x in found.to_pylist()]


def _anchored(pattern: str) -> str:
    return rf"\A(?:{pattern})\z"


def is_pattern(pattern: str) -> bool:
    """Whether `matching` accepts this pattern."""
    try:
        _check(pattern)
    except Refused:
        return False
    return True


@lru_cache(maxsize=256)
def _check(pattern: str) -> None:
    r"""Check a pattern, alone and within the brackets of `_anchored`: brackets can make an invalid pattern valid, and a
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
