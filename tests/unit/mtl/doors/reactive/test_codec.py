from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.doors.limits import RS_ELEMENT, RS_PACKED, RS_STREAMS, RS_TEXT
from mtl.doors.reactive import codec as m
from mtl.errors import FieldError, Malformed
from tests.support.elements import apart

VARINTS = st.integers(0, 2**64 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
OCTETS = st.binary(max_size=300)
EXTENSIONS = st.lists(VARINTS, max_size=3).map(tuple)
FREE = st.one_of(
    st.builds(m.ClientHello, VARINTS, EXTENSIONS),
    st.builds(m.ServerHello, VARINTS, EXTENSIONS),
    st.builds(m.Goodbye, TEXTS),
    st.just(m.GoodbyeAck()),
    st.builds(m.Subscribe, TEXTS, VARINTS, VARINTS),
    st.builds(m.RequestMore, VARINTS, VARINTS),
    st.builds(m.Cancel, VARINTS),
    st.builds(m.Subscribed, VARINTS),
    st.builds(m.OnNext, VARINTS, OCTETS),
    st.builds(m.OnComplete, VARINTS),
    st.builds(m.OnError, VARINTS, TEXTS),
    st.builds(m.OnNextPart, VARINTS, VARINTS, OCTETS),
    st.builds(m.OnNextLastPart, VARINTS, VARINTS, OCTETS),
)


@st.composite
def of_fixed_size(draw: st.DrawFn) -> list[m.Message]:
    """A stream of fixed size, and a later stream of another size with the same Id."""
    size = draw(st.integers(1, 20))
    element = st.binary(min_size=size, max_size=size)
    packed = st.builds(m.OnNextPacked, st.just(7), st.lists(element, max_size=4).map(tuple))
    some = draw(st.lists(st.builds(m.OnNext, st.just(7), element) | packed, max_size=4))
    return [m.Subscribed(7, size), *some]


def encoded(messages: list[m.Message]) -> bytes:
    """Encode as a sender that knows which of its streams have a fixed size."""
    octets = b""
    fixed: set[int] = set()
    for message in messages:
        if isinstance(message, m.Subscribed):
            (fixed.add if message.element_size else fixed.discard)(message.subscriber)
        subscriber = getattr(message, "subscriber", None)
        octets += m.encode(message, fixed=subscriber in fixed)
    return octets


def decoded(octets: bytes) -> list[m.Message]:
    return list(m.ReactiveDecoder().feed(octets))


@pytest.mark.requirement("RS-03", "RS-04", "RS-21", "RS-28", "RS-31", "RS-32")
@given(st.lists(FREE, max_size=4), of_fixed_size(), of_fixed_size(), st.integers(1, 50))
def test_encoded_messages_are_decoded_from_any_pieces(
    free: list[m.Message], first: list[m.Message], second: list[m.Message], size: int
) -> None:
    messages = [*free, *first, *second, m.Subscribed(7), m.OnNext(7, b"of any size")]
    octets = encoded(messages)
    assert apart(decoded(octets)) == messages
    decoder = m.ReactiveDecoder()
    pieces = [octets[at : at + size] for at in range(0, len(octets), size)]
    assert apart(message for piece in pieces for message in decoder.feed(piece)) == messages
    assert decoder.waiting == 0


ONE_OF_EACH: list[tuple[int, m.Message]] = [
    (0, m.ClientHello(300, (1, 2))),
    (1, m.ServerHello(0, ())),
    (2, m.Goodbye("the end")),
    (3, m.GoodbyeAck()),
    (16, m.Subscribe("a", 300, 1)),
    (17, m.RequestMore(300, 1)),
    (18, m.Cancel(300)),
    (32, m.Subscribed(300)),
    (33, m.OnNext(300, b"x" * 200)),
    (34, m.OnComplete(300)),
    (35, m.OnError(300, "why")),
    (37, m.OnNextPart(300, 9, b"x")),
    (38, m.OnNextLastPart(300, 9, b"")),
]


@pytest.mark.requirement("RS-04")
@pytest.mark.parametrize(("number", "message"), ONE_OF_EACH)
def test_a_message_is_its_type_and_contents_that_define_their_end(number: int, message: m.Message) -> None:
    """Without a length of the whole: no octet fewer is a message, and the next one begins with the octet after it."""
    octets = m.encode(message)
    assert octets[0] == number, "a varint of one octet"
    for end in range(len(octets)):
        decoder = m.ReactiveDecoder()
        assert list(decoder.feed(octets[:end])) == []
        assert decoder.waiting == end
    decoder = m.ReactiveDecoder()
    assert apart(decoder.feed(octets + b"\x83")) == [message]
    assert decoder.waiting == 1
    assert list(decoder.feed(b"\x00")) == [m.GoodbyeAck()]
    assert decoder.waiting == 0


@pytest.mark.requirement("RS-04")
def test_the_type_is_a_varint() -> None:
    assert decoded(b"\x83\x00") == [m.GoodbyeAck()], "of any length"
    assert decoded(b"\x83") == []
    for unknown in (b"\x7f", b"\xac\x02", b"\xff" * 9 + b"\x01"):
        with pytest.raises(Malformed):
            decoded(unknown)
    with pytest.raises(Malformed, match="varint"):
        decoded(b"\x80" * 11)


RUN = (b"a", b"", b"b" * 200, b"c" * 20_000, b"d")


@pytest.mark.requirement("RS-21")
def test_consecutive_elements_are_decoded_together() -> None:
    octets = m.encode(m.OnNexts(300, RUN))
    assert octets == b"".join(m.encode(m.OnNext(300, element)) for element in RUN)
    assert decoded(octets + m.encode(m.Cancel(1))) == [m.OnNexts(300, RUN), m.Cancel(1)]
    assert decoded(octets + m.encode(m.OnNext(301, b"x"))) == [m.OnNexts(300, RUN), m.OnNext(301, b"x")]
    for end in range(len(octets)):
        decoder = m.ReactiveDecoder()
        first = list(decoder.feed(octets[:end]))
        assert apart([*first, *decoder.feed(octets[end:])]) == apart([m.OnNexts(300, RUN)])
    fixed = m.encode(m.OnNexts(7, (b"ab", b"cd")), fixed=True)
    assert decoded(m.encode(m.Subscribed(7, 2)) + fixed)[1:] == [m.OnNexts(7, (b"ab", b"cd"))]


def test_messages_before_a_too_large_element_are_delivered() -> None:
    decoder = m.ReactiveDecoder()
    messages = decoder.feed(m.encode(m.OnNexts(5, (b"a", b"b"))) + b"\x21\x05\xff\xff\xff\xff\x0f")
    assert next(messages) == m.OnNexts(5, (b"a", b"b"))
    with pytest.raises(Malformed, match="an element of"):
        next(messages)


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_any_octets_are_messages_or_malformed(pieces: list[bytes]) -> None:
    decoder = m.ReactiveDecoder()
    try:
        for piece in pieces:
            for message in decoder.feed(piece):
                assert isinstance(message, m.Message)
    except Malformed:
        return


@pytest.mark.requirement(
    "RS-05", "RS-06", "RS-08", "RS-17", "RS-18", "RS-19", "RS-20", "RS-22", "RS-23", "RS-35", "RS-39"
)
@pytest.mark.parametrize(
    ("message", "octets"),
    [
        (m.ClientHello(), "00 00 00"),
        (m.ClientHello(0, (1, 300)), "00 00 02 01 ac 02"),
        (m.ServerHello(), "01 00 00"),
        (m.Goodbye("ok"), "02 02 6f 6b"),
        (m.GoodbyeAck(), "03"),
        (m.Subscribe("a", 5, 2), "10 01 61 05 02"),
        (m.RequestMore(5, 2**63 - 1), "11 05 ff ff ff ff ff ff ff ff 7f"),
        (m.Cancel(5), "12 05"),
        (m.Subscribed(5), "20 05 00"),
        (m.OnNext(5, b"hi"), "21 05 02 68 69"),
        (m.OnComplete(5), "22 05"),
        (m.OnError(5, "no"), "23 05 02 6e 6f"),
        (m.OnNextPart(5, 1, b"h"), "25 05 01 01 68"),
        (m.OnNextLastPart(5, 1, b"i"), "26 05 01 01 69"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_golden_octets_of_every_message(message: m.Message, octets: str) -> None:
    assert m.encode(message) == bytes.fromhex(octets)
    assert decoded(bytes.fromhex(octets)) == [message]


@pytest.mark.requirement("RS-28", "RS-31")
def test_golden_octets_of_a_stream_of_fixed_size() -> None:
    octets = bytes.fromhex("20 05 02  21 05 6869  24 05 02 6869 6f6b  25 05 00 01 68  26 05 00 01 69")
    messages: list[m.Message] = [
        m.Subscribed(5, 2),
        m.OnNext(5, b"hi"),
        m.OnNextPacked(5, (b"hi", b"ok")),
        m.OnNextPart(5, 0, b"h"),
        m.OnNextLastPart(5, 0, b"i"),
    ]
    assert decoded(octets) == messages
    assert encoded(messages) == octets


def varint(value: int) -> bytes:
    return m.encode(m.Cancel(value))[1:]


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
        b"".join(m.encode(m.Subscribed(subscriber, 1)) for subscriber in range(RS_STREAMS + 1)),
    ],
    ids=lambda octets: octets[:12].hex(),
)
def test_invalid_or_too_large_messages_are_malformed_at_once(octets: bytes) -> None:
    with pytest.raises(Malformed):
        decoded(octets)


def test_messages_before_a_malformed_one_are_delivered() -> None:
    messages = m.ReactiveDecoder().feed(m.encode(m.Cancel(1)) + b"\x04")
    assert next(messages) == m.Cancel(1)
    with pytest.raises(Malformed, match="type 4"):
        next(messages)


@pytest.mark.parametrize("text", ["x" * (RS_TEXT + 1), "\ud800"])
def test_texts_without_utf8_encoding_are_field_errors(text: str) -> None:
    with pytest.raises(FieldError):
        m.encode(m.Goodbye(text))


@pytest.mark.requirement("RS-31")
def test_a_message_of_the_most_packed_elements_is_decoded() -> None:
    messages: list[m.Message] = [m.Subscribed(5, 1), m.OnNextPacked(5, (b"x",) * RS_PACKED)]
    assert decoded(encoded(messages)) == messages
