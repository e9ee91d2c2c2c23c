from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.client.contents import Content
from mtl.doors.mc0.codec import Mc0Message, Verb, encode
from mtl.doors.mc0.contents import PutTables, SubscriptionFrames, from_message, to_content, to_message
from mtl.doors.mc0.session import Put
from mtl.errors import Refused
from mtl.wire.fields import Value, encode_properties, encode_table


def content(body: bytes, properties: dict[str, Value]) -> Content:
    return Content("t", 7, encode_table(properties), body)


@pytest.mark.requirement("MC0-27")
@given(st.lists(st.binary(max_size=5), max_size=5), st.dictionaries(st.sampled_from("abc"), st.text("xyz")))
def test_a_message_has_frames_and_headers_of_its_put(frames: list[bytes], headers: dict[str, str]) -> None:
    body, properties = to_content(Put("t", tuple(headers.items()), tuple(frames)))
    assert body == b"".join(frames)
    message = to_message(content(body, properties))
    assert message.verb is Verb.MESSAGE
    assert message.positional == tuple(frames)
    expected = {"TOPIC": "t", **{f"X-{k}": v for k, v in headers.items()}, "X-mtl-sequence": "7"}
    assert message.headers == expected
    assert from_message(message) == ("t", 7, headers, body)


@pytest.mark.parametrize("lengths", [[1], [1, 5], [-1, 3], ["a"], "text", [True, 1]])
def test_lengths_that_do_not_match_the_body_are_an_ordinary_property(lengths: Value) -> None:
    message = to_message(content(b"ab", {"mc0-frames": lengths}))
    assert message.positional == (b"ab",)
    assert "X-mc0-frames" in message.headers


def test_a_reserved_name_is_refused() -> None:
    with pytest.raises(Refused, match="broker's"):
        to_content(Put("t", (("mtl-sequence", "1"),), (b"",)))


HEADERS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=2)


@given(st.lists(st.tuples(HEADERS, st.lists(st.binary(max_size=3), max_size=2)), max_size=8))
def test_cached_properties_equal_those_of_single_messages(
    puts: list[tuple[dict[str, str], list[bytes]]],
) -> None:
    tables, deliveries = PutTables(), SubscriptionFrames()
    for headers, frames in puts:
        put = Put("t", tuple(headers.items()), tuple(frames))
        body, properties = to_content(put)
        assert tables.of(put) == (body, encode_properties(properties))
        stored = content(body, properties)
        assert deliveries.frames(stored) == encode(to_message(stored))


def test_a_reserved_name_is_refused_after_a_cached_message() -> None:
    tables = PutTables()
    tables.of(Put("t", (("a", "1"),), (b"",)))
    with pytest.raises(Refused, match="broker's"):
        tables.of(Put("t", (("mtl-sequence", "1"),), (b"",)))
    assert tables.of(Put("t", (("a", "1"),), (b"x",))) == (b"x", encode_properties({"a": "1"}))


def test_a_message_of_another_middleware_has_no_sequence() -> None:
    message = Mc0Message(Verb.MESSAGE, {"TOPIC": "t", "X-mtl-sequence": "many"}, None)
    assert from_message(message) == ("t", None, {}, b"")
