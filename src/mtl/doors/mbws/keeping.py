"""Connections that outlive their door: stored in the broker when it stops, found there by whichever door is asked.

A door that is told to stop, by SIGTERM or with its broker, lets everything that is under way to the broker be confirmed
and then knows exactly what it has of each client. This is stored (`kept`) in the resource `mbws.connections` before the
session ends. A reconnect with a name that a door does not know is looked for there. So a connection goes on after the
door was started again, with another version, say, and at any other door of the same broker.

One door goes on. A connection that two doors had would deliver twice. So a door writes a claim and reads the resource
up to it: the first claim behind the state is the one that counts, and all doors see the same order.

What a killed door had is not there. To be exact its state would have to be stored with each message; state of a moment
before would double what was sent since. A reconnect is a new connection then, as the document has it (MBWS-31).

Rights: it is the door's own user who makes the resource (where `create` has it, or it is there already), reads and
writes it. Peers cannot use its name at this door. A state gives nobody anything: name, origin and user have to be
those of the connection, and its addresses are read with the grants that the user has now.

Limits: MBWS_RETAINED_S from the stop on, or what was left of it to a client that was away, and MBWS_RETAINED
connections that wait; the contents are gone after MBWS_KEPT_S. What cannot be stored, or read, costs the recovery: it
is logged, and the client begins a new connection.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable

from mtl.doors.bridge import Bridge
from mtl.doors.limits import MBWS_KEPT_S, MBWS_RETAINED
from mtl.doors.mbws.kept import CONNECTIONS, Claimed, Kept, decode, digest, encode
from mtl.doors.mbws.recovery import Client
from mtl.errors import Malformed, MtlError, Refused
from mtl.wire.control import UNKNOWN_RESOURCE, Description, Retention

log = logging.getLogger("mtl.doors.mbws")


class Keeper:
    """See the module. `bridge` is the door's own way to the broker; `clock` is in seconds since 1970."""

    def __init__(self, bridge: Bridge, clock: Callable[[], float] = time.time) -> None:
        self.turn = asyncio.Lock()
        """Held while a connection is looked for and claimed."""
        self._bridge = bridge
        self._clock = clock
        self._silent = False
        self._incarnation: str | None = None
        self._position = 1
        self._known: dict[str, Kept] = {}
        self._claim: str | None = None
        self._won: Kept | None = None
        """What our claim was the first for."""

    async def keep(self, record: Kept) -> None:
        """Store a connection; it is durable when this returns, or the log says why it is not."""
        try:
            if await self._there(make=True) is None:
                self._failed("it is not kept over a restart", f"there is no resource {CONNECTIONS!r}")
                return
            await (await self._bridge.publish(CONNECTIONS, encode(record)))
        except MtlError as error:
            self._failed("it is not kept over a restart", error)

    async def claim(self, name: str, client: Client) -> Kept | None:
        """A connection of this client that another door stored; it is this door's then. For the holder of `turn`."""
        key = digest(name)
        try:
            await self._read()
            found = self._known.get(key)
            if found is None or found.client != client:
                return None
            self._claim, self._won = uuid.uuid4().hex, None
            claimed = encode(Claimed(connection=key, claim=self._claim))
            await (await self._bridge.publish(CONNECTIONS, claimed))
            await self._read()
            return self._won
        except MtlError as error:
            self._failed("it is not recovered", error)
            return None

    async def _there(self, *, make: bool) -> Description | None:
        """The resource as it is; None where there is none."""
        connection = await self._bridge.connection()
        try:
            return (await connection.describe([CONNECTIONS]))[CONNECTIONS]
        except Refused as refused:
            if refused.reason != UNKNOWN_RESOURCE:
                raise
        if not make or not self._bridge.creates(CONNECTIONS):
            return None
        retention = Retention(age=MBWS_KEPT_S)
        return await connection.create_resource(CONNECTIONS, retention=retention, exist_ok=True)

    async def _read(self) -> None:
        """Take in what is there and was not read yet."""
        there = await self._there(make=False)
        if there is None or there.incarnation != self._incarnation:
            self._known.clear()
            self._position, self._incarnation = 1, None
        if there is None:
            return
        self._incarnation, end = there.incarnation, there.next
        if self._position >= end:
            return
        connection = await self._bridge.connection()
        reading = connection.reader(
            CONNECTIONS, start=self._position, until=end, incarnation=self._incarnation, skip_lost=True
        )
        async with reading as contents:
            async for content in contents:
                self._take(content.body)
        self._position = end
        now = self._clock()
        self._known = {key: one for key, one in self._known.items() if one.until > now}

    def _take(self, body: bytes) -> None:
        try:
            record = decode(body)
        except Malformed as wrong:
            log.warning("a content of %s is passed over: %s", CONNECTIONS, wrong)
            return
        found = self._known.pop(record.connection, None)
        if isinstance(record, Kept):
            self._known[record.connection] = record
            if len(self._known) > MBWS_RETAINED:
                del self._known[next(iter(self._known))]
        elif record.claim == self._claim:
            self._won = found

    def _failed(self, what: str, why: object) -> None:
        if not self._silent:  # once is enough: it is the same for all
            log.warning("a connection waits for its client, but %s: %s", what, why)
            self._silent = True
