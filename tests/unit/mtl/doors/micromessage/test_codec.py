from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.doors.limits import MM2_TEXT
from mtl.doors.micromessage.codec import (
    CommandFrame,
    Error,
    ExtensionFrame,
    Frame,
    Handshake,
    MessageFrame,
    MicroDecoder,
    encode,
    encode_handshake,
)
from mtl.errors import FieldError, Malformed
from mtl.limits import MAX_CONTENT
from tests.unit.mtl.doors.micromessage.test_values import FIELDS, TEXT, VALUES

ASCII = st.text(st.characters(codec="ascii"), max_size=20)
HANDSHAKES = st.builds(
    Handshake,
    ASCII,
    ASCII,
    ASCII,
    major=st.sampled_from([0, 1, 2, 255]),
    minor=st.integers(0, 255),
    flags=st.integers(0, 255),
)
FRAMES = (
    st.builds(
        MessageFrame,
        st.integers(1, 65_535),
        TEXT,
        st.binary(max_size=300),
        st.dictionaries(FIELDS, VALUES, max_size=4),
        st.booleans(),
    )
    | st.builds(CommandFrame, FIELDS, st.dictionaries(FIELDS, TEXT, max_size=4))
    | st.builds(ExtensionFrame, st.integers(0, 255), st.binary(max_size=300))
    | st.builds(Error, TEXT)
)


def frames(data: bytes) -> list[Frame]:
    decoder = MicroDecoder()
    decoder.feed(data)
    found = []
    while (frame := decoder.frame()) is not None:
        found.append(frame)
    return found


def handshake(data: bytes) -> Handshake | Error | None:
    decoder = MicroDecoder()
    decoder.feed(data)
    return decoder.handshake()


@given(st.lists(FRAMES, max_size=4), st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_encoded_frames_are_decoded_from_any_pieces(frames: list[Frame], cuts: list[int]) -> None:
    data = b"".join(map(encode, frames))
    decoder, received, at, turn = MicroDecoder(), [], 0, 0
    while at < len(data):
        step = cuts[turn % len(cuts)]
        decoder.feed(data[at : at + step])
        at, turn = at + step, turn + 1
        while (frame := decoder.frame()) is not None:
            received.append(frame)
    assert received == frames
    assert not decoder.undecoded


@given(HANDSHAKES)
def test_an_encoded_handshake_is_decoded(offer: Handshake) -> None:
    data = encode_handshake(offer)
    assert handshake(data) == offer
    assert handshake(data[:-1]) is None


@pytest.mark.requirement(
    "MM2-27", "MM2-28", "MM2-29", "MM2-36", "MM2-42", "MM2-45", "MM2-47", "MM2-61", "MM2-65"
)
@pytest.mark.parametrize(
    ("frame", "octets"),
    [
        (ExtensionFrame(3, b"\0\4"), "0203020004"),
        (
            MessageFrame(2, "MQ", b"mother", {"last-name": "kalle"}),
            "000002024d5100116c6173742d6e616d653a546b616c6c653b066d6f74686572",
        ),
        (Error("Help!"), "040548656c7021"),
        (
            CommandFrame("subscribe", {"destination": "topic/x"}),
            "01" + "1f" + b"subscribe;destination=topic%2Fx".hex(),
        ),
        (CommandFrame("stop"), "0104" + b"stop".hex()),
    ],
)
def test_the_golden_vectors(frame: Frame, octets: str) -> None:
    assert encode(frame).hex() == octets
    assert frames(bytes.fromhex(octets)) == [frame]


@pytest.mark.requirement("MM2-17", "MM2-18", "MM2-20")
def test_the_handshake_of_the_document() -> None:
    octets = "0100000468756c6b000b6a736f6e3b646f746e6574000962617463682d61636b"
    offer = Handshake("hulk", "json;dotnet", "batch-ack")
    assert encode_handshake(offer).hex() == octets
    assert handshake(bytes.fromhex(octets)) == offer


@pytest.mark.requirement("MM2-20", "MM2-21")
def test_an_identity_is_ascii_and_empty_lists_are_absent() -> None:
    offer = Handshake("hulk")
    octets = encode_handshake(offer)
    assert octets.hex() == "010000" + "04" + b"hulk".hex() + "0000" + "0000"
    assert handshake(octets) == offer
    with pytest.raises(Malformed):
        handshake(octets.replace(b"hulk", b"hul\xff"))


@pytest.mark.requirement("MM2-28", "MM2-30", "MM2-61", "MM2-65")
@pytest.mark.parametrize("size", [255, 256, 70_000])
def test_a_large_payload_has_four_octets_of_length(size: int) -> None:
    data = encode(MessageFrame(1, "q", bytes(size)))
    head = data[: len(data) - size]
    assert (data[0], head[7:]) == ((8, size.to_bytes(4, "big")) if size > 255 else (0, b"\xff"))
    assert frames(data) == [MessageFrame(1, "q", bytes(size))]
    assert frames(bytes.fromhex("0c0000000548656c7021")) == [Error("Help!")]


@pytest.mark.requirement("MM2-65")
@pytest.mark.parametrize("octets", ["040548656c7021", "0c0000000548656c7021"])
def test_an_error_may_replace_a_handshake(octets: str) -> None:
    assert handshake(bytes.fromhex(octets)) == Error("Help!")
    assert handshake(bytes.fromhex(octets[:4])) is None


@pytest.mark.requirement("MM2-66")
@pytest.mark.parametrize(
    "octets",
    [
        "20",  # an undefined flag
        "03",  # two kinds
        "11",  # a command in pieces
        "000000017100000178",  # sequence 0
        "00000101ff0000" + "00",  # a destination that is not UTF-8
        "0000010171000361626300",  # properties without values
        "08000101710000" + f"{MAX_CONTENT + 1:08x}",  # refused before it comes
        "09" + f"{MM2_TEXT + 1:08x}",
        "0a01" + f"{MM2_TEXT + 1:08x}",
        "0401ff",
        "0101ff",
        "0100",  # a command without a name
        "0103613b62",  # an argument without a value
    ],
)
def test_octets_that_are_not_a_frame_are_malformed(octets: str) -> None:
    with pytest.raises(Malformed):
        frames(bytes.fromhex(octets))


@given(st.binary(max_size=60))
def test_any_octets_are_frames_or_malformed(data: bytes) -> None:
    for decode in (frames, handshake):
        try:
            decode(data)
        except Malformed:
            pass


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (MessageFrame(1, "d" * 256, b""), "^a destination of 256 octets; 255 are the most"),
        (MessageFrame(1, "d", b"", {"a": "x" * 66_000}), "^properties of 66004 octets; 65535 are the most"),
        (CommandFrame("a", {"B C": "x"}), "^'B C' is not a FIELD"),
    ],
)
def test_a_frame_above_its_limits_is_a_field_error_that_names_the_part(frame: Frame, message: str) -> None:
    with pytest.raises(FieldError, match=message):
        encode(frame)


@pytest.mark.requirement("MM2-42", "MM2-45", "MM2-61", "MM2-65")
@pytest.mark.parametrize(
    "frame",
    [
        Error("x" * MM2_TEXT),
        ExtensionFrame(1, bytes(MM2_TEXT)),
        CommandFrame("stop", {"a": "x" * (MM2_TEXT - len("stop;a="))}),
        MessageFrame(1, "q", bytes(MAX_CONTENT)),
    ],
    ids=lambda frame: type(frame).__name__,
)
def test_a_frame_with_the_longest_payload_is_decoded(frame: Frame) -> None:
    assert frames(encode(frame)) == [frame]
