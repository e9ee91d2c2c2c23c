from __future__ import annotations

import pytest

from mtl.wire.quantities import duration, microseconds, size


@pytest.mark.parametrize(
    ("text", "octets"),
    [
        ("1", 1),
        ("64m", 64 << 20),
        ("64 MiB", 64 << 20),
        ("10kb", 10 << 10),
        (" 2G ", 2 << 30),
        ("1t", 1 << 40),
    ],
)
def test_a_size_is_parsed(text: str, octets: int) -> None:
    assert size(text) == octets


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5m", "64 megs", "8388608t", "9" * 5000, "\u0663"])
def test_an_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size, such as"):
        size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("5s", 5.0), ("15 min", 900.0), ("1.5 h", 5400.0), (" 7D ", 604_800.0)],
)
def test_a_duration_is_parsed(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "0s", "-5s", "5 weeks", "s", "1e3s"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration, such as"):
        duration(text)


@pytest.mark.parametrize("text", ["40000d", "9" * 400 + "s"])
def test_a_duration_of_centuries_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is longer than 36600 days; check the unit"):
        duration(text)
    with pytest.raises(ValueError, match="is longer than 2 days"):
        duration("3d", 2 * 86_400.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00.000001+01:00", 1),
        (" 2026-01-31T12:00:00Z ", 1_769_860_800_000_000),
    ],
)
def test_a_time_with_zone_is_parsed(text: str, expected: int) -> None:
    assert microseconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", "yesterday", "17", "2026-01-31T12:00:00", "1969-12-31T23:59:59Z", "2026-13-01"]
)
def test_a_time_in_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an ISO 8601 time with its zone"):
        microseconds(text)
