from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.doors.limits import RS_ELEMENT, RS_PACKED, RS_STREAMS, RS_TEXT
from mtl.doors.reactive import codec
from mtl.errors import FieldError, Malformed
from tests.support.elements import apart

VARINTS = st.integers(0, 2**64 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
OCTETS = st.binary(max_size=300)
EXTENSIONS = st.lists(VARINTS, max_size=3).map(tuple)
FREE = st.one_of(
    st.builds(codec.ClientHello, VARINTS, EXTENSIONS),
    st.builds(codec.ServerHello, VARINTS, EXTENSIONS),
    st.builds(codec.Goodbye, TEXTS),
    st.just(codec.GoodbyeAck()),
    st.builds(codec.Subscribe, TEXTS, VARINTS, VARINTS),
    st.builds(codec.RequestMore, VARINTS, VARINTS),
    st.builds(codec.Cancel, VARINTS),
    st.builds(codec.Subscribed, VARINTS),
    st.builds(codec.OnNext, VARINTS, OCTETS),
    st.builds(codec.OnComplete, VARINTS),
    st.builds(codec.OnError, VARINTS, TEXTS),
    st.builds(codec.OnNextPart, VARINTS, VARINTS, OCTETS),
    st.builds(codec.OnNextLastPart, VARINTS, VARINTS, OCTETS),
)


@st.composite
def of_fixed_size(draw: st.DrawFn) -> list[codec.Message]:
    """A stream of fixed size, and a later stream of another size with the same Id."""
    size = draw(st.integers(1, 20))
    element = st.binary(min_size=size, max_size=size)
    packed = st.builds(codec.OnNextPacked, st.just(7), st.lists(element, max_size=4).map(tuple))
    some = draw(st.lists(st.builds(codec.OnNext, st.just(7), element) | packed, max_size=4))
    return [codec.Subscribed(7, size), *some]


def encoded(messages: list[codec.Message]) -> bytes:
    """Encode as a sender that knows which of its streams have a fixed size."""
    octets = b""
    fixed: set[int] = set()
    for message in messages:
        if isinstance(message, codec.Subscribed):
            (fixed.add if message.element_size else fixed.discard)(message.subscriber)
        subscriber = getattr(message, "subscriber", None)
        octets += codec.encode(message, fixed=subscriber in fixed)
    return octets


def decoded(octets: bytes) -> list[codec.Message]:
    return list(codec.ReactiveDecoder().feed(octets))


@pytest.mark.requirement("RS-03", "RS-04", "RS-21", "RS-28", "RS-31", "RS-32")
@given(st.lists(FREE, max_size=4), of_fixed_size(), of_fixed_size(), st.integers(1, 50))
def test_encoded_messages_are_decoded_from_any_pieces(
    free: list[codec.Message], first: list[codec.Message], second: list[codec.Message], size: int
) -> None:
    messages = [*free, *first, *second, codec.Subscribed(7), codec.OnNext(7, b"of any size")]
    octets = encoded(messages)
    assert apart(decoded(octets)) == messages
    decoder = codec.ReactiveDecoder()
    pieces = [octets[at : at + size] for at in range(0, len(octets), size)]
    assert apart(message for piece in pieces for message in decoder.feed(piece)) == messages
    assert decoder.waiting == 0


ONE_OF_EACH: list[tuple[int, codec.Message]] = [
    (0, codec.ClientHello(300, (1, 2))),
    (1, codec.ServerHello(0, ())),
    (2, codec.Goodbye("the end")),
    (3, codec.GoodbyeAck()),
    (16, codec.Subscribe("a", 300, 1)),
    (17, codec.RequestMore(300, 1)),
    (18, codec.Cancel(300)),
    (32, codec.Subscribed(300)),
    (33, codec.OnNext(300, b"x" * 200)),
    (34, codec.OnComplete(300)),
    (35, codec.OnError(300, "why")),
    (37, codec.OnNextPart(300, 9, b"x")),
    (38, codec.OnNextLastPart(300, 9, b"")),
]


@pytest.mark.requirement("RS-04")
@pytest.mark.parametrize(("number", "message"), ONE_OF_EACH)
def test_a_message_is_its_type_and_contents_that_define_their_end(
    number: int, message: codec.Message
) -> None:
    """Without a length of the whole: no octet fewer is a message, and the next one begins with the octet after it."""
    octets = codec.encode(message)
    assert octets[0] == number, "a varint of one octet"
    for end in range(len(octets)):
        decoder = codec.ReactiveDecoder()
        assert list(decoder.feed(octets[:end])) == []
        assert decoder.waiting == end
    decoder = codec.ReactiveDecoder()
    assert apart(decoder.feed(octets + b"\x83")) == [message]
    assert decoder.waiting == 1
    assert list(decoder.feed(b"\x00")) == [codec.GoodbyeAck()]
    assert decoder.waiting == 0


@pytest.mark.requirement("RS-04")
def test_the_type_is_a_varint() -> None:
    assert decoded(b"\x83\x00") == [codec.GoodbyeAck()], "of any length"
    assert decoded(b"\x83") == []
    for unknown in (b"\x7f", b"\xac\x02", b"\xff" * 9 + b"\x01"):
        with pytest.raises(Malformed):
            decoded(unknown)
    with pytest.raises(Malformed, match="varint"):
        decoded(b"\x80" * 11)


RUN = (b"a", b"", b"b" * 200, b"c" * 20_000, b"d")


@pytest.mark.requirement("RS-21")
def test_consecutive_elements_are_decoded_together() -> None:
    octets = codec.encode(codec.OnNexts(300, RUN))
    assert octets == b"".join(codec.encode(codec.OnNext(300, element)) for element in RUN)
    assert decoded(octets + codec.encode(codec.Cancel(1))) == [codec.OnNexts(300, RUN), codec.Cancel(1)]
    assert decoded(octets + codec.encode(codec.OnNext(301, b"x"))) == [
        codec.OnNexts(300, RUN),
        codec.OnNext(301, b"x"),
    ]
    for end in range(len(octets)):
        decoder = codec.ReactiveDecoder()
        first = list(decoder.feed(octets[:end]))
        assert apart([*first, *decoder.feed(octets[end:])]) == apart([codec.OnNexts(300, RUN)])
    fixed = codec.encode(codec.OnNexts(7, (b"ab", b"cd")), fixed=True)
    assert decoded(codec.encode(codec.Subscribed(7, 2)) + fixed)[1:] == [codec.OnNexts(7, (b"ab", b"cd"))]


def test_messages_before_a_too_large_element_are_delivered() -> None:
    decoder = codec.ReactiveDecoder()
    messages = decoder.feed(codec.encode(codec.OnNexts(5, (b"a", b"b"))) + b"\x21\x05\xff\xff\xff\xff\x0f")
    assert next(messages) == codec.OnNexts(5, (b"a", b"b"))
    with pytest.raises(Malformed, match="an element of"):
        next(messages)


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_any_octets_are_messages_or_malformed(pieces: list[bytes]) -> None:
    decoder = codec.ReactiveDecoder()
    try:
        for piece in pieces:
            for message in decoder.feed(piece):
                assert isinstance(message, codec.Message)
    except Malformed:
        return


@pytest.mark.requirement(
    "RS-05", "RS-06", "RS-08", "RS-17", "RS-18", "RS-19", "RS-20", "RS-22", "RS-23", "RS-35", "RS-39"
)
@pytest.mark.parametrize(
    ("message", "octets"),
    [
        (codec.ClientHello(), "00 00 00"),
        (codec.ClientHello(0, (1, 300)), "00 00 02 01 ac 02"),
        (codec.ServerHello(), "01 00 00"),
        (codec.Goodbye("ok"), "02 02 6f 6b"),
        (codec.GoodbyeAck(), "03"),
        (codec.Subscribe("a", 5, 2), "10 01 61 05 02"),
        (codec.RequestMore(5, 2**63 - 1), "11 05 ff ff ff ff ff ff ff ff 7f"),
        (codec.Cancel(5), "12 05"),
        (codec.Subscribed(5), "20 05 00"),
        (codec.OnNext(5, b"hi"), "21 05 02 68 69"),
        (codec.OnComplete(5), "22 05"),
        (codec.OnError(5, "no"), "23 05 02 6e 6f"),
        (codec.OnNextPart(5, 1, b"h"), "25 05 01 01 68"),
        (codec.OnNextLastPart(5, 1, b"i"), "26 05 01 01 69"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_golden_octets_of_every_message(message: codec.Message, octets: str) -> None:
    assert codec.encode(message) == bytes.fromhex(octets)
    assert decoded(bytes.fromhex(octets)) == [message]


@pytest.mark.requirement("RS-28", "RS-31")
def test_golden_octets_of_a_stream_of_fixed_size() -> None:
    octets = bytes.fromhex("20 05 02  21 05 6869  24 05 02 6869 6f6b  25 05 00 01 68  26 05 00 01 69")
    messages: list[codec.Message] = [
        codec.Subscribed(5, 2),
        codec.OnNext(5, b"hi"),
        codec.OnNextPacked(5, (b"hi", b"ok")),
        codec.OnNextPart(5, 0, b"h"),
        codec.OnNextLastPart(5, 0, b"i"),
    ]
    assert decoded(octets) == messages
    assert encoded(messages) == octets


def varint(value: int) -> bytes:
    return codec.encode(codec.Cancel(value))[1:]


@pytest.mark.parametrize(
    "octets",
    [
        b"\x04",
        b"\x7f",
        b"\x12" + b"\x80" * 10,
        b"\x12" + b"\xff" * 9 + b"\x02",
        b"\x02\x01\xff",
        b"\x02" + varint(RS_TEXT + 1),
        b"\x00\x00" + varint(RS_STREAMS + 1),
        b"\x21\x05" + varint(RS_ELEMENT + 1),
        b"\x25\x05\x00" + varint(RS_ELEMENT + 1),
        b"\x24\x05\x01",
        b"\x20\x05" + varint(RS_ELEMENT + 1),
        b"\x20\x05\x01\x24\x05" + varint(RS_PACKED + 1),
        b"\x20\x05" + varint(RS_ELEMENT) + b"\x24\x05\x02",
        b"".join(codec.encode(codec.Subscribed(subscriber, 1)) for subscriber in range(RS_STREAMS + 1)),
    ],
    ids=lambda octets: octets[:12].hex(),
)
def test_invalid_or_too_large_messages_are_malformed_at_once(octets: bytes) -> None:
    with pytest.raises(Malformed):
        decoded(octets)


def test_messages_before_a_malformed_one_are_delivered() -> None:
    messages = codec.ReactiveDecoder().feed(codec.encode(codec.Cancel(1)) + b"\x04")
    assert next(messages) == codec.Cancel(1)
    with pytest.raises(Malformed, match="type 4"):
        next(messages)


@pytest.mark.parametrize("text", ["x" * (RS_TEXT + 1), "\ud800"])
def test_texts_without_utf8_encoding_are_field_errors(text: str) -> None:
    with pytest.raises(FieldError):
        codec.encode(codec.Goodbye(text))


@pytest.mark.requirement("RS-31")
def test_a_message_of_the_most_packed_elements_is_decoded() -> None:
    messages: list[codec.Message] = [codec.Subscribed(5, 1), codec.OnNextPacked(5, (b"x",) * RS_PACKED)]
    assert decoded(encoded(messages)) == messages
