from __future__ import annotations

import pytest

from mtl.wire.times import microseconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00.000001+01:00", 1),
        (" 2026-01-31T12:00:00Z ", 1_769_860_800_000_000),
    ],
)
def test_a_time_with_its_zone(text: str, expected: int) -> None:
    assert microseconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", "yesterday", "17", "2026-01-31T12:00:00", "1969-12-31T23:59:59Z", "2026-13-01"]
)
def test_anything_else_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="not an ISO 8601 time with its zone"):
        microseconds(text)
