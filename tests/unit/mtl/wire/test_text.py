from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from mtl.wire.fields import Value
from mtl.wire.text import text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("text", "text"),
        (True, "true"),
        (False, "false"),
        (-7, "-7"),
        (0.5, "0.5"),
        (Decimal("12.50"), "12.50"),
        (b"\x00\xff", "AP8="),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), "2026-01-31T12:00:00Z"),
        ([1, "a", True], '[1,"a",true]'),
        (["ä"], '["ä"]'),
        ({"k": b"\x00", "d": Decimal("1.5")}, '{"k":"AA==","d":"1.5"}'),
    ],
)
def test_text_is_converted_to_a_typed_value(value: Value, expected: str | None) -> None:
    assert text(value) == expected
