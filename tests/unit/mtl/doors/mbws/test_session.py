from __future__ import annotations

import pytest

from mtl.doors.mbws.codec import Acknowledge, Connect, Frame, Kind, Message, decode, encode
from mtl.doors.mbws.session import MBLWS, MBWS, STEPS, MbwsRole, MbwsSession, MbwsState
from mtl.errors import Malformed

FRAMES: tuple[Frame, ...] = (Connect("c"), Acknowledge(1), Message(("a",), b"hi"))


def receive(session: MbwsSession, *frames: Frame, kind: Kind = Kind.BINARY) -> list[Frame | None]:
    return [session.received(encode(frame, kind)) for frame in frames]


@pytest.mark.requirement("MBWS-01")
@pytest.mark.parametrize("role", MbwsRole)
@pytest.mark.parametrize("state", MbwsState)
@pytest.mark.parametrize("frame", FRAMES)
def test_a_session_accepts_exactly_the_frames_of_its_table(
    role: MbwsRole, state: MbwsState, frame: Frame
) -> None:
    session = MbwsSession(role, MBWS, Kind.BINARY)
    if state is MbwsState.OPEN:
        receive(session, Connect())
    following = STEPS[role, state].get(type(frame))
    if following is None:
        with pytest.raises(Malformed):
            receive(session, frame)
    else:
        assert receive(session, frame) == [frame]
        assert session.state is following


@pytest.mark.requirement("MBWS-01", "MBWS-33", "MBWS-35")
@pytest.mark.parametrize("role", MbwsRole)
def test_without_recovery_other_frames_are_ignored(role: MbwsRole) -> None:
    session = MbwsSession(role, MBLWS, Kind.BINARY)
    assert receive(session, *FRAMES) == [None, None, FRAMES[2]]
    assert session.state is MbwsState.OPEN


@pytest.mark.requirement("MBWS-02")
@pytest.mark.parametrize("kind", Kind)
def test_a_server_uses_the_frame_kind_of_the_clients_connect(kind: Kind) -> None:
    session = MbwsSession(MbwsRole.SERVER, MBWS, Kind.BINARY)
    receive(session, Connect(), kind=kind)
    receive(session, Acknowledge(1), kind=Kind.TEXT if kind is Kind.BINARY else Kind.BINARY)
    for frame in (Connect("c"), Acknowledge(1)):
        encoded = session.to_message(frame)
        assert isinstance(encoded, str) is (kind is Kind.TEXT)
        assert decode(encoded) == frame
    to = session.to_messages("a")
    to.set_properties({})
    assert isinstance(to.message(b"hi", 1), str) is (kind is Kind.TEXT)


@pytest.mark.requirement("MBWS-02")
def test_a_client_keeps_its_frame_kind() -> None:
    session = MbwsSession(MbwsRole.CLIENT, MBWS, Kind.BINARY)
    receive(session, Connect(), Acknowledge(1), kind=Kind.TEXT)
    assert isinstance(session.to_message(Acknowledge(1)), bytes)


def test_octets_that_are_not_a_frame_are_malformed() -> None:
    with pytest.raises(Malformed):
        MbwsSession(MbwsRole.SERVER, MBLWS, Kind.BINARY).received(b"")
