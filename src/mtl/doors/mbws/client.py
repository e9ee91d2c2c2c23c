"""A client of an MBWS door, or of another server, with an interface like `mtl.aio`.

    async with mbws.connect("ws://127.0.0.1:5979") as c:
        async with c.reader("orders", start="earliest") as r:
            async with c.writer("orders") as w:
                await w.send(b"...", {"kind": "new"})        # leaving the block: all of it is durable
            async for received in r: ...

A content counts as consumed, and is acknowledged, when the next one is requested. After a network failure a connection
is recovered without loss or repetition in either direction. If no door knows it any more, for example because the door
was killed, a reader continues after its last content, and a writer repeats its unacknowledged contents: delivery is at
least once then. All writers share one connection. Each reader has its own, as the URL names the address to read.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from mtl.client.aio.opening import Opening
from mtl.client.reader_part import Start
from mtl.doors.budget import Budget
from mtl.doors.clients import ContentReader, Inbox, wait_opened
from mtl.doors.limits import MBWS_CLIENT_OCTETS, MBWS_CLIENT_WINDOW, MBWS_HEADER
from mtl.doors.mbws.codec import Kind, Message
from mtl.doors.mbws.contents import MessageEncoder
from mtl.doors.mbws.link import LinkTarget, MbwsLink
from mtl.doors.mbws.subscription_query import SubscriptionQuery
from mtl.doors.properties import CONTENT_TYPE, SEQUENCE, sequence_of
from mtl.doors.received import Received
from mtl.errors import Closed, ContentTooLarge, FieldError, OptionError
from mtl.limits import MAX_CONTENT, RETRY_DEADLINE_S
from mtl.wire.fields import Value


class MbwsConnection:
    """A client of one door, for the tasks of one event loop. `link` is the connection of the writers."""

    def __init__(self, target: LinkTarget) -> None:
        self.endpoint = target.url
        self.link = MbwsLink(target)
        self._target = target
        self._readers: set[MbwsReader] = set()

    def writer(self, address: str) -> Opening[MbwsWriter]:
        """A writer to an address; `async with`, or await it."""

        async def open_writer() -> MbwsWriter:
            return MbwsWriter(self.link, address, self._target.kind)

        return Opening(open_writer)

    def reader(self, address: str, *, start: Start = "latest") -> Opening[MbwsReader]:
        """A reader from `start` on: "earliest", "latest" or a sequence. It gets everything that is sent afterwards.

        Raises `Refused` if the address does not exist.
        """

        async def open_reader() -> MbwsReader:
            if self.link.error is not None:
                raise self.link.error
            reader = MbwsReader(self._target, address, start, self._readers.discard)
            self._readers.add(reader)
            return await wait_opened(reader, reader.link.opened)

        return Opening(open_reader)

    async def leave(self, *, failed: bool) -> None:  # noqa: ARG002 writers flush, a connection has nothing to wait for
        """Close, at the end of a block."""
        await self.close()

    async def close(self) -> None:
        """Close the connections of the writers and of every reader. Harmless when repeated."""
        await asyncio.gather(self.link.close(), *(reader.close() for reader in list(self._readers)))


class MbwsWriter:
    """Sends contents to one address. `flush` waits until all are acknowledged: durable, at an MTL door."""

    def __init__(self, link: MbwsLink, address: str, kind: Kind) -> None:
        self.address = address
        self._link = link
        self._messages = MessageEncoder(address, kind)
        self._messages.set_properties({})
        self._properties: dict[str, Value] = {}
        self._sent = 0

    async def send(self, body: bytes, properties: Mapping[str, Value] | None = None) -> asyncio.Future[None]:
        """Send one content, in order; await the result for its acknowledgement, or `flush` for all. Waits while the
        window is full.

        Raises `ContentTooLarge`, `FieldError` for properties that do not fit.
        """
        if len(body) > MAX_CONTENT:
            raise ContentTooLarge(len(body), MAX_CONTENT)
        if (properties or {}) != self._properties:
            properties = dict(properties or {})
            self._messages.set_properties(properties)
            self._properties = properties
        data = self._messages.message(body)
        size = len(data if isinstance(data, bytes) else data.encode())
        header = size - len(body)
        if header > MBWS_HEADER:
            raise FieldError(f"addresses and properties have {header} octets, {MBWS_HEADER} are the most")
        settled = await self._link.send(data, size)
        self._sent = self._link.sent
        return settled

    async def flush(self) -> None:
        """Wait until all contents are acknowledged, which is in order. Raises the error that ended the connection."""
        await self._link.flush(self._sent)

    async def leave(self, *, failed: bool) -> None:
        """Flush, at the end of a block that did not fail."""
        if not failed:
            await self.flush()


class MbwsReader(ContentReader):
    """The contents of one address, in order; for one task. `link` is its connection."""

    def __init__(
        self, target: LinkTarget, address: str, start: Start, ended: Callable[[MbwsReader], None]
    ) -> None:
        self.address = address
        self._start = start
        self._ended = ended
        self._inbox: Inbox[tuple[Received, int]] = Inbox(MBWS_CLIENT_WINDOW)
        self._octets = Budget(MBWS_CLIENT_OCTETS)
        self._current: tuple[Received, int] | None = None
        self.link = MbwsLink(
            target, lambda: SubscriptionQuery({address: self._start}), self._handle_messages, self._inbox.fail
        )

    async def next(self) -> Received:
        """The next content; the one before it is acknowledged. Raises `Unreachable`, `Closed`, `Refused`."""
        self._acknowledge_current()
        received, _ = self._current = await self._inbox.get()
        return received

    async def close(self) -> None:
        """Acknowledge the consumed contents, and close the connection. Harmless when repeated."""
        self._inbox.fail(Closed("the reader is closed"))
        self._acknowledge_current()
        for received, _ in self._inbox.drain():
            self._octets.release(len(received.body))
        await self.link.close()
        self._ended(self)

    async def _handle_messages(self, messages: Sequence[Message], beginning: int) -> None:
        """Take messages that arrived together."""
        contents = list(map(self._to_received, messages))
        for content in reversed(contents):
            if content.sequence is not None:
                self._start = content.sequence + 1
                break
        await self._octets.acquire(sum(len(content.body) for content in contents))
        self._inbox.put_all([(content, beginning) for content in contents])
        await self._inbox.room()

    def _to_received(self, message: Message) -> Received:
        properties = dict(message.properties)
        if message.content_type:
            properties[CONTENT_TYPE] = message.content_type
        sequence = sequence_of(properties.pop(SEQUENCE, ""))
        return Received(self.address, sequence, message.body, properties)

    def _acknowledge_current(self) -> None:
        if self._current is not None:
            received, beginning = self._current
            self._current = None
            self._octets.release(len(received.body))
            self.link.count_consumed(beginning)


def connect(
    url: str,
    *,
    text: bool = False,
    tls: ssl.SSLContext | None = None,
    authorization: str | None = None,
    retry_deadline: float = RETRY_DEADLINE_S,
) -> Opening[MbwsConnection]:
    """Connect to an MBWS door at a ws: or wss: URL; `async with`, or await it and close the result.

    - `text`: whether messages whose body is text are text frames. Default: no.
    - `tls`: for a wss: URL: the trusted authorities, and optionally a client certificate as the credentials. Default:
      the system's authorities.
    - `authorization`: the credentials, from `websocket_client.basic` or `.bearer`. Default: none.
    - `retry_deadline`: seconds without an answer after which `Unreachable` is raised. Default: 30.

    Raises `Unreachable`, `Refused` if the door denies access.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"ws", "wss"} or not parts.hostname or parts.query or parts.fragment:
        raise OptionError(
            "the URL is not ws://HOST:PORT or wss://HOST:PORT; it is not shown, because it may have a password"
        )
    target = LinkTarget(url, Kind.TEXT if text else Kind.BINARY, tls, retry_deadline, authorization)

    async def open_connection() -> MbwsConnection:
        connection = MbwsConnection(target)
        return await wait_opened(connection, connection.link.opened)

    return Opening(open_connection)
