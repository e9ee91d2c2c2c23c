"""MicroMessage2 messages as contents, and back. Pure functions, for both ends.

Numbers, dates and texts keep their types. A date with a fraction of a second, or before 1970, does not fit a field: it
is stored as text in ISO 8601, and the property `micromessage-dates` marks it as a date. A property whose name is not a
FIELD is sent as `x-name-` and the name's UTF-8 in hex, which is reversible. `topic/x` and the queue `x` are the same
resource, read in two ways.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite

import msgspec

from mtl.doors.micromessage.negotiation import DOTNET, JSON, Agreed
from mtl.doors.micromessage.session import MessageArrived, check_json
from mtl.doors.micromessage.values import FilterValue, is_field
from mtl.doors.properties import CONTENT_TYPE
from mtl.errors import Malformed
from mtl.wire.fields import Value
from mtl.wire.text import text

TOPIC = "topic/"
"""Prefix of destinations that are topics; all others are queues (MM2-38)."""

TYPE = "dotnet-type"
"""The property with the .NET type of the dotnet extension."""

DATES = "micromessage-dates"
"""The property that lists the dates that are stored as texts: FIELDs separated by commas."""

_NAME = "x-name-"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def resource(destination: str) -> str:
    """The resource that a destination stands for."""
    return destination.removeprefix(TOPIC)


def is_topic(destination: str) -> bool:
    """Whether all subscribers get each message (MM2-63), or one of them (MM2-64)."""
    return destination.startswith(TOPIC)


def from_message(message: MessageArrived, agreed: Agreed) -> dict[str, Value]:
    """A message's properties as those of a content; the body is its payload."""
    given = message.properties
    properties = {_name(name): _value(value) for name, value in given.items()}
    dates = [_field(_name(name)) for name, value in given.items() if _is_text_as_date(value)]
    if dates:
        properties[DATES] = ",".join(dates)
    if DOTNET in agreed and message.type is not None:
        properties[TYPE] = message.type
    if JSON in agreed:
        properties.setdefault(CONTENT_TYPE, "application/json")
    return properties


def to_message(properties: Mapping[str, Value], agreed: Agreed) -> tuple[dict[str, FilterValue], str | None]:
    """A content's properties as those of a message, and its type for the dotnet extension."""
    left = dict(properties)
    type_name = left.pop(TYPE, None) if DOTNET in agreed else None
    dates = str(left.pop(DATES, "")).split(",")
    converted = {_field(name): _filter_value(value) for name, value in left.items()}
    for name in dates:
        date = _date(converted.get(name))
        if date is not None:
            converted[name] = date
    return converted, text(type_name)


def as_json(body: bytes) -> bytes:
    """The body if it is JSON; otherwise a JSON string of its text, or of its base64 if it is not UTF-8."""
    try:
        check_json(body)
    except Malformed:
        try:
            return msgspec.json.encode(body.decode())
        except UnicodeDecodeError:
            return msgspec.json.encode(base64.b64encode(body).decode())
    return body


def _field(name: str) -> str:
    plain = is_field(name) and not name.startswith(_NAME)
    return name if plain else _NAME + name.encode().hex()


def _name(given: str) -> str:
    if given.startswith(_NAME):
        try:
            return bytes.fromhex(given.removeprefix(_NAME)).decode()
        except ValueError:
            pass  # the property of another application
    return given


def _value(value: FilterValue) -> Value:
    if isinstance(value, datetime) and _is_text_as_date(value):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    return value


def _is_text_as_date(value: FilterValue) -> bool:
    """Whether it is a date that does not fit a field: fields have whole seconds from 1970 on."""
    return isinstance(value, datetime) and (value.microsecond != 0 or value < _EPOCH)


def _date(value: FilterValue | None) -> datetime | None:
    """The date whose text `_value` returned; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        return datetime.strptime(value, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def _filter_value(value: Value) -> FilterValue:
    if isinstance(value, Decimal) and value.is_finite() and isfinite(float(value)):
        return int(value) if value == value.to_integral_value() and abs(value) < 1 << 63 else float(value)
    if isinstance(value, datetime | float | int) and not isinstance(value, bool):
        return value if not isinstance(value, float) or isfinite(value) else str(value)
    return text(value) or ""
