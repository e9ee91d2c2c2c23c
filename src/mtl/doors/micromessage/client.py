"""A client of a MicroMessage2 door, or of another server, with an interface like `mtl.aio`.

    async with micromessage.connect("127.0.0.1:5978") as c:
        async with c.reader("topic/orders", filter="stock<N10") as r:     # all subscribers; from now on
            async with c.writer("topic/orders") as w:
                await w.send(b"...", {"stock": 7})
            async for received in r: ...
        async with c.reader("jobs") as q: ...                             # a queue: one of its readers gets each

A content counts as consumed, and is acknowledged, when the next one is requested. When the connection breaks the
client reconnects, subscribes to topics after its last content, and repeats unacknowledged contents: at least once,
in both directions. Acknowledgements count over all readers of a connection, so a reader that stops blocks the
others; use a separate connection for each reader to avoid this.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Mapping

import msgspec

from mtl.client.aio.opening import Opening
from mtl.doors.addresses import host_and_port
from mtl.doors.clients import (
    AnsweredWriter,
    ContentReader,
    Inbox,
    SendWindow,
    reconnect_forever,
    settle,
    untrusted_error,
    wait_opened,
)
from mtl.doors.limits import MM2_CLIENT_UNREAD, MM2_HANDSHAKE_S, MM2_READ, MM2_WINDOW
from mtl.doors.micromessage.contents import DATES, from_message, is_topic, to_message
from mtl.doors.micromessage.negotiation import (
    DOTNET,
    JSON,
    PUB_SUB,
    Agreed,
    Extension,
    ExtensionOffer,
    batch_ack,
)
from mtl.doors.micromessage.session import (
    Acked,
    Ended,
    Event,
    HandshakeDone,
    MessageArrived,
    MicroRole,
    MicroSession,
    check_json,
)
from mtl.doors.micromessage.values import encode_properties
from mtl.doors.properties import SEQUENCE, to_texts
from mtl.doors.received import Received
from mtl.errors import Closed, MtlError, OptionError, Refused
from mtl.limits import RETRY_DEADLINE_S
from mtl.wire.fields import Value


class _SentMessage(msgspec.Struct, frozen=True):
    """A content on its way; `settled` is done when it is acknowledged."""

    destination: str
    body: bytes
    properties: Mapping[str, Value]
    settled: asyncio.Future[None]


class MicroConnection:
    """One TCP connection, which is opened again after a loss. For the tasks of one event loop."""

    def __init__(
        self,
        endpoint: str,
        offer: ExtensionOffer,
        identity: str,
        tls: ssl.SSLContext | None,
        retry_deadline: float,
    ) -> None:
        self.endpoint = endpoint
        self._place = host_and_port(endpoint)
        self._offer = offer
        self._identity = identity
        self._tls = tls
        self._deadline = retry_deadline
        self._session: MicroSession | None = None
        self._stream: asyncio.StreamWriter | None = None
        self._agreed: Agreed | None = None
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting: deque[_SentMessage] = deque()
        self._outstanding: deque[_SentMessage] = deque()
        self._unread: deque[list[bool]] = deque()
        self._unacknowledged = 0
        self._unsent_octets = 0
        self._scheduled: asyncio.Handle | None = None
        self._readers: dict[str, MicroReader] = {}
        self._window = SendWindow(MM2_CLIENT_UNREAD)
        self._error: MtlError | None = None
        self._task = asyncio.create_task(self._run())

    # --- for readers and writers ----------------------------------------------------------------------------

    def writer(self, destination: str) -> Opening[MicroWriter]:
        """A writer to a queue, or to a topic (`topic/...`); `async with`, or await it."""

        async def open_writer() -> MicroWriter:
            return MicroWriter(self, destination)

        return Opening(open_writer)

    def reader(
        self,
        destination: str,
        *,
        start: str | int = "latest",
        filter: str = "",  # noqa: A002 the protocol's word
    ) -> Opening[MicroReader]:
        """A reader of a queue, or of a topic from `start` on ("earliest", "latest" or a sequence).

        A topic's `filter` is made of terms like `stock<N10` or `kind&Torder`, joined by ";"; all have to match. It
        gets all messages that are sent over this connection afterwards. Raises `OptionError` for a second reader of
        the same destination.
        """

        async def open_reader() -> MicroReader:
            if destination in self._readers:
                raise OptionError(f"this connection reads {destination!r} already")
            if self._error is not None:
                raise self._error
            reader = self._readers[destination] = MicroReader(self, destination, str(start), filter)
            self._subscribe(reader)
            return reader

        return Opening(open_reader)

    async def send(
        self, destination: str, body: bytes, properties: Mapping[str, Value]
    ) -> asyncio.Future[None]:
        """Send, in order; waits while the window is full. The result is done when the content is acknowledged."""

        def begin() -> asyncio.Future[None]:
            if self._error is not None:
                raise self._error
            settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            # a copy: the caller's dictionary may change
            self._waiting.append(_SentMessage(destination, body, dict(properties), settled))
            return settled

        settled = await self._window.place(begin)
        self._unsent_octets += len(body)
        if self._unsent_octets < MM2_READ:
            self._schedule_sending()
        else:
            self._send_waiting()
            if self._stream is not None:
                try:
                    await self._stream.drain()
                except OSError:
                    pass  # it is sent again
        return settled

    def mark_consumed(self, entry: list[bool]) -> None:
        """Mark a content as consumed; contents are acknowledged up to the first that is not consumed."""
        entry[0] = True
        while self._unread and self._unread[0][0]:
            self._unread.popleft()
            self._unacknowledged += 1
        if self._unacknowledged:
            self._schedule_sending()

    def forget(self, reader: MicroReader) -> None:
        """Unsubscribe; contents that the reader did not take count as consumed, so that other readers continue."""
        if self._readers.pop(reader.destination, None) is not None and self._session is not None:
            self._acknowledge(self._session)  # first: unacknowledged contents return to their queue
            self._session.command("unsubscribe", {"destination": reader.destination})
            self._flush()

    def _subscribe(self, reader: MicroReader) -> None:
        if self._session is not None and self._agreed is not None:
            self._session.command("subscribe", reader.arguments())
            self._flush()

    def _schedule_sending(self) -> None:
        """Combine the frames of one turn of the event loop into one write."""
        if self._scheduled is None:
            self._scheduled = asyncio.get_running_loop().call_soon(self._send_waiting)

    def _send_waiting(self) -> None:
        """Acknowledge consumed contents, and send as many contents as there is room for."""
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        self._unsent_octets = 0
        session, agreed = self._session, self._agreed
        if session is None or agreed is None:
            return
        self._acknowledge(session)
        while self._waiting and session.room:
            sent = self._waiting.popleft()
            if sent.settled.done():
                continue  # its sender was cancelled
            try:
                encoded, kind = "", None
                if sent.properties:
                    properties, kind = to_message(sent.properties, agreed)
                    encoded = encode_properties(properties)
                if JSON in agreed:
                    check_json(sent.body)
                session.send(sent.destination, sent.body, encoded, kind)
            except MtlError as error:
                settle(sent.settled, error)
                continue
            if agreed.window is None:
                settle(sent.settled)
            else:
                self._outstanding.append(sent)
        self._flush()

    def _acknowledge(self, session: MicroSession) -> None:
        count, self._unacknowledged = self._unacknowledged, 0
        session.ack(count)

    def _flush(self) -> None:
        if self._session is not None and self._stream is not None and not self._stream.is_closing():
            data = self._session.to_send()
            if data:
                self._stream.write(data)

    # --- one connection after the other ---------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await reconnect_forever(
                self._run_connection, self.endpoint, self._deadline, "connecting to a MicroMessage2 server"
            )
        except MtlError as error:
            self.fail(error)
        except asyncio.CancelledError:  # the event loop ends: other tasks must not wait for this one
            self.fail(Closed("the connection's task was cancelled"))
            raise

    async def _run_connection(self) -> bool:
        """Run one connection until its end. Returns whether its handshake completed. Raises `Refused` for an ERROR."""
        try:
            async with asyncio.timeout(MM2_HANDSHAKE_S):
                stream, self._stream = await asyncio.open_connection(*self._place, ssl=self._tls)
        except ssl.SSLCertVerificationError as wrong:
            raise untrusted_error(self.endpoint, wrong) from wrong
        except OSError:  # TimeoutError is one
            return False
        self._session = MicroSession(MicroRole.CLIENT, self._offer, self._identity)
        try:
            self._flush()
            while data := await self._read(stream):
                for event in self._session.received(data):
                    self._handle_event(event)
                self._send_waiting()
                for reader in list(self._readers.values()):
                    await reader.inbox.room()
        except OSError:
            pass  # the connection is lost
        finally:
            connected, self._agreed = self._agreed is not None, None
            self._acknowledge(self._session)
            self._flush()
            self._stream.close()
            self._session = self._stream = None
            self._waiting.extendleft(reversed(self._outstanding))
            self._outstanding.clear()
            self._unread.clear()
        return connected

    async def _read(self, stream: asyncio.StreamReader) -> bytes:
        async with asyncio.timeout(None if self._agreed is not None else MM2_HANDSHAKE_S):
            return await stream.read(MM2_READ)

    def _handle_event(self, event: Event) -> None:
        match event:
            case HandshakeDone(_, agreed):
                self._agreed = agreed
                settle(self.opened)
                for reader in self._readers.values():
                    self._subscribe(reader)
            case MessageArrived():
                self._deliver_message(event)
            case Acked(count):
                for _ in range(count):
                    settle(self._outstanding.popleft().settled)
            case Ended(text):
                raise Refused(400, "error", text)
            case _:
                pass

    def _deliver_message(self, message: MessageArrived) -> None:
        assert self._agreed is not None
        entry = [False]
        self._unread.append(entry)
        reader = self._readers.get(message.destination)
        properties = from_message(message, self._agreed)
        properties.pop(DATES, None)  # all are shown as texts
        place = properties.pop(SEQUENCE, None)
        if reader is None:
            self.mark_consumed(entry)
            return
        sequence = place if type(place) is int else None
        received = Received(message.destination, sequence, message.payload, to_texts(properties))
        reader.deliver(received, entry)

    # --- the end --------------------------------------------------------------------------------------------

    def fail(self, error: MtlError) -> None:
        """End the connection with an error for all waiting tasks."""
        if self._error is None:
            self._error = error
        for sent in (*self._outstanding, *self._waiting):
            settle(sent.settled, self._error)
        settle(self.opened, self._error)
        for reader in self._readers.values():
            reader.inbox.fail(self._error)

    async def leave(self, *, failed: bool) -> None:  # noqa: ARG002 writers flush, a connection has nothing to wait for
        """Close, at the end of a block."""
        await self.close()

    async def close(self) -> None:
        """Disconnect, and drop everything. Harmless when repeated."""
        self.fail(Closed("the connection is closed"))
        self._task.cancel()
        await asyncio.wait({self._task})


class MicroWriter(AnsweredWriter):
    """Sends contents to one destination. `flush` waits until all are acknowledged: durable, at an MTL door."""

    def __init__(self, connection: MicroConnection, destination: str) -> None:
        super().__init__()
        self.destination = destination
        self._connection = connection

    async def send(self, body: bytes, properties: Mapping[str, Value] | None = None) -> asyncio.Future[None]:
        """Send one content; await the result for its acknowledgement, or `flush` for all. `dotnet-type` is its type."""
        return self._sent(await self._connection.send(self.destination, body, properties or {}))


class MicroReader(ContentReader):
    """The contents of one destination while the reader is open, in order; for one task."""

    def __init__(self, connection: MicroConnection, destination: str, start: str, filter: str) -> None:  # noqa: A002
        self.destination = destination
        self.inbox: Inbox[tuple[Received, list[bool]]] = Inbox(MM2_CLIENT_UNREAD)
        self._connection = connection
        self._start = start
        self._filter = filter
        self._current: list[bool] | None = None

    def arguments(self) -> dict[str, str]:
        """The arguments of SUBSCRIBE: after a reconnect, from behind the last received content."""
        if not is_topic(self.destination):
            return {"destination": self.destination}
        arguments = {"destination": self.destination, "from": self._start}
        return {**arguments, "filter": self._filter} if self._filter else arguments

    def deliver(self, received: Received, entry: list[bool]) -> None:
        """Add a received content."""
        if received.sequence is not None:
            self._start = str(received.sequence + 1)
        self.inbox.put((received, entry))

    async def next(self) -> Received:
        """The next content; the one before it is acknowledged. Raises `Unreachable`, `Closed`, `Refused`."""
        self._mark_current_consumed()
        received, self._current = await self.inbox.get()
        return received

    async def close(self) -> None:
        """Acknowledge consumed contents, and unsubscribe. Harmless when repeated."""
        self.inbox.fail(Closed("the reader is closed"))
        self._mark_current_consumed()
        self._connection.forget(self)
        for _, entry in self.inbox.drain():
            self._connection.mark_consumed(entry)

    def _mark_current_consumed(self) -> None:
        if self._current is not None:
            self._connection.mark_consumed(self._current)
            self._current = None


def connect(
    endpoint: str,
    *,
    window: int | None = MM2_WINDOW,
    json: bool = False,
    dotnet: bool = False,
    identity: str = "mtl-client",
    tls: ssl.SSLContext | None = None,
    retry_deadline: float = RETRY_DEADLINE_S,
) -> Opening[MicroConnection]:
    """Connect to a MicroMessage2 server at HOST:PORT; `async with`, or await it and close the result.

    - `window`: messages that may be without acknowledgement in either direction (1: `ack`, more: `batch-ack`, None: no
      acknowledgements, and a lost connection loses contents under way). Default: 1,000.
    - `json`: whether every payload is JSON. Default: no.
    - `dotnet`: whether every payload has a type. Default: no.
    - `identity`: the client's name in the handshake. Default: "mtl-client".
    - `tls`: enables TLS with the authorities in it. Default: no TLS.
    - `retry_deadline`: seconds without an answer after which `Unreachable` is raised. Default: 30.

    Raises `Unreachable`, `Refused` with the text of an ERROR, or when the door's certificate is not trusted.
    """
    acks = () if window is None else (Extension("ack") if window == 1 else batch_ack(window),)
    named = [name for name, wanted in ((JSON, json), (DOTNET, dotnet), (PUB_SUB, True)) if wanted]
    offer = ExtensionOffer((*acks, *map(Extension, named)))

    async def open_connection() -> MicroConnection:
        connection = MicroConnection(endpoint, offer, identity, tls, retry_deadline)
        return await wait_opened(connection, connection.opened)

    return Opening(open_connection)
