"""The users of the peers, with a connection to the broker for each user. A peer has its user's grants, not the
door's.

The door logs in as itself and acts as the user (`acting_as`, PROTOCOL.md 2.1), which `mtl grant DOOR --act-as` permits.
So it needs no user's password.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from mtl.client.aio import Connection
from mtl.doors.bridge import Bridge
from mtl.doors.failure_log import PeerAddress
from mtl.doors.limits import DOOR_USERS
from mtl.doors.logins import Logins
from mtl.doors.peer_messages import DoorRefusal
from mtl.doors.peer_session import PeerSession
from mtl.doors.pools import Shares
from mtl.wire.control import OVERLOADED


class Bridges:
    """`own` is for peers without credentials, if the door requires none: they have the door's grants."""

    def __init__(
        self, connection: Connection, logins: Logins, shares: Shares, create: Sequence[str] = ()
    ) -> None:
        async def get_connection() -> Connection:
            return connection

        self.shares = shares
        self.own = Bridge(get_connection, create)
        self.logins = logins
        self._create = create
        self._users: dict[str, Bridge] = {}  # least recently used first
        self._closing: set[asyncio.Task[None]] = set()

    def admit(self, peer: PeerAddress) -> PeerSession:
        """The session of a peer that has logged in. Raises `DoorRefusal` when its owner or the door has too many, or
        too many users are busy.
        """
        return PeerSession(self._of(peer.user), self.shares, peer)

    def _of(self, user: str | None) -> Bridge:
        """The bridge of a user; it connects at its first use."""
        if user is None:
            return self.own
        bridge = self._users.pop(user, None)
        if bridge is None:
            self._evict_idle()
            bridge = Bridge(partial(self.logins.connect_as, user), self._create)
        self._users[user] = bridge
        return bridge

    def _evict_idle(self) -> None:
        if len(self._users) < DOOR_USERS:
            return
        idle = next((user for user, bridge in self._users.items() if bridge.idle), None)
        if idle is None:
            raise DoorRefusal(
                503,
                OVERLOADED,
                f"{DOOR_USERS} users at once are this door's limit DOOR_USERS; try again later",
            )
        leaving = asyncio.create_task(self._users.pop(idle).leave())
        self._closing.add(leaving)
        leaving.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Flush all contents and close the writers. Subscriptions are closed by their owners."""
        await asyncio.gather(*(bridge.close() for bridge in (self.own, *self._users.values())))

    async def leave(self) -> None:
        """Close the users' connections, after `close`. The door's own connection is closed by its opener."""
        await asyncio.gather(*self._closing, *(bridge.leave() for bridge in self._users.values()))

    async def drop(self) -> None:
        """Close the users' connections at once, even if the broker does not answer."""
        await asyncio.gather(*(bridge.drop() for bridge in self._users.values()))
