from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.doors.limits import MM2_FRAGMENT
from mtl.doors.micromessage.codec import (
    CommandFrame,
    Error,
    ExtensionFrame,
    Handshake,
    MessageFrame,
    encode,
    encode_handshake,
)
from mtl.doors.micromessage.negotiation import SUPPORTED, ExtensionOffer, batch_ack
from mtl.doors.micromessage.negotiation import Extension as Named
from mtl.doors.micromessage.session import (
    STEPS,
    Acked,
    CommandArrived,
    Ended,
    Event,
    HandshakeDone,
    MessageArrived,
    MicroRole,
    MicroSession,
    MicroState,
)
from mtl.doors.micromessage.values import FilterValue
from mtl.errors import FieldError
from mtl.limits import MAX_CONTENT

SERVER = ExtensionOffer((), (batch_ack(100), *map(Named, sorted(SUPPORTED - {"batch-ack"}))))


def names(*extensions: str) -> ExtensionOffer:
    return ExtensionOffer(tuple(map(Named, extensions)))


def ends(client: ExtensionOffer, server: ExtensionOffer = SERVER) -> tuple[MicroSession, MicroSession]:
    return MicroSession(MicroRole.CLIENT, client, "hulk"), MicroSession(MicroRole.SERVER, server, "mtl")


def opened(client: ExtensionOffer, server: ExtensionOffer = SERVER) -> tuple[MicroSession, MicroSession]:
    """Both ends after the handshake."""
    c, s = ends(client, server)
    assert s.received(c.to_send()) == []
    assert [type(event) for event in c.received(s.to_send())] == [HandshakeDone]
    assert [type(event) for event in s.received(c.to_send())] == [HandshakeDone]
    assert c.agreed == s.agreed
    return c, s


def transfer(sender: MicroSession, receiver: MicroSession) -> list[Event]:
    return receiver.received(sender.to_send())


@pytest.mark.requirement("MM2-10", "MM2-14", "MM2-22", "MM2-23", "MM2-24", "MM2-26")
def test_a_handshake_has_three_steps() -> None:
    c, s = ends(ExtensionOffer((Named("json"), Named("dotnet")), (Named("batch-ack"),)))
    assert s.to_send() == b""
    s.received(c.to_send())
    assert (c.state, s.state) == (MicroState.PROPOSED, MicroState.ANSWERED)
    (event,) = c.received(s.to_send())
    assert isinstance(event, HandshakeDone)
    assert event.identity == "mtl"
    assert event.agreed.ids == {"json": 1, "dotnet": 2, "batch-ack": 3}
    last = c.to_send()
    assert b"json;dotnet" in last
    assert b"batch-ack:max-count=10" in last
    assert s.received(last) == [HandshakeDone("hulk", event.agreed)]
    assert (c.state, s.state) == (MicroState.OPEN, MicroState.OPEN)


@pytest.mark.requirement("MM2-11", "MM2-12")
@pytest.mark.parametrize(
    "proposal", [Handshake("x", "json;x-other"), Handshake("x", major=0), Handshake("x", "json;json")]
)
def test_a_proposal_that_cannot_be_met_is_an_error(proposal: Handshake) -> None:
    c, s = ends(ExtensionOffer())
    (ended,) = s.received(encode_handshake(proposal))
    assert isinstance(ended, Ended)
    assert s.state is MicroState.CLOSED
    assert c.received(s.to_send()) == [Ended(ended.text, by_peer=True)]
    assert c.state is MicroState.CLOSED


@pytest.mark.requirement("MM2-13")
def test_a_server_that_requires_too_much_gets_an_error() -> None:
    c, s = ends(names("json"), names("x-theirs"))
    s.received(c.to_send())
    (ended,) = c.received(s.to_send())
    assert ended == Ended("the extension x-theirs is not supported", by_peer=False)
    assert s.received(c.to_send()) == [Ended("the extension x-theirs is not supported", by_peer=True)]


@pytest.mark.requirement("MM2-13")
def test_a_final_list_without_a_required_extension_is_an_error() -> None:
    s = MicroSession(MicroRole.SERVER, names("pub-sub"), "mtl")
    s.received(encode_handshake(Handshake("x")))
    (ended,) = s.received(encode_handshake(Handshake("x")))
    assert isinstance(ended, Ended)
    assert "pub-sub" in ended.text


@pytest.mark.requirement("MM2-01", "MM2-19")
def test_another_minor_version_is_accepted_and_flags_are_ignored() -> None:
    s = MicroSession(MicroRole.SERVER, SERVER, "mtl")
    octets_list = encode_handshake(Handshake("x", "json", minor=7, flags=0x81))
    assert s.received(octets_list) == []
    assert s.to_send()[:3] == b"\1\0\0"
    (event,) = s.received(octets_list)
    assert isinstance(event, HandshakeDone)
    assert event.agreed.minor == 0


@pytest.mark.requirement("MM2-01", "MM2-11")
def test_a_client_of_a_later_major_version_is_answered_with_version_1() -> None:
    s = MicroSession(MicroRole.SERVER, SERVER, "mtl")
    assert s.received(encode_handshake(Handshake("x", "json", major=2, minor=7))) == []
    assert s.to_send()[:3] == b"\1\0\0"
    (event,) = s.received(encode_handshake(Handshake("x", "json")))
    assert isinstance(event, HandshakeDone)
    assert s.state is MicroState.OPEN


@pytest.mark.requirement("MM2-11")
def test_a_later_major_version_in_the_last_step_is_an_error() -> None:
    s = MicroSession(MicroRole.SERVER, SERVER, "mtl")
    s.received(encode_handshake(Handshake("x", "json", major=2)))
    (ended,) = s.received(encode_handshake(Handshake("x", "json", major=2)))
    assert isinstance(ended, Ended)


@pytest.mark.requirement("MM2-03")
@pytest.mark.parametrize("role", list(MicroRole))
def test_frames_outside_of_the_table_end_the_connection(role: MicroRole) -> None:
    frames = {
        MessageFrame: encode(MessageFrame(1, "q", b"{}")),
        CommandFrame: encode(CommandFrame("subscribe", {"destination": "topic/x"})),
        ExtensionFrame: encode(ExtensionFrame(1, b"a type")),
        Error: encode(Error("no")),
    }
    for kind, octets in frames.items():
        c, s = opened(names("dotnet", "pub-sub"))
        session = s if role is MicroRole.SERVER else c
        session.to_send()
        events = session.received(octets)
        if kind in STEPS[role, MicroState.OPEN]:
            assert session.state is STEPS[role, MicroState.OPEN][kind]
            assert not any(isinstance(event, Ended) and not event.by_peer for event in events)
        else:
            assert isinstance(events[-1], Ended)
            assert session.state is MicroState.CLOSED
            assert session.to_send()[0] == 4


@pytest.mark.requirement("MM2-03", "MM2-32", "MM2-33", "MM2-38", "MM2-40")
def test_messages_travel_in_both_directions() -> None:
    c, s = opened(ExtensionOffer())
    c.send("orders", b"\0\xff", "kind:Tnew;n:N7;")
    c.send("topic/x", b"")
    assert transfer(c, s) == [
        MessageArrived("orders", {"kind": "new", "n": 7}, b"\0\xff"),
        MessageArrived("topic/x", {}, b""),
    ]
    s.send("orders", b"back")
    assert transfer(s, c) == [MessageArrived("orders", {}, b"back")]


@pytest.mark.requirement("MM2-38", "MM2-41")
@pytest.mark.parametrize(("size", "flags"), [(0, 0), (MM2_FRAGMENT, 8), (MM2_FRAGMENT + 1, 16 | 8)])
def test_a_message_that_fits_is_sent_in_one_frame(size: int, flags: int) -> None:
    c, s = opened(ExtensionOffer())
    c.send("orders", bytes(size))
    octets = c.to_send()
    assert octets[0] == flags
    assert s.received(octets) == [MessageArrived("orders", {}, bytes(size))]


@pytest.mark.requirement("MM2-28", "MM2-31", "MM2-41")
def test_a_large_message_is_fragmented_and_acknowledged_once() -> None:
    c, s = opened(names("ack"))
    body = bytes(range(256)) * (2 * MM2_FRAGMENT // 256) + b"rest"
    c.send("q", body, "a:N1;")
    octets = c.to_send()
    assert octets[0] == 16 | 8
    assert octets.count(b"\x18\0\1", 0, 10) == 1
    assert s.received(octets[:-1]) == []
    assert s.received(octets[-1:]) == [MessageArrived("q", {"a": 1}, body)]
    s.ack(1)
    assert transfer(s, c) == [Acked(1)]
    assert c.room


@pytest.mark.requirement("MM2-31")
@pytest.mark.parametrize(
    "second",
    [
        MessageFrame(2, "", b"x"),
        MessageFrame(1, "p", b"x"),
        MessageFrame(1, "", b"x", {"a": 2}),
        MessageFrame(1, "q", b"x", {"b": 1}),
        MessageFrame(1, "", bytes(MAX_CONTENT)),
    ],
)
def test_a_frame_inside_a_fragmented_message_ends_the_connection(second: MessageFrame) -> None:
    _, s = opened(ExtensionOffer())
    events = s.received(encode(MessageFrame(1, "q", b"x", {"a": 1}, continued=True)) + encode(second))
    assert [type(event) for event in events] == [Ended]


@pytest.mark.requirement("MM2-31")
@pytest.mark.parametrize("properties", [{}, {"a": 1}])
@pytest.mark.parametrize("destination", ["", "q"])
def test_fragments_may_repeat_the_header_of_the_first(
    destination: str, properties: dict[str, FilterValue]
) -> None:
    _, s = opened(ExtensionOffer())
    pieces = [
        MessageFrame(1, "q", b"x", {"a": 1}, continued=True),
        MessageFrame(1, destination, b"y", properties, continued=True),
        MessageFrame(1, destination, b"z", properties),
    ]
    assert s.received(b"".join(map(encode, pieces))) == [MessageArrived("q", {"a": 1}, b"xyz")]


@pytest.mark.requirement("MM2-04", "MM2-06", "MM2-34", "MM2-35", "MM2-47", "MM2-49")
@pytest.mark.parametrize(("extension", "window"), [(Named("ack"), 1), (batch_ack(3), 3)])
def test_both_directions_wait_for_acknowledgements(extension: Named, window: int) -> None:
    c, s = opened(ExtensionOffer((extension,)))
    for sender, receiver in ((c, s), (s, c)):
        for _ in range(window):
            assert sender.room
            sender.send("q", b"x")
        assert not sender.room
        assert len(transfer(sender, receiver)) == window
        receiver.ack(window)
        assert receiver.to_send().hex() == f"02 01 02 {window:04x}".replace(" ", "")
    _, s = opened(ExtensionOffer((extension,)))
    events = s.received(b"".join(encode(MessageFrame(n, "q", b"x")) for n in range(1, window + 2)))
    assert isinstance(events[-1], Ended)
    assert events[-1].text.endswith("no more")


@pytest.mark.requirement("MM2-37", "MM2-48")
def test_numbers_wrap_around() -> None:
    c, s = opened(ExtensionOffer((batch_ack(100),)))
    total = 0
    while total < 140_000:
        while c.room:
            c.send("q", b"")
            total += 1
        arrived = transfer(c, s)
        assert len(arrived) == 100
        s.ack(100)
        assert transfer(s, c) == [Acked(100)]


@pytest.mark.requirement("MM2-47")
@pytest.mark.parametrize("payload", [b"", b"\1", b"\0\0\0\1", b"\0\2"])
def test_an_impossible_acknowledgement_ends_the_connection(payload: bytes) -> None:
    c, s = opened(names("batch-ack"))
    s.send("q", b"x")
    transfer(s, c)
    assert isinstance(s.received(encode(ExtensionFrame(1, payload)))[-1], Ended)


@pytest.mark.requirement("MM2-08", "MM2-25", "MM2-51", "MM2-52")
def test_a_type_precedes_its_message_and_stays_valid() -> None:
    c, s = opened(names("json", "dotnet"))
    c.send("q", b"1", "", "A.Type, A")
    assert c._out[0][:3] == b"\2\2\x09"
    assert transfer(c, s) == [MessageArrived("q", {}, b"1", "A.Type, A")]
    (again,) = s.received(encode(MessageFrame(2, "q", b"2")))  # a peer that says it once
    assert again == MessageArrived("q", {}, b"2", "A.Type, A")


@pytest.mark.requirement("MM2-53")
@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b'"\xff"', b"[" * 100_000])
def test_a_payload_that_is_not_json_ends_a_connection_with_json(payload: bytes) -> None:
    _, s = opened(names("json"))
    assert s.received(encode(MessageFrame(1, "q", b'{"a": [1, "\xc3\xa9"]}'))) != []
    assert s.state is MicroState.OPEN
    (ended,) = s.received(encode(MessageFrame(2, "q", payload)))
    assert isinstance(ended, Ended)
    assert "not JSON" in ended.text


@pytest.mark.requirement("MM2-25")
def test_commands_belong_to_pub_sub() -> None:
    c, s = opened(names("pub-sub"))
    c.command("subscribe", {"destination": "topic/x", "filter": "n>N1"})
    assert transfer(c, s) == [
        CommandArrived(CommandFrame("subscribe", {"destination": "topic/x", "filter": "n>N1"}))
    ]
    c, s = opened(ExtensionOffer())
    c.command("subscribe", {"destination": "topic/x"})
    (ended,) = transfer(c, s)
    assert isinstance(ended, Ended)


@pytest.mark.requirement("MM2-46")
def test_a_frame_of_an_unagreed_extension_ends_the_connection() -> None:
    _, s = opened(names("json"))
    for id_ in (0, 1, 2):
        _, s = opened(names("json"))
        assert isinstance(s.received(encode(ExtensionFrame(id_, b"\0\1")))[-1], Ended)


@pytest.mark.requirement("MM2-32", "MM2-33")
def test_a_message_of_the_largest_size_is_sent_and_received() -> None:
    c, s = opened(ExtensionOffer())
    body = bytes(MAX_CONTENT)
    c.send("q", body)
    assert transfer(c, s) == [MessageArrived("q", {}, body)]


def test_a_message_above_the_limits_is_refused_without_using_a_number() -> None:
    c, s = opened(ExtensionOffer())
    with pytest.raises(FieldError, match="are the most"):
        c.send("q", bytes(MAX_CONTENT + 1))
    with pytest.raises(FieldError, match="destination"):
        c.send("q" * 256, b"")
    c.send("q", b"fine")
    assert transfer(c, s) == [MessageArrived("q", {}, b"fine")]


def test_after_the_end_messages_are_ignored_and_not_sent() -> None:
    c, s = opened(names("ack"))
    s.fail("enough")
    s.fail("twice")
    assert transfer(s, c) == [Ended("enough", by_peer=True)]
    assert not c.room
    assert s.received(encode(MessageFrame(1, "q", b""))) == []
    s.ack(0)
    assert s.to_send() == b""


@given(
    st.lists(
        st.binary(max_size=40) | st.sampled_from([b"\0\0\1\1q\0\0\1x", b"\4\0", b"\2\1\2\0\1"]), max_size=8
    )
)
def test_any_octets_are_handled(octets_list: list[bytes]) -> None:
    for session in (*opened(names("ack", "pub-sub")), *ends(names("ack"))):
        events = [event for octets in octets_list for event in session.received(octets)]
        ended = [event for event in events if isinstance(event, Ended)]
        assert len(ended) <= 1
        assert not ended or events[-1] is ended[0]
        assert bool(ended) == (session.state is MicroState.CLOSED)
