from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.doors.micromessage.contents import DATES, as_json, from_message, is_topic, resource, to_message
from mtl.doors.micromessage.negotiation import DOTNET, Agreed
from mtl.doors.micromessage.session import MessageArrived
from mtl.doors.micromessage.values import encode_properties
from mtl.wire.fields import Value
from tests.unit.mtl.doors.micromessage.test_values import TEXT

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

NAMES = TEXT.filter(lambda name: name != DATES)
"""The name of the door's own property is not one of an application."""


def agreed(*names: str) -> Agreed:
    return Agreed({name: n for n, name in enumerate(names, 1)}, None, None, 0)


@given(
    st.dictionaries(
        TEXT.filter(lambda name: name != DATES),
        TEXT | st.integers(-(1 << 63), (1 << 63) - 1) | st.just(NOW),
        max_size=4,
    )
)
def test_properties_are_restored_and_have_valid_names_on_the_wire(properties: dict[str, Value]) -> None:
    message, kind = to_message(properties, agreed())
    encode_properties(message)
    assert kind is None
    assert from_message(MessageArrived("q", message, b""), agreed()) == properties


@pytest.mark.parametrize(
    ("value", "converted"),
    [
        (True, "true"),
        (None, ""),
        (b"\0\xff", "AP8="),
        (1.5, 1.5),
        (float("nan"), "nan"),
        (Decimal("1.5"), 1.5),
        (Decimal(70), 70),
        ([1], "[1]"),
    ],
)
def test_values_without_micromessage_type_become_text(value: Value, converted: object) -> None:
    assert to_message({"k": value}, agreed())[0] == {"k": converted}


@pytest.mark.requirement("MM2-57")
@pytest.mark.parametrize(
    ("date", "value"),
    [
        (NOW, NOW),
        (NOW.replace(microsecond=250_000), "2026-01-02T03:04:05.250000Z"),
        (NOW.replace(year=1900), "1900-01-02T03:04:05.000000Z"),
    ],
)
def test_a_date_outside_of_field_range_is_stored_as_text_and_restored(date: datetime, value: Value) -> None:
    stored = from_message(MessageArrived("q", {"k": date}, b""), agreed())
    assert stored["k"] == value
    assert to_message(stored, agreed()) == ({"k": date}, None)


@given(
    st.dictionaries(
        TEXT.filter(lambda name: name != DATES), TEXT | st.datetimes(timezones=st.just(UTC)), max_size=4
    )
)
def test_dates_and_texts_keep_their_types(properties: dict[str, str | datetime]) -> None:
    sent, _ = to_message(dict(properties), agreed())
    stored = from_message(MessageArrived("q", sent, b""), agreed())
    assert to_message(stored, agreed())[0] == sent


def test_a_date_with_an_encoded_name_is_restored() -> None:
    early = NOW.replace(year=1900)
    stored = from_message(MessageArrived("q", {"Since_When": early}, b""), agreed())
    assert to_message(stored, agreed())[0] == {f"x-name-{b'Since_When'.hex()}": early}


def test_a_text_that_looks_like_a_date_stays_text() -> None:
    stored = from_message(MessageArrived("q", {"a": "1900-01-02T03:04:05.000000Z", "b": NOW}, b""), agreed())
    assert stored == {"a": "1900-01-02T03:04:05.000000Z", "b": NOW}
    assert to_message(stored, agreed())[0] == {"a": "1900-01-02T03:04:05.000000Z", "b": NOW}


def test_a_name_with_an_invalid_encoding_is_left_unchanged() -> None:
    assert from_message(MessageArrived("q", {"x-name-zz": 1}, b""), agreed()) == {"x-name-zz": 1}


def test_a_type_is_a_property_if_the_extension_is_agreed() -> None:
    arrived = MessageArrived("q", {}, b"1", "A.Type")
    assert from_message(arrived, agreed("dotnet", "json")) == {
        "dotnet-type": "A.Type",
        "content-type": "application/json",
    }
    assert to_message({"dotnet-type": "A.Type"}, agreed("dotnet")) == ({}, "A.Type")
    assert to_message({"dotnet-type": "A.Type"}, agreed()) == ({"dotnet-type": "A.Type"}, None)


@pytest.mark.parametrize(
    ("body", "value"), [(b'{"a":1}', {"a": 1}), (b"plain", "plain"), (b"", ""), (b"\xff", "/w==")]
)
def test_every_body_can_be_json(body: bytes, value: object) -> None:
    assert msgspec.json.decode(as_json(body)) == value


def test_a_message_without_a_type_has_no_property_for_one() -> None:
    assert from_message(MessageArrived("q", {}, b""), agreed(DOTNET)) == {}
    assert from_message(MessageArrived("q", {}, b"", "T"), agreed()) == {}


@pytest.mark.requirement("MM2-38")
def test_a_topic_and_a_queue_of_one_name_are_one_resource() -> None:
    assert (resource("topic/a/b"), resource("a/b")) == ("a/b", "a/b")
    assert (is_topic("topic/a"), is_topic("topics/a")) == (True, False)
