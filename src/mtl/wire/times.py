"""Converts times as people write them to the unit of the wire: µs since 1970, UTC."""

from __future__ import annotations

from datetime import datetime


def microseconds(text: str) -> int:
    """ISO 8601 with its zone, such as 2026-01-31T12:00:00Z, not before 1970. ValueError for anything else."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or moment.timestamp() < 0:
        raise ValueError(f"{text!r} is not an ISO 8601 time with its zone, such as 2026-01-31T12:00:00Z")
    return round(moment.timestamp() * 1_000_000)
