"""A client of a Reactive Streams door, with an interface like `mtl.aio`.

    async with reactive.connect("127.0.0.1:5977") as c:
        async with c.writer("orders") as w:
            await w.send(b"...")                          # leaving the block: all of it is durable
        async with c.reader("orders", start="earliest") as r:
            async for received in r: ...

The protocol keeps no state between connections, so the client does not reconnect: after a loss every call raises
`Unreachable`. Connect again, and continue reading from `ReactiveReader.position`. The results of `send` tell which
contents are durable.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque

from mtl.client.aio.opening import Opening
from mtl.client.incoming import Start
from mtl.doors.clients import opened, settle, untrusted
from mtl.doors.limits import RS_CLIENT_WINDOW
from mtl.doors.places import host_and_port
from mtl.doors.reactive import codec as m
from mtl.doors.reactive import names
from mtl.doors.reactive.link import ReactiveLink
from mtl.doors.reactive.publishing import UNBOUNDED, Demanded
from mtl.doors.reactive.session import Event, HelloArrived, Left, Role
from mtl.doors.reactive.streams import ReactiveReader, ReactiveWriter, Stream
from mtl.doors.reactive.subscribing import Elements
from mtl.doors.reactive.transports import Octets, Transport
from mtl.errors import Closed, MtlError, OptionError, Refused, Unreachable
from mtl.limits import RETRY_DEADLINE_S


class ReactiveConnection:
    """One connection. For the tasks of one event loop."""

    def __init__(self, endpoint: str, link: ReactiveLink) -> None:
        self.endpoint = endpoint
        self._link = link
        self.error: MtlError | None = None
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._streams: dict[int, Stream] = {}
        """By our Ids: what a reader is subscribed to, and a writer's confirmations."""
        self._asked_back: dict[str, deque[ReactiveWriter]] = {}
        """Writers to whose elements the door has not subscribed yet, in the order of their opening."""
        self._publishing: dict[int, ReactiveWriter] = {}
        """By the door's Ids."""
        self._life = asyncio.create_task(self._lived())

    async def greeted(self) -> None:
        """Wait for the door's hello. Raises `Unreachable`, also when a goodbye follows at once."""
        await self._opened
        if self.error is not None:
            raise self.error

    # --- for readers and writers ----------------------------------------------------------------------------

    def reader(
        self, resource: str, *, start: Start = "earliest", window: int = RS_CLIENT_WINDOW
    ) -> Opening[ReactiveReader]:
        """A reader from `start` on: "earliest", "latest" or a sequence. At most `window` elements are on their way or
        not read yet. `Refused` when there is no such resource. `async with`, or await it.
        """
        if window < 1:
            raise OptionError("window has to be above 0")

        async def subscribed() -> ReactiveReader:
            reader = ReactiveReader(self._link, resource, self._forget, window)
            name = names.contents(resource, start, enveloped=True)
            self._begin(reader, name, window)
            await self._begun(reader)
            return reader

        return Opening(subscribed)

    def writer(self, resource: str) -> Opening[ReactiveWriter]:
        """A writer to a resource. `async with`, or await it."""

        async def subscribed() -> ReactiveWriter:
            name = names.confirmations(resource)
            writer = ReactiveWriter(self._link, resource, self._forget)
            self._begin(writer, names.PUBLISH + name.back, UNBOUNDED)
            self._asked_back.setdefault(name.back, deque()).append(writer)
            await self._begun(writer)
            return writer

        return Opening(subscribed)

    def _begin(self, stream: Stream, publisher: str, demand: int) -> None:
        if self.error is not None:
            raise self.error
        stream.id = self._link.session.subscribing.subscribe(publisher, demand)
        self._streams[stream.id] = stream
        self._link.flush()

    async def _begun(self, stream: Stream) -> None:
        try:
            await stream.opened
        except asyncio.CancelledError:
            stream.cancel()
            raise

    def _forget(self, stream: Stream) -> None:
        """Remove a stream that has ended on our side."""
        if self._streams.get(stream.id) is stream:
            del self._streams[stream.id]

    # --- what the door says ---------------------------------------------------------------------------------

    async def _lived(self) -> None:
        reason = "the client failed"
        try:
            async for event in self._link.events():
                if isinstance(event, Left):
                    reason = event.reason
                else:
                    self._handle(event)
        finally:
            self._fail(self.error or Unreachable(self.endpoint, 0.0, f"the connection is over: {reason}"))
            await self._link.shut()

    def _handle(self, event: Event) -> None:
        match event:
            case HelloArrived():
                settle(self._opened)
            case m.Subscribe():
                self._subscribed_back(event)
            case Demanded(subscriber) if subscriber in self._publishing:
                self._publishing[subscriber].demanded()
            case m.Cancel(subscriber):
                self._publishing.pop(subscriber, None)
            case m.Subscribed(subscriber) if subscriber in self._streams:
                self._streams[subscriber].begun()
            case Elements(subscriber, elements) if subscriber in self._streams:
                self._streams[subscriber].arrived(elements)
            case m.OnComplete(subscriber) if subscriber in self._streams:
                self._streams.pop(subscriber).failed(Closed("the door has ended the stream"))
            case m.OnError(subscriber, error) if subscriber in self._streams:
                stream = self._streams.pop(subscriber)
                stream.failed(Refused(400, "error", error))
                self._no_longer_asked_back(stream)

    def _subscribed_back(self, asked: m.Subscribe) -> None:
        """The door subscribes in the order in which we did; one of ours may have been cancelled meanwhile."""
        waiting = self._asked_back.get(asked.publisher)
        writer = waiting.popleft() if waiting else None
        if not waiting:
            self._asked_back.pop(asked.publisher, None)
        if writer is None or writer.error is not None:
            self._link.session.publishing.fail(asked.subscriber, "there is no such publisher here")
            return
        self._publishing[asked.subscriber] = writer
        self._link.session.publishing.accept(asked.subscriber)
        writer.ready(asked.subscriber)

    def _no_longer_asked_back(self, stream: Stream) -> None:
        """Remove a writer that the door refused: the door does not subscribe to it."""
        for name, waiting in list(self._asked_back.items()):
            if isinstance(stream, ReactiveWriter) and stream in waiting:
                waiting.remove(stream)
                if not waiting:
                    del self._asked_back[name]

    def _fail(self, error: MtlError) -> None:
        self.error = error
        settle(self._opened, error)
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.failed(error)

    # --- the end --------------------------------------------------------------------------------------------

    async def leave(self, *, failed: bool) -> None:  # noqa: ARG002 writers flush, a connection has nothing to wait for
        """Close, at the end of a block."""
        await self.close()

    async def close(self) -> None:
        """Goodbye. Harmless when repeated."""
        self._fail(self.error or Closed("the connection is closed"))
        await self._link.close("")
        await asyncio.wait({self._life})


def connect(
    endpoint: str,
    *,
    timeout: float = RETRY_DEADLINE_S,
    tls: ssl.SSLContext | None = None,
    authorization: str | None = None,
) -> Opening[ReactiveConnection]:
    """Connect to a Reactive Streams door at HOST:PORT, or a ws: or wss: URL; `async with`, or await it and close what
    it gives.

    `tls` says whom we trust, and may have a client certificate: at HOST:PORT that is how TLS is asked for, at wss: the
    system's authorities are the default. `authorization` is what we show to a WebSocket: `websocket_client.basic` or
    `.bearer`. Raises `Unreachable` when nobody says hello within `timeout` seconds, or it says goodbye instead;
    `Refused` when the door is not to be trusted, or its WebSocket does not let us in.
    """

    async def connected() -> ReactiveConnection:
        try:
            async with asyncio.timeout(timeout):
                transport = await _reached(endpoint, tls, authorization)
                connection = ReactiveConnection(endpoint, ReactiveLink(Role.CLIENT, transport))
                return await opened(connection, connection.greeted())
        except ssl.SSLCertVerificationError as wrong:
            raise untrusted(endpoint, wrong) from wrong
        except OSError as error:  # TimeoutError is one
            raise Unreachable(endpoint, timeout, "connecting to a Reactive Streams door") from error

    return Opening(connected)


async def _reached(endpoint: str, tls: ssl.SSLContext | None, authorization: str | None) -> Transport:
    if "://" not in endpoint:
        return Octets(*await asyncio.open_connection(*host_and_port(endpoint), ssl=tls))
    from mtl.doors.reactive.over_websocket import reached  # noqa: PLC0415 TCP does not need the library

    return await reached(endpoint, tls, authorization)
