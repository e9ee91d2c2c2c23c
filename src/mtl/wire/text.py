"""A field's value as text, for protocols and tables that have no other type.

Integers and decimals in digits, booleans true and false, times in ISO 8601, octets in base64, arrays and tables in
JSON, no value as None. Spark's map<string,string> and the front doors' headers use this form.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from decimal import Decimal

from mtl.wire.fields import Value


def text(value: Value) -> str | None:
    """A field's value as text; None for no value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    if isinstance(value, list | dict):
        return json.dumps(value, default=_in_json, ensure_ascii=False, separators=(",", ":"))
    return str(value)


def _in_json(value: bytes | datetime | Decimal) -> str | None:
    return text(value)
