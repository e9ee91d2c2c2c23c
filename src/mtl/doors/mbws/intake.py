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

from mtl.doors.mbws.codec import Message
from mtl.doors.mbws.connection_records import CONNECTIONS
from mtl.doors.mbws.contents import TableEncoder, from_message
from mtl.doors.peer_messages import DoorRefusal, peer_message
from mtl.doors.peer_session import PeerSession
from mtl.doors.properties import BAD_PROPERTIES
from mtl.doors.runs import ContentRun
from mtl.errors import ContentRefused, ContentTooLarge, FieldError, MtlError, Refused
from mtl.wire.control import NOT_AUTHORIZED
from mtl.wire.fields import Value

log = logging.getLogger("mtl.doors.mbws")

DEAD = "mbws.dead"
"""The resource of dead letters."""

_ADDRESS, _REASON = "dead-letter-address", "dead-letter-reason"
RESERVED_RESOURCE = DoorRefusal(403, NOT_AUTHORIZED, f"{CONNECTIONS!r} is the door's own")
"""The error for a peer that sends to that resource or reads it."""
_LONGEST_REASON = 1_000
"""Maximum of characters of a dead letter's reason."""


@dataclass(slots=True, eq=False)
class _Batch:
    """Messages under way; `unconfirmed` appends are not confirmed yet."""

    messages: int
    unconfirmed: int


class MbwsIntake:
    """One connection's messages. All messages up to number `confirmed`, counted from 1, are durable."""

    def __init__(self, peer: PeerSession, confirmed: int = 0) -> None:
        self.confirmed = confirmed
        self.error: BaseException | None = None
        self.changed = asyncio.Event()
        """Set whenever `confirmed` or `error` changes; the waiting task clears it."""
        self._peer = peer
        self._tables = TableEncoder()
        self._batches: deque[_Batch] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loss_logged = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def send(self, messages: Sequence[Message]) -> None:
        """Send the next messages. Returns when they are on their way; waits while the broker is overloaded."""
        run, together = ContentRun(""), list[Message]()
        for message in messages:
            if len(message.addresses) != 1 or message.addresses[0] in {"", CONNECTIONS}:
                await self._publish_run(run, together)
                run, together = ContentRun(""), []
                await self._publish_single(message)
                continue
            address = message.addresses[0]
            try:
                table = self._tables.table(message)
            except (Refused, FieldError):
                table = None
            if table is None or address != run.resource or not run.fits(message.body, table):
                await self._publish_run(run, together)
                run, together = ContentRun(address), []
            if table is None:
                await self._publish_single(message)
            else:
                run.add(message.body, table)
                together.append(message)
        await self._publish_run(run, together)

    async def _publish_run(self, run: ContentRun, messages: Sequence[Message]) -> None:
        """Publish messages to one address as one pack: if the broker refuses it, all its messages are refused."""
        if not messages:
            return
        batch = self._add_batch(len(messages), len(messages))
        try:
            settled = await self._peer.publish_run(run)
        except MtlError as error:
            await self._handle_failure(batch, messages, run.resource, error)
        else:
            settled.add_done_callback(partial(self._handle_result, batch, messages, run.resource))

    async def _publish_single(self, message: Message) -> None:
        """Take a message to several addresses, or an invalid one."""
        addresses = [address for address in dict.fromkeys(message.addresses) if address]
        batch = self._add_batch(1, len(addresses) or 1)
        if not addresses:
            await self._send_dead_letter(
                batch, message, "", DoorRefusal(404, "no-address", "the message has no address")
            )
        for address in addresses:
            if address == CONNECTIONS:
                await self._send_dead_letter(batch, message, address, RESERVED_RESOURCE)
                continue
            try:
                settled = await self._peer.publish(address, message.body, from_message(message))
            except MtlError as error:
                await self._handle_failure(batch, (message,), address, error)
            else:
                settled.add_done_callback(partial(self._handle_result, batch, (message,), address))

    def _add_batch(self, messages: int, appends: int) -> _Batch:
        batch = _Batch(messages, appends)
        self._batches.append(batch)
        self._idle.clear()
        return batch

    async def wait_idle(self) -> None:
        """Wait until nothing is under way."""
        await self._idle.wait()

    def _handle_result(
        self, batch: _Batch, messages: Sequence[Message], address: str, done: asyncio.Future[None]
    ) -> None:
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is None:
            self._count_confirmed(batch, len(messages))
        else:
            task = asyncio.create_task(self._handle_failure(batch, messages, address, error))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _handle_failure(
        self, batch: _Batch, messages: Sequence[Message], address: str, error: BaseException
    ) -> None:
        if _undeliverable(error):
            for message in messages:
                await self._send_dead_letter(batch, message, address, error)
        else:
            self._fail(error)

    def _count_confirmed(self, batch: _Batch, appends: int = 1) -> None:
        batch.unconfirmed -= appends
        while self._batches and not self._batches[0].unconfirmed:
            self.confirmed += self._batches.popleft().messages
            self.changed.set()
        if not self._batches:
            self._idle.set()

    def _fail(self, error: BaseException) -> None:
        """Fail: it is unknown whether a message was stored, so no later message is ever confirmed."""
        self.error = self.error or error
        self._idle.set()
        self.changed.set()

    # --- dead letters ---------------------------------------------------------------------------------------

    async def _send_dead_letter(
        self, batch: _Batch, message: Message, address: str, error: BaseException
    ) -> None:
        """Make a message a dead letter; returns when that is on its way."""
        reason: dict[str, Value] = {_ADDRESS: address, _REASON: peer_message(error)[:_LONGEST_REASON]}
        try:
            settled = await self._publish_dead_letter(message, reason)
        except MtlError as failed:
            self._handle_loss(batch, address, error, failed)
        else:
            settled.add_done_callback(partial(self._handle_dead_letter_result, batch, address, error))

    async def _publish_dead_letter(self, message: Message, reason: dict[str, Value]) -> asyncio.Future[None]:
        try:
            return await self._peer.publish(DEAD, message.body, {**from_message(message), **reason})
        except (Refused, FieldError) as wrong:
            if isinstance(wrong, Refused) and wrong.reason != BAD_PROPERTIES:
                raise
            # The properties are invalid, or have no room for the reason.
            return await self._peer.publish(DEAD, message.body, reason)

    def _handle_dead_letter_result(
        self, batch: _Batch, address: str, error: BaseException, done: asyncio.Future[None]
    ) -> None:
        failed = asyncio.CancelledError() if done.cancelled() else done.exception()
        if failed is None:
            self._count_confirmed(batch)
        else:
            self._handle_loss(batch, address, error, failed)

    def _handle_loss(self, batch: _Batch, address: str, error: BaseException, failed: BaseException) -> None:
        """The dead letter failed, too: the message is acknowledged anyway, unless the broker is unreachable."""
        if not _undeliverable(failed):
            self._fail(failed)
            return
        if not self._loss_logged:  # once is enough for one client's log
            log.warning(
                "messages to %r are lost: %s; they cannot become dead letters: %s", address, error, failed
            )
            self._loss_logged = True
        self._count_confirmed(batch)


def _undeliverable(error: BaseException) -> bool:
    """Whether the error is due to the message."""
    if isinstance(error, Refused):
        return error.status < 500
    return isinstance(error, FieldError | ContentTooLarge | ContentRefused)
