from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.doors.limits import MBWS_ALIKE, MBWS_ENTRIES
from mtl.doors.mbws.codec import (
    LAST_NUMBER,
    Acknowledge,
    CachingDecoder,
    Connect,
    Frame,
    Kind,
    Message,
    NotText,
    decode,
    encode,
)
from mtl.errors import FieldError, Malformed

MESSAGE = Message(("a",), b"hi", "text/plain", (("k", "v"),))

VECTORS: list[tuple[Frame, str, str]] = [
    (Connect(), "010000", "1 0 0 "),
    (Connect("c1"), "0102633100", "1 2 c10 "),
    (Connect("c1", (5, 3, 7)), "0102633103050307", "1 2 c13 5 3 7 "),
    (Connect("c1", (6,)), "010263310106", "1 2 c11 6 "),
    (Acknowledge(300), "02ac02", "2 300 "),
    (MESSAGE, "030101610a746578742f706c61696e01016b01766869", "3 1 1 a10 text/plain1 1 k1 vhi"),
    (Message((), b""), "03000000", "3 0 0 0 "),
]


@pytest.mark.requirement("MBWS-46", "MBWS-47", "MBWS-48", "MBWS-49", "MBWS-53", "MBWS-56")
@pytest.mark.parametrize(("frame", "binary", "_"), VECTORS)
def test_golden_binary_frames(frame: Frame, binary: str, _: str) -> None:
    octets = bytes.fromhex(binary)
    assert encode(frame, Kind.BINARY) == octets
    assert decode(octets) == frame


@pytest.mark.requirement("MBWS-46", "MBWS-50", "MBWS-51", "MBWS-52", "MBWS-54", "MBWS-56")
@pytest.mark.parametrize(("frame", "_", "text"), VECTORS)
def test_golden_text_frames(frame: Frame, _: str, text: str) -> None:
    assert encode(frame, Kind.TEXT) == text
    assert decode(text) == frame


@pytest.mark.requirement("MBWS-15")
@pytest.mark.parametrize("kind", Kind)
def test_a_message_frame_has_no_number(kind: Kind) -> None:
    """A frame is its type, addresses, content type, properties and body, to the last octet."""
    shortest = Message((), b"")
    assert encode(shortest, kind) == {Kind.BINARY: b"\3\0\0\0", Kind.TEXT: "3 0 0 0 "}[kind]
    assert decode(encode(MESSAGE, kind)) == MESSAGE
    assert Message.__struct_fields__ == ("addresses", "body", "content_type", "properties")


@pytest.mark.requirement("MBWS-43")
@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("count", [0, 1, 2, 300, MBWS_ENTRIES])
def test_any_number_of_properties_has_any_text(count: int, kind: Kind) -> None:
    texts = ["", "ü✓𝄞", "1 3 ", "\0\n\r\t", "mtl-", "text/plain", "a=b;c", "x" * 300]
    properties = tuple((texts[n % 8] + str(n // 8), texts[(n + n // 8) % 8]) for n in range(count))
    frame = Message(("a",), b"body", "t/t", properties)
    assert decode(encode(frame, kind)) == frame


@pytest.mark.requirement("MBWS-42")
@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("content_type", ["", "text/plain", "text/plain; charset=utf-8", "x/ü"])
def test_a_content_type_is_text_or_empty(content_type: str, kind: Kind) -> None:
    frame = Message(("a",), b"body", content_type, (("k", "v"),))
    assert decode(encode(frame, kind)) == frame


@pytest.mark.requirement("MBWS-36")
def test_the_order_of_the_header() -> None:
    """Addresses, content type, properties: all with lengths, each of which may be 0."""
    frame = Message(("a", "b"), b"", "t/t", (("", ""), ("n", "v")))
    assert encode(frame, Kind.TEXT) == "3 2 1 a1 b3 t/t2 0 0 1 n1 v"
    assert decode("3 2 1 a1 b3 t/t2 0 0 1 n1 v") == frame


@pytest.mark.requirement("MBWS-55")
def test_a_length_counts_octets_or_characters() -> None:
    frame = Message(("ü✓",), b"")
    assert encode(frame, Kind.TEXT) == "3 1 2 ü✓0 0 "
    assert encode(frame, Kind.BINARY) == b"\3\1\5" + "ü✓".encode() + b"\0\0"
    assert encode(frame, Kind.BINARY, characters=True) == b"\3\1\2" + "ü✓".encode() + b"\0\0"


@pytest.mark.requirement("MBWS-53")
def test_varints_have_at_most_eight_octets() -> None:
    assert encode(Acknowledge(LAST_NUMBER), Kind.BINARY) == b"\2" + b"\xff" * 7 + b"\x7f"
    assert decode(b"\2" + b"\xff" * 7 + b"\x7f") == Acknowledge(LAST_NUMBER)
    assert decode(b"\2\x85\x80\x00") == Acknowledge(5), "longer than need be is understood"
    with pytest.raises(Malformed, match="8 octets"):
        decode(b"\2" + b"\x80" * 8 + b"\1")
    with pytest.raises(FieldError):
        encode(Acknowledge(LAST_NUMBER + 1), Kind.BINARY)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\0", b"\4", b"\2", b"\2\x80", b"\1\5abc", b"\1\0\2\1", b"\2\1\1", b"\3\1", b"\3\1\2a"),
        *("", "1", "1 ", "4 1 ", "01 0 0 ", "2 5", "2  ", "2 -1 ", "2 ² ", "2 5 5 ", "1 4 abc", "1 0 2 1 "),
        *("2 100000000000000000 ", "2 99999999999999999 ", "3 1 1 a", "3 0 0 1 1 a"),
    ],
)
def test_malformed_frames_are_refused(data: bytes | str) -> None:
    with pytest.raises(Malformed):
        decode(data)


@pytest.mark.requirement("MBWS-55")
@pytest.mark.parametrize("value", ["", "a", "a✓"])
def test_a_last_string_with_fewer_characters_than_its_length_is_refused(value: str) -> None:
    data = b"\3\0\0\1\1k\3" + value.encode()
    with pytest.raises(Malformed, match="ends in the middle of a string"):
        decode(data, characters=True)


@pytest.mark.parametrize(
    ("form", "noun"), [("1 0 {} ", "numbers"), ("3 {} ", "addresses"), ("3 0 0 {} ", "properties")]
)
def test_the_error_for_a_list_that_is_too_long_names_the_list(form: str, noun: str) -> None:
    with pytest.raises(Malformed, match=f"{MBWS_ENTRIES + 1} {noun}; {MBWS_ENTRIES} are the most"):
        decode(form.format(MBWS_ENTRIES + 1))


def test_strings_are_utf8() -> None:
    for characters in (False, True):
        with pytest.raises(NotText):
            decode(b"\1\1\xff\0", characters=characters)
    for kind in Kind:
        with pytest.raises(FieldError, match="surrogate"):
            encode(Connect("\ud800"), kind)
    with pytest.raises(FieldError, match="UTF-8"):
        encode(Message((), b"\xff"), Kind.TEXT)


def test_lists_have_a_limit() -> None:
    assert decode(f"3 {MBWS_ENTRIES} " + "0 " * MBWS_ENTRIES + "0 0 ") == Message(("",) * MBWS_ENTRIES, b"")
    with pytest.raises(Malformed, match="are the most"):
        decode(f"3 {MBWS_ENTRIES + 1} ")


NUMBERS = st.integers(0, LAST_NUMBER)
FRAMES = st.one_of(
    st.builds(Connect, st.text(), st.lists(NUMBERS, max_size=3).map(tuple)),
    st.builds(Acknowledge, NUMBERS),
    st.builds(
        Message,
        st.lists(st.text(), max_size=3).map(tuple),
        st.text().map(str.encode),
        st.text(),
        st.lists(st.tuples(st.text(), st.text()), max_size=3).map(tuple),
    ),
)


@pytest.mark.requirement("MBWS-02")
@given(FRAMES, st.sampled_from(Kind), st.booleans())
def test_an_encoded_frame_is_decoded(frame: Frame, kind: Kind, characters: bool) -> None:
    assert decode(encode(frame, kind, characters=characters), characters=characters) == frame


# --- repeated headers ---------------------------------------------------------------------------------------

ALIKE = [
    Message(("a",), b"1", "t", (("k", "v"), ("n", "1"))),
    Message(("a",), b"2", "t", (("k", "v"), ("n", "2"))),
    Message(("a",), b"", "t", (("k", "v"), ("n", "ü" * 100))),
    Message(("a",), b"4", "t", (("k", "v"),)),
    Message(("a",), b"5", "t"),
    Message(("a",), b"", "t"),
    Message(("a", "b"), b"7", "t"),
    Message(("a",), b"8", "t", (("k" * MBWS_ALIKE, "v"),)),
    Message(("a",), b"9", "t", (("k", "v"), ("n", "1"))),
]


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("characters", [False, True])
def test_the_caching_decoder_agrees_with_the_plain_one(kind: Kind, characters: bool) -> None:
    alike = CachingDecoder(characters=characters)
    frames: list[Frame] = [frame for message in ALIKE for frame in (message, Acknowledge(5), message)]
    assert [alike.decode(encode(frame, kind, characters=characters)) for frame in frames] == frames


def test_the_caching_decoder_refuses_truncated_frames() -> None:
    alike = CachingDecoder()
    whole = encode(Message(("a",), b"", "", (("k", "value"),)), Kind.BINARY)
    assert isinstance(whole, bytes)
    assert alike.decode(whole) == decode(whole)
    for end in range(len(whole)):
        with pytest.raises(Malformed):
            alike.decode(whole[:end])
