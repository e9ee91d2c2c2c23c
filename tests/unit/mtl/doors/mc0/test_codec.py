from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.doors.limits import MC0_FRAMES
from mtl.doors.mc0.codec import BadMessage, Mc0Message, Verb, decode, encode, error, ok
from mtl.limits import MAX_TABLE

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
MESSAGES = st.builds(
    Mc0Message,
    st.sampled_from(Verb),
    st.dictionaries(TEXT.filter(bool), TEXT, max_size=5),
    st.none() | st.lists(st.binary(max_size=12), max_size=5).map(tuple),
)


@pytest.mark.requirement("MC0-04", "MC0-05", "MC0-26")
@given(MESSAGES, st.booleans())
def test_an_encoded_message_is_decoded(message: Mc0Message, delimited: bool) -> None:
    assert decode(encode(message, delimited=delimited)) == (message, delimited)


@given(st.lists(st.binary(max_size=8) | st.sampled_from([b"", b"PUT", b"ID", b"X-k"]), max_size=12))
def test_any_frames_are_a_message_or_malformed(frames: list[bytes]) -> None:
    try:
        message, delimited = decode(frames)
    except BadMessage:
        return
    assert encode(message, delimited=delimited) == frames


@pytest.mark.requirement("MC0-05", "MC0-20", "MC0-22")
def test_the_examples_of_the_document() -> None:
    assert decode([b"NOOP", b"ID", b"1234"])[0] == Mc0Message(Verb.NOOP, {"ID": "1234"})
    assert decode([b"SUB", b"", b"topic1", b"topic2"])[0] == Mc0Message(Verb.SUB, {}, (b"topic1", b"topic2"))
    put = decode([b"PUT", b"TOPIC", b"topic1", b"", b"body"])[0]
    assert put == Mc0Message(Verb.PUT, {"TOPIC": "topic1"}, (b"body",))
    assert decode([b"CONNECT", b"VERSION", b"0.1", b"TTL", b"1000"])[0].headers["TTL"] == "1000"
    assert encode(ok("1234")) == [b"OK", b"ID", b"1234"]
    assert encode(error("no", "7")) == [b"ERROR", b"MESSAGE", b"no", b"ID", b"7"]
    assert encode(error("no")) == [b"ERROR", b"MESSAGE", b"no"]


@pytest.mark.requirement("MC0-14")
def test_a_repeated_name_is_malformed() -> None:
    frames = [b"CONNECT", b"TTL", b"1000", b"ID", b"7", b"TTL", b"1000"]
    with pytest.raises(BadMessage, match="'TTL' is given twice") as bad:
        decode(frames)
    assert bad.value.id == "7"


def test_an_empty_value_is_not_a_delimiter() -> None:
    assert decode([b"PUT", b"X-k", b"", b"", b""])[0] == Mc0Message(Verb.PUT, {"X-k": ""}, (b"",))


@pytest.mark.parametrize(
    ("frames", "id_"),
    [
        ([], None),
        ([b""], None),
        ([b"NOPE", b"ID", b"7"], "7"),
        ([b"noop"], None),
        ([b"NOOP", b"ID", b"7", b"odd"], "7"),
        ([b"NOOP", b"ID", b"7", b"\xff", b"x"], "7"),
        ([b"NOOP", b"ID", b"7", b"ID", b"8"], "7"),
        ([b"NOOP", b"ID", b"7", b"X-k", b"x" * (MAX_TABLE + 1)], "7"),
        ([b"NOOP"] + [b"x"] * MC0_FRAMES, None),
        ([b"NOOP", b"\xff", b"x", b"ID", b"7"], "7"),
        ([b"NOOP", b"X-k", b"\xff", b"ID", b"7"], "7"),
        ([b"\xff", b"ID", b"7"], "7"),
        ([b"NOOP", b"X-k", b"1", b"X-k", b"2", b"ID", b"7"], "7"),
        ([b"NOOP", b"ID", b"\xff"], "\udcff"),
        ([b"PUT", b"TOPIC", b"t", b"ID", b"7", b""] + [b"x"] * MC0_FRAMES, "7"),
        ([b"", b"PUT", b"ID", b"7", b""] + [b"x"] * MC0_FRAMES, "7"),
        ([b"PUT", b"X-k", b"\xff", b"", b"ID", b"not one"], None),
    ],
)
def test_a_malformed_message_is_answered_with_its_id(frames: list[bytes], id_: str | None) -> None:
    with pytest.raises(BadMessage) as bad:
        decode(frames)
    assert bad.value.id == id_
    sent = encode(error("no", bad.value.id))
    if id_ is not None:
        assert sent[-2:] == [b"ID", frames[frames.index(b"ID") + 1]]
