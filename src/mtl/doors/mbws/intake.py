"""A client's messages on their way to the broker: in order, each once to each of its addresses, and counted.

An undeliverable message is acknowledged, too (MBWS-41), after it became a dead letter: a content of the resource
`mbws.dead` with the message's body and properties, and the reason. A failure of the broker is different: it is unknown
whether the message was stored, so the connection ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from mtl.doors.bridge import Bridge
from mtl.doors.mbws.codec import Message
from mtl.doors.mbws.contents import ToTables, from_message
from mtl.doors.mbws.kept import CONNECTIONS
from mtl.doors.properties import BAD_PROPERTIES
from mtl.doors.runs import ContentRun
from mtl.doors.telling import Unfit, told
from mtl.errors import ContentRefused, ContentTooLarge, FieldError, MtlError, Refused
from mtl.wire.control import NOT_AUTHORIZED
from mtl.wire.fields import Value

log = logging.getLogger("mtl.doors.mbws")

DEAD = "mbws.dead"
"""The resource of dead letters."""

_ADDRESS, _REASON = "dead-letter-address", "dead-letter-reason"
OURS = Unfit(403, NOT_AUTHORIZED, f"{CONNECTIONS!r} is the door's own")
"""The error for a peer that sends to that resource or reads it."""
_LONGEST_REASON = 1_000
"""Maximum of characters of a dead letter's reason."""


@dataclass(slots=True, eq=False)
class _UnderWay:
    """Messages under way; `left` appends are not confirmed yet."""

    messages: int
    left: int


class MbwsIntake:
    """One connection's messages. All messages up to number `confirmed`, counted from 1, are durable."""

    def __init__(self, bridge: Bridge, confirmed: int = 0) -> None:
        self.confirmed = confirmed
        self.error: BaseException | None = None
        self.news = asyncio.Event()
        """Set whenever `confirmed` or `error` changes; the waiting task clears it."""
        self._bridge = bridge
        self._tables = ToTables()
        self._under_way: deque[_UnderWay] = deque()
        self._burying: set[asyncio.Task[None]] = set()
        self._losing = False
        self._rest = asyncio.Event()
        self._rest.set()

    async def take(self, messages: Sequence[Message]) -> None:
        """Send the next messages. Returns when they are on their way; waits while the broker is overloaded."""
        run, alike = ContentRun(""), list[Message]()
        for message in messages:
            if len(message.addresses) != 1 or message.addresses[0] in {"", CONNECTIONS}:
                await self._publish(run, alike)
                run, alike = ContentRun(""), []
                await self._take(message)
                continue
            address = message.addresses[0]
            try:
                table = self._tables.table(message)
            except (Refused, FieldError):
                table = None
            if table is None or address != run.resource or not run.fits(message.body, table):
                await self._publish(run, alike)
                run, alike = ContentRun(address), []
            if table is None:
                await self._take(message)
            else:
                run.add(message.body, table)
                alike.append(message)
        await self._publish(run, alike)

    async def _publish(self, run: ContentRun, messages: Sequence[Message]) -> None:
        """Publish messages to one address as one pack: if the broker refuses it, all its messages are refused."""
        if not messages:
            return
        many = self._begun(len(messages), len(messages))
        try:
            settled = await self._bridge.publish_run(run)
        except MtlError as error:
            await self._failed(many, messages, run.resource, error)
        else:
            settled.add_done_callback(partial(self._settled, many, messages, run.resource))

    async def _take(self, message: Message) -> None:
        """Take a message to several addresses, or an invalid one."""
        addresses = [address for address in dict.fromkeys(message.addresses) if address]
        one = self._begun(1, len(addresses) or 1)
        if not addresses:
            await self._bury(one, message, "", Unfit(404, "no-address", "the message has no address"))
        for address in addresses:
            if address == CONNECTIONS:
                await self._bury(one, message, address, OURS)
                continue
            try:
                settled = await self._bridge.publish(address, message.body, from_message(message))
            except MtlError as error:
                await self._failed(one, (message,), address, error)
            else:
                settled.add_done_callback(partial(self._settled, one, (message,), address))

    def _begun(self, messages: int, appends: int) -> _UnderWay:
        begun = _UnderWay(messages, appends)
        self._under_way.append(begun)
        self._rest.clear()
        return begun

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        await self._rest.wait()

    def _settled(
        self, what: _UnderWay, messages: Sequence[Message], address: str, done: asyncio.Future[None]
    ) -> None:
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is None:
            self._done(what, len(messages))
        else:
            task = asyncio.create_task(self._failed(what, messages, address, error))
            self._burying.add(task)
            task.add_done_callback(self._burying.discard)

    async def _failed(
        self, what: _UnderWay, messages: Sequence[Message], address: str, error: BaseException
    ) -> None:
        if _undeliverable(error):
            for message in messages:
                await self._bury(what, message, address, error)
        else:
            self._break(error)

    def _done(self, what: _UnderWay, appends: int = 1) -> None:
        what.left -= appends
        while self._under_way and not self._under_way[0].left:
            self.confirmed += self._under_way.popleft().messages
            self.news.set()
        if not self._under_way:
            self._rest.set()

    def _break(self, error: BaseException) -> None:
        """Fail: it is unknown whether a message was stored, so no later message is ever confirmed."""
        self.error = self.error or error
        self._rest.set()
        self.news.set()

    # --- dead letters ---------------------------------------------------------------------------------------

    async def _bury(self, one: _UnderWay, message: Message, address: str, error: BaseException) -> None:
        """Make a message a dead letter; returns when that is on its way."""
        why: dict[str, Value] = {_ADDRESS: address, _REASON: told(error)[:_LONGEST_REASON]}
        try:
            settled = await self._letter(message, why)
        except MtlError as failed:
            self._lost(one, address, error, failed)
        else:
            settled.add_done_callback(partial(self._buried, one, address, error))

    async def _letter(self, message: Message, why: dict[str, Value]) -> asyncio.Future[None]:
        try:
            return await self._bridge.publish(DEAD, message.body, {**from_message(message), **why})
        except (Refused, FieldError) as wrong:
            if isinstance(wrong, Refused) and wrong.reason != BAD_PROPERTIES:
                raise
            # The properties are invalid, or have no room for the reason.
            return await self._bridge.publish(DEAD, message.body, why)

    def _buried(self, one: _UnderWay, address: str, error: BaseException, done: asyncio.Future[None]) -> None:
        failed = asyncio.CancelledError() if done.cancelled() else done.exception()
        if failed is None:
            self._done(one)
        else:
            self._lost(one, address, error, failed)

    def _lost(self, one: _UnderWay, address: str, error: BaseException, failed: BaseException) -> None:
        """The dead letter failed, too: the message is acknowledged anyway, unless the broker is unreachable."""
        if not _undeliverable(failed):
            self._break(failed)
            return
        if not self._losing:  # once is enough for one client's log
            log.warning(
                "messages to %r are lost: %s; they cannot become dead letters: %s", address, error, failed
            )
            self._losing = True
        self._done(one)


def _undeliverable(error: BaseException) -> bool:
    """Whether the error is due to the message."""
    if isinstance(error, Refused):
        return error.status < 500
    return isinstance(error, FieldError | ContentTooLarge | ContentRefused)
