"""The mc0 door: one ROUTER, a `Mc0Peer` for each connection (MC0-01).

A ROUTER identity is not authentication: after the end of its connection another peer can announce it. So a peer ends
with its connection. A silent peer's connection is closed, so that its identity is free when it reconnects.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

from mtl.doors.budget import Budget
from mtl.doors.config import DoorConfig
from mtl.doors.failure_log import PeerAddress
from mtl.doors.identity import users_of
from mtl.doors.limits import (
    DOOR_PENDING_ADDRESS,
    MC0_ABSENT,
    MC0_HWM,
    MC0_INBOX,
    MC0_QUEUED,
    MC0_REFUSED_S,
    MC0_STALL_S,
    MC0_UNHANDLED,
    MC0_UNSENT,
    MC0_WAITING,
)
from mtl.doors.listening import door_entrance
from mtl.doors.mc0.codec import BadMessage, decode, encode, error
from mtl.doors.mc0.peer import Batch, Mc0Peer
from mtl.doors.peer_messages import DoorRefusal, peer_message
from mtl.doors.remembered import Remembered
from mtl.doors.users import Bridges
from mtl.limits import ARRIVAL_OVERHEAD, MAX_FRAME
from mtl.net.aio import Arrived, AsyncRouter
from mtl.net.curve import read_pair
from mtl.net.ipc import admit
from mtl.net.origin import Connection, key_of, number_of
from mtl.net.outgoing import Outgoing
from mtl.shares import default_share
from mtl.wire.control import QUOTA

NAME = "mc0"


class Mc0Door:
    """See the module. `endpoint` is the ROUTER's."""

    def __init__(self, config: DoorConfig, bridges: Bridges) -> None:
        self._config = config
        self.bridges = bridges
        self._users = users_of(config.peer_keys)
        """By CURVE key."""
        keys = read_pair(Path(config.curve_key_file)) if config.curve_key_file is not None else None
        self._router = AsyncRouter(
            str(config.address(NAME)),
            hwm=MC0_HWM,
            max_frame=MAX_FRAME,
            max_queued=MC0_QUEUED,
            max_waiting=MC0_WAITING,
            curve_secret=keys[1] if keys is not None else None,
            admits=self._users.__contains__ if config.authenticates else None,
            entrance=door_entrance(),
            most_open=config.max_sessions + DOOR_PENDING_ADDRESS,
            lost=self._handle_lost,
            outgoing=Outgoing(MC0_UNSENT, lambda _: default_share(MC0_UNSENT)),
        )
        self.endpoint = self._router.endpoint
        admit(self.endpoint, config.socket_mode)
        self.peers: dict[Connection, Mc0Peer] = {}
        self._owners: dict[Connection, str] = {}
        self._refused: dict[Connection, str] = {}
        """Connections that are about to be closed, and why: their messages are answered with that."""
        self._unhandled = Budget(MC0_UNHANDLED, default_share(MC0_UNHANDLED))
        self._stalled: set[str] = set()
        """Owners of unhandled octets without progress."""
        self._absent: Remembered[bytes] = Remembered(MC0_ABSENT)
        """Identities whose connections were closed for silence: they get an ERROR about it when they return."""
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while True:
            for arrived in await self._router.receive(MC0_INBOX):
                await self._handle_arrived(arrived)

    async def _handle_arrived(self, arrived: Arrived) -> None:
        connection = arrived.connection
        peer = self.peers.get(connection)
        if not arrived.messages:
            self._refused.pop(connection, None)
            if peer is not None:
                peer.inbox.put_nowait(Batch([]))
            return
        if (words := self._refused.get(connection)) is not None:
            self._answer_refused(arrived, words)
            return
        try:
            if peer is None:
                peer = self._admit(arrived)
            batch = await self._taken(arrived, self._owners[connection])
        except DoorRefusal as refusal:
            self._refuse(arrived, peer_message(refusal))
        else:
            peer.inbox.put_nowait(batch)

    def _admit(self, arrived: Arrived) -> Mc0Peer:
        """The peer of a connection's first message. Raises `DoorRefusal`."""
        connection, identity = arrived.connection, arrived.identity
        user = self._users.get(key_of(connection))
        address = PeerAddress(self._router.address(connection), user=user, number=number_of(connection))
        session = self.bridges.admit(address)
        absent = _absent_key(user or address.address, identity)

        def remove() -> None:
            del self.peers[connection], self._owners[connection]

        peer = Mc0Peer(
            session,
            partial(self._router.send, connection, identity, session.owner),
            time.monotonic,
            remove,
            partial(self._free_identity, connection, identity, user or address.address),
            absent=self._absent.pop(absent) is not None,
        )
        self.peers[connection] = peer
        self._owners[connection] = session.owner
        return peer

    async def _taken(self, arrived: Arrived, owner: str) -> Batch:
        """The messages, counted for the owner until they are handled. Raises `DoorRefusal`.

        One socket serves all peers, so the door waits for an owner with its whole share once, for MC0_STALL_S. Until
        that owner makes progress its peers are refused.
        """
        octets = sum(ARRIVAL_OVERHEAD + sum(map(len, frames)) for frames in arrived.messages)
        unhandled = self._unhandled
        while not unhandled.try_acquire(octets, owner):
            try:
                async with asyncio.timeout(0.0 if owner in self._stalled else MC0_STALL_S):
                    await unhandled.acquire(octets, owner)
                break
            except TimeoutError:
                if unhandled.is_owner_full(octets, owner):
                    self._stalled.add(owner)
                    raise DoorRefusal(
                        403,
                        QUOTA,
                        f"{unhandled.share} octets of your messages wait for the broker, which is a quarter of the "
                        "door's limit MC0_UNHANDLED: wait for answers before sending more",
                    ) from None
        return Batch(arrived.messages, partial(self._handle_progress, octets, owner))

    def _handle_progress(self, octets: int, owner: str) -> None:
        self._stalled.discard(owner)
        self._unhandled.release(octets, owner)

    def _free_identity(self, connection: Connection, identity: bytes, owner: str) -> None:
        """Free the identity that a silent peer chose. An identity chosen by libzmq is unique and not reused."""
        if identity.startswith(b"\0"):
            return
        self._absent.add(_absent_key(owner, identity), owner, identity)
        self._router.cut(connection)

    def _handle_lost(self, connection: Connection) -> None:
        peer = self.peers.get(connection)
        if peer is not None:
            peer.connection_lost()

    def _refuse(self, arrived: Arrived, words: str) -> None:
        """Answer with ERROR, and close the connection when the peer has read it: a refused one must not stay open."""
        self._refused[arrived.connection] = words
        asyncio.get_running_loop().call_later(MC0_REFUSED_S, self._router.cut, arrived.connection)
        self._answer_refused(arrived, words)

    def _answer_refused(self, arrived: Arrived, words: str) -> None:
        """An ERROR for each message with an ID, at least one."""
        answers: list[list[bytes]] = []
        unsolicited: list[bytes] | None = None
        for frames in arrived.messages:
            try:
                message, delimited = decode(frames)
            except BadMessage:
                continue
            answer = encode(error(words, message.id), delimited=delimited)
            if message.id is None:
                unsolicited = answer
            else:
                answers.append(answer)
        for answer in answers or filter(None, [unsolicited]):
            address = self._router.address(arrived.connection)
            self._router.send(arrived.connection, arrived.identity, address, answer)

    async def stop(self) -> None:
        """Stop reading; contents taken in are still confirmed and answered while the broker answers."""
        self._reading.cancel()
        await self.bridges.close()
        await asyncio.gather(*(peer.stop() for peer in list(self.peers.values())))
        self._router.close()


def _absent_key(owner: str, identity: bytes) -> str:
    return f"{identity.hex()} {owner}"


async def listen(config: DoorConfig, bridges: Bridges) -> Mc0Door:
    """An mc0 door. Raises `OptionError`, `BindFailed`."""
    return Mc0Door(config, bridges)
