"""A client's messages on their way to the broker: in order, each once to each of its addresses, and counted.

What cannot be delivered is acknowledged all the same (MBWS-41), after it became a dead letter: a content of the
resource `mbws.dead` with the message's body and properties, and why. Trouble with the broker is another matter: nobody
knows then what became of the message, and the connection is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass

from mtl.doors.bridge import Bridge
from mtl.doors.mbws.codec import Message
from mtl.doors.mbws.contents import from_message
from mtl.errors import ContentRefused, ContentTooLarge, FieldError, MtlError, Refused
from mtl.wire.fields import Value

log = logging.getLogger("mtl.doors.mbws")

DEAD = "mbws.dead"
"""Where dead letters go."""

_ADDRESS, _REASON = "dead-letter-address", "dead-letter-reason"
_LONGEST_REASON = 1_000
"""Characters of a reason."""


@dataclass(slots=True, eq=False)
class _UnderWay:
    """One message; `left` appends are not confirmed yet."""

    left: int


class Intake:
    """One connection's messages. `confirmed` is the last of those that are durable without a gap, counted from 1."""

    def __init__(self, bridge: Bridge) -> None:
        self.confirmed = 0
        self.error: BaseException | None = None
        self.news = asyncio.Event()
        """Set whenever `confirmed` or `error` changes; whoever waits for it clears it."""
        self._bridge = bridge
        self._under_way: deque[_UnderWay] = deque()
        self._burying: set[asyncio.Task[None]] = set()
        self._rest = asyncio.Event()
        self._rest.set()

    async def take(self, message: Message) -> None:
        """The next message. Returns when it is on its way, which waits while the broker has too much to do."""
        addresses = [address for address in dict.fromkeys(message.addresses) if address]
        one = _UnderWay(len(addresses) or 1)
        self._under_way.append(one)
        self._rest.clear()
        if not addresses:
            self._bury(one, message, "", Refused(404, "no-address", "the message has no address"))
        for address in addresses:
            try:
                settled = await self._bridge.publish(address, message.body, from_message(message))
            except MtlError as error:
                self._failed(one, message, address, error)
            else:
                settled.add_done_callback(
                    lambda done, address=address: self._settled(one, message, address, done)  # type: ignore[misc]
                )

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        await self._rest.wait()

    def _settled(self, one: _UnderWay, message: Message, address: str, done: asyncio.Future[None]) -> None:
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is None:
            self._done(one)
        else:
            self._failed(one, message, address, error)

    def _failed(self, one: _UnderWay, message: Message, address: str, error: BaseException) -> None:
        if _undeliverable(error):
            self._bury(one, message, address, error)
            return
        self.error = self.error or error
        self._rest.set()
        self.news.set()

    def _done(self, one: _UnderWay) -> None:
        one.left -= 1
        while self._under_way and not self._under_way[0].left:
            self._under_way.popleft()
            self.confirmed += 1
            self.news.set()
        if not self._under_way:
            self._rest.set()

    def _bury(self, one: _UnderWay, message: Message, address: str, error: BaseException) -> None:
        task = asyncio.create_task(self._buried(one, message, address, error))
        self._burying.add(task)
        task.add_done_callback(self._burying.discard)

    async def _buried(self, one: _UnderWay, message: Message, address: str, error: BaseException) -> None:
        why: dict[str, Value] = {_ADDRESS: address, _REASON: str(error)[:_LONGEST_REASON]}
        try:
            properties = {**from_message(message), **why}
        except Refused:
            properties = why  # they are what is wrong with it
        try:
            try:
                await (await self._bridge.publish(DEAD, message.body, properties))
            except FieldError:
                await (await self._bridge.publish(DEAD, message.body, why))
        except MtlError as failed:
            if not _undeliverable(failed):
                self._failed(one, message, address, failed)
                return
            log.warning(
                "a message to %r is lost: %s; it cannot become a dead letter: %s", address, error, failed
            )
        self._done(one)


def _undeliverable(error: BaseException) -> bool:
    """Whether it is the message's own fault."""
    if isinstance(error, Refused):
        return error.status < 500
    return isinstance(error, FieldError | ContentTooLarge | ContentRefused)
