"""Connections that outlive their door: it stores them in the broker when it stops, and any door finds them there.

A door that stops, by SIGTERM or with its broker, waits for the Confirms of everything under way to the broker. Then it
knows exactly what it has received from each client. It stores this state (`connection_records`) in the resource
`mbws.connections` before the session ends. For a reconnect with an unknown name a door reads it. So a connection
continues after a restart of the door, for example with another version, and at any other door of the same broker.

Only one door may continue a connection: two would deliver twice. So a door writes a claim and reads the resource up to
it: the first claim after the state wins, and all doors see the same order.

The state of a killed door is not stored. To be exact it would have to be stored with each message; an older state
would repeat the messages sent since. A reconnect then becomes a new connection, as in the document (MBWS-31).

Rights: the door's own user creates the resource (if `create` matches it and it is missing), reads it and writes it.
Peers cannot use its name at this door. A stored state grants no rights: name, origin and user have to match the
connection, and its addresses are read with the current grants of the user.

Limits: MBWS_RETAINED_S from the stop on, or the rest of it for a client that was already away, and MBWS_RETAINED
waiting connections, a quarter of one user's; the contents are removed after MBWS_KEPT_S. A failure to store or read
prevents the recovery: it is logged, and the client begins a new connection.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable

from mtl.doors.bridge import Bridge
from mtl.doors.limits import MBWS_KEPT_S, MBWS_RETAINED
from mtl.doors.mbws.connection_records import (
    CONNECTIONS,
    ClaimRecord,
    ConnectionRecord,
    decode,
    digest,
    encode,
)
from mtl.doors.mbws.recovery import Client
from mtl.doors.remembered import Remembered
from mtl.errors import Malformed, MtlError, Refused
from mtl.wire.control import UNKNOWN_RESOURCE, Description, Retention

log = logging.getLogger("mtl.doors.mbws")


class ConnectionStore:
    """See the module. `bridge` is the door's own way to the broker; `clock` is in seconds since 1970."""

    def __init__(self, bridge: Bridge, clock: Callable[[], float] = time.time) -> None:
        self.turn = asyncio.Lock()
        """Held while a connection is searched and claimed."""
        self._bridge = bridge
        self._clock = clock
        self._failure_logged = False
        self._incarnation: str | None = None
        self._position: int
        """The next sequence to read, of this incarnation."""
        self._known: Remembered[ConnectionRecord] = Remembered(MBWS_RETAINED)
        self._claim: str | None = None
        self._won: ConnectionRecord | None = None
        """Connections that this door claimed first."""

    async def store(self, record: ConnectionRecord) -> None:
        """Store a connection; it is durable when this returns, or the failure is in the log."""
        try:
            if await self._describe_resource(make=True) is None:
                self._log_failure("it is not kept over a restart", f"there is no resource {CONNECTIONS!r}")
                return
            await (await self._bridge.publish(CONNECTIONS, encode(record)))
        except MtlError as error:
            self._log_failure("it is not kept over a restart", error)

    async def claim(self, name: str, client: Client) -> ConnectionRecord | None:
        """Claim a connection of this client that another door stored. For the holder of `turn`."""
        key = digest(name)
        try:
            await self._read_new()
            record = self._known.get(key)
            if record is None or record.client != client:
                return None
            self._claim, self._won = uuid.uuid4().hex, None
            claimed = encode(ClaimRecord(connection=key, claim=self._claim))
            await (await self._bridge.publish(CONNECTIONS, claimed))
            await self._read_new()
            return self._won
        except MtlError as error:
            self._log_failure("it is not recovered", error)
            return None

    async def _describe_resource(self, *, make: bool) -> Description | None:
        """The resource's description; None if it does not exist."""
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

    async def _read_new(self) -> None:
        """Read the contents that were not read yet."""
        description = await self._describe_resource(make=False)
        if description is None or description.incarnation != self._incarnation:
            self._known = Remembered(MBWS_RETAINED)
            self._position, self._incarnation = 1, None
        if description is None:
            return
        self._incarnation, end = description.incarnation, description.next
        if self._position >= end:
            return
        connection = await self._bridge.connection()
        reading = connection.reader(
            CONNECTIONS, start=self._position, until=end, incarnation=self._incarnation, skip_lost=True
        )
        async with reading as contents:
            async for content in contents:
                self._apply(content.body)
        self._position = end
        now = self._clock()
        for key in list(self._known):
            record = self._known.get(key)
            if record is not None and record.until <= now:
                self._known.pop(key)

    def _apply(self, body: bytes) -> None:
        try:
            record = decode(body)
        except Malformed as wrong:
            log.warning("a content of %s is ignored: %s", CONNECTIONS, wrong)
            return
        removed = self._known.pop(record.connection)
        if isinstance(record, ConnectionRecord):
            self._known.add(record.connection, record.client.owner(record.connection), record)
        elif record.claim == self._claim:
            self._won = removed

    def _log_failure(self, consequence: str, reason: object) -> None:
        if not self._failure_logged:  # log it once: it is the same for all connections
            log.warning("a connection waits for its client, but %s: %s", consequence, reason)
            self._failure_logged = True
