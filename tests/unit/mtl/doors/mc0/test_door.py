"""One socket serves all peers of the mc0 door: a peer that makes no progress delays the others by a moment only."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from mtl.doors.config import DoorConfig
from mtl.doors.failure_log import PeerAddress
from mtl.doors.mc0.door import Mc0Door
from mtl.doors.peer_messages import DoorRefusal
from mtl.doors.peer_session import PeerSession
from mtl.doors.runs import ContentRun
from mtl.net.aio import AsyncDealer
from mtl.wire.control import QUOTA
from tests.support.aio import in_loop
from tests.support.bridge import ConfirmingBridge

MIB = 1 << 20


class StuckSession(ConfirmingBridge):
    """A session whose contents find no room until `room` is set. All that publish have one owner."""

    owner = "alice"

    def __init__(self) -> None:
        super().__init__()
        self.room = asyncio.Event()

    async def publish_run(self, run: ContentRun) -> asyncio.Future[None]:
        await self.room.wait()
        return await super().publish_run(run)


class Bridges:
    """Admits `most` connections."""

    def __init__(self, most: int = 10) -> None:
        self.sessions: list[StuckSession] = []
        self._most = most

    def admit(self, _: PeerAddress) -> PeerSession:
        if len(self.sessions) >= self._most:
            raise DoorRefusal(403, QUOTA, "too many")
        self.sessions.append(StuckSession())
        return self.sessions[-1].session

    async def close(self) -> None:
        """Nothing is to be flushed."""


def dealer(door: Mc0Door) -> AsyncDealer:
    return AsyncDealer(door.endpoint, hwm=1000, max_frame=8 * MIB)


async def asked(peer: AsyncDealer, *frames: bytes) -> list[bytes]:
    peer.send_soon(frames)
    (answer,) = await peer.receive(1)
    return answer


def door_with(bridges: Bridges) -> Mc0Door:
    return Mc0Door(DoorConfig(listen="tcp://127.0.0.1:0"), cast("Any", bridges))


@in_loop
async def test_a_peer_without_progress_is_disconnected_and_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mtl.doors.mc0.door.MC0_STALL_S", 0.1)
    monkeypatch.setattr("mtl.doors.mc0.door.MC0_REFUSED_S", 0.1)
    bridges = Bridges()
    door = door_with(bridges)
    stuck, other = dealer(door), dealer(door)
    assert await asked(stuck, b"NOOP", b"ID", b"n") == [b"OK", b"ID", b"n"]
    assert await asked(other, b"NOOP", b"ID", b"n") == [b"OK", b"ID", b"n"]
    bridges.sessions[1].owner = door._owners[list(door.peers)[1]] = "bob"
    for number in range(8):
        stuck.send_soon([b"PUT", b"ID", b"%d" % number, b"TOPIC", b"slow", b"", bytes(MIB)])
    async with asyncio.timeout(10):
        (refusal,) = await stuck.receive(1)
        assert refusal[:2] == [b"ERROR", b"MESSAGE"]
        assert b"door's limit MC0_UNHANDLED" in refusal[2]
        assert await asked(other, b"NOOP", b"ID", b"n") == [b"OK", b"ID", b"n"]
        while await stuck.receive(10):
            pass  # further refusals, until it is disconnected
        monkeypatch.setattr("mtl.doors.mc0.door.MC0_STALL_S", 1000.0)
        again = dealer(door)
        large = [b"PUT", b"ID", b"n", b"TOPIC", b"slow", b"", bytes(4 * MIB)]
        assert (await asked(again, *large))[0] == b"ERROR", "the door does not wait for it again"
        bridges.sessions[0].room.set()
        assert await asked(other, b"NOOP", b"ID", b"m") == [b"OK", b"ID", b"m"]
    await door.stop()
    assert door._unhandled.held == 0
    for peer in (stuck, other, again):
        peer.close()


@in_loop
async def test_a_refused_peer_is_told_and_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtl.doors.mc0.door.MC0_REFUSED_S", 0.1)
    door = door_with(Bridges(most=0))
    peer = dealer(door)
    async with asyncio.timeout(10):
        peer.send_soon([b"CONNECT"])
        assert await peer.receive(1) == [[b"ERROR", b"MESSAGE", b"403 quota: too many"]]
        assert await asked(peer, b"NOOP", b"ID", b"n") == [
            b"ERROR",
            b"MESSAGE",
            b"403 quota: too many",
            b"ID",
            b"n",
        ]
        assert await peer.receive(1) == []
    await door.stop()
    peer.close()
