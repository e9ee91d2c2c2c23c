"""Sizes, durations and times as people write them, for command lines and options. Strict: nothing is guessed.

A parser raises ValueError with examples of valid values. It does not quote the value, which may be a password in the
wrong place.
"""

from __future__ import annotations

import re
from datetime import datetime

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?", re.ASCII)

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.ASCII)

_LARGEST = (1 << 63) - 1
"""The largest number that a request and Spark's bigint can hold."""

LONGEST_S = 100 * 366 * 86_400.0
"""Longest duration: a hundred years. A longer one is taken for a mistyped unit."""


def size(text: str) -> int:
    """Octets, from 1: a number, or one with k, m, g or t (of 1,024), such as 64m."""
    match = _SIZE.fullmatch(text.strip().lower())
    octets = int(match[1]) * _UNITS[match[2]] if match and len(match[1]) < 20 else 0
    if not 1 <= octets <= _LARGEST:
        raise ValueError("it is not a size, such as 1048576, 64m or 1g")
    return octets


def duration(text: str, longest: float = LONGEST_S) -> float:
    """Seconds, more than 0 and at most `longest`: a number with its unit, such as 500ms, 5s, 15m, 2h or 1d."""
    match = _DURATION.fullmatch(text.strip().lower())
    seconds = float(match[1]) * _SECONDS.get(match[2], 0.0) if match else 0.0
    if not seconds > 0.0:
        raise ValueError("it is not a duration, such as 500ms, 5s, 15m or 7d")
    if seconds > longest:
        raise ValueError(f"it is longer than {longest / 86_400:.0f} days; check the unit")
    return seconds


def microseconds(text: str) -> int:
    """A time in µs since 1970, UTC: ISO 8601 with its zone, such as 2026-01-31T12:00:00Z, not before 1970."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or moment.timestamp() < 0:
        raise ValueError("it is not an ISO 8601 time with its zone, such as 2026-01-31T12:00:00Z")
    return round(moment.timestamp() * 1_000_000)
