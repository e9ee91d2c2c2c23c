"""A client of a Reactive Streams door, with an interface like `mtl.aio`.

    async with reactive.connect("127.0.0.1:5977") as c:
        async with c.writer("orders") as w:
            await w.send(b"...")                          # leaving the block: all of it is durable
        async with c.reader("orders", start="earliest") as r:
            async for received in r: ...

The protocol keeps no state between connections, so the client does not reconnect: after a loss every call raises
`Unreachable`. Connect again, and continue reading from `ReactiveReader.position`. The results of `send` show which
contents are durable.
"""

from __future__ import annotations

import asyncio
import logging
import ssl

from mtl.client.aio.opening import Opening
from mtl.client.reader_part import Start
from mtl.doors.addresses import host_and_port
from mtl.doors.clients import settle, untrusted_error, wait_opened
from mtl.doors.limits import RS_CLIENT_WINDOW
from mtl.doors.reactive import codec, names
from mtl.doors.reactive.link import ReactiveLink
from mtl.doors.reactive.publishing import UNBOUNDED, Demanded
from mtl.doors.reactive.session import ConnectionEnded, Event, HelloArrived, ReactiveRole
from mtl.doors.reactive.streams import ReactiveReader, ReactiveWriter, Stream
from mtl.doors.reactive.subscribing import Elements
from mtl.doors.reactive.transports import StreamTransport, Transport
from mtl.errors import ClientFailed, Closed, Malformed, MtlError, OptionError, Refused, Unreachable
from mtl.limits import RETRY_DEADLINE_S

log = logging.getLogger("mtl.client")


class ReactiveConnection:
    """One connection. For the tasks of one event loop."""

    def __init__(self, endpoint: str, link: ReactiveLink) -> None:
        self.endpoint = endpoint
        self._link = link
        self.error: MtlError | None = None
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._streams: dict[int, Stream] = {}
        """By our Ids: the contents for a reader, and the confirmations for a writer."""
        self._waiting_writers: dict[ReactiveWriter, str] = {}
        """Writers to whose elements the door has not subscribed yet, in the order of their opening, with the name to
        which it subscribes."""
        self._publishing: dict[int, ReactiveWriter] = {}
        """By the door's Ids, until the door cancels its subscription or uses the Id again."""
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._handle_task_end)

    async def wait_hello(self) -> None:
        """Wait for the door's hello. Raises `Unreachable`, also when a goodbye follows at once."""
        await self._opened
        if self.error is not None:
            raise self.error

    # --- for readers and writers ----------------------------------------------------------------------------

    def reader(
        self, resource: str, *, start: Start = "earliest", window: int = RS_CLIENT_WINDOW
    ) -> Opening[ReactiveReader]:
        """A reader from `start` on: "earliest", "latest" or a sequence. At most `window` elements are on their way or
        not read yet. Raises `Refused` if the resource does not exist. `async with`, or await it.
        """
        if window < 1:
            raise OptionError("window has to be above 0")

        async def subscribed() -> ReactiveReader:
            reader = ReactiveReader(self._link, resource, self._forget, window)
            name = names.contents(resource, start, enveloped=True)
            self._begin_stream(reader, name, window)
            await self._wait_opened(reader)
            return reader

        return Opening(subscribed)

    def writer(self, resource: str) -> Opening[ReactiveWriter]:
        """A writer to a resource. `async with`, or await it."""

        async def subscribed() -> ReactiveWriter:
            name = names.confirmations(resource)
            writer = ReactiveWriter(self._link, resource, self._forget)
            self._begin_stream(writer, names.PUBLISH + name.back, UNBOUNDED)
            self._waiting_writers[writer] = name.back
            await self._wait_opened(writer)
            return writer

        return Opening(subscribed)

    def _begin_stream(self, stream: Stream, publisher: str, demand: int) -> None:
        if self.error is not None:
            raise self.error
        stream.id = self._link.session.subscribing.subscribe(publisher, demand)
        self._streams[stream.id] = stream
        self._link.flush()

    async def _wait_opened(self, stream: Stream) -> None:
        try:
            await stream.opened
        except asyncio.CancelledError:
            stream.cancel()
            raise

    def _forget(self, stream: Stream) -> None:
        """Remove a stream that has ended on our side."""
        if self._streams.get(stream.id) is stream:
            del self._streams[stream.id]

    # --- messages of the door -------------------------------------------------------------------------------

    async def _run(self) -> None:
        reason = "the client failed"
        try:
            async for event in self._link.events():
                if isinstance(event, ConnectionEnded):
                    reason = event.reason
                    if event.malformed:
                        self._fail(_malformed(self.endpoint, reason))
                else:
                    self._handle(event)
        except Malformed as wrong:
            self._link.session.send_goodbye(str(wrong))
            self._fail(_malformed(self.endpoint, str(wrong)))
        except Exception as error:
            log.exception("an exception has ended the connection to %s", self.endpoint)
            self._fail(ClientFailed(self.endpoint, error))
        finally:
            self._fail(self.error or Unreachable(self.endpoint, 0.0, f"the connection has ended: {reason}"))
            await self._link.close_transport()

    def _handle(self, event: Event) -> None:
        match event:
            case HelloArrived():
                settle(self._opened)
            case codec.Subscribe():
                self._handle_subscribe(event)
            case Demanded(subscriber) if subscriber in self._publishing:
                self._publishing[subscriber].handle_demand()
            case codec.Cancel(subscriber):
                self._publishing.pop(subscriber, None)
            case codec.Subscribed(subscriber) if subscriber in self._streams:
                self._streams[subscriber].subscribed()
            case Elements(subscriber, elements) if subscriber in self._streams:
                self._streams[subscriber].handle_elements(elements)
            case codec.OnComplete(subscriber) if subscriber in self._streams:
                self._streams.pop(subscriber).failed(Closed("the door has ended the stream"))
            case codec.OnError(subscriber, error) if subscriber in self._streams:
                stream = self._streams.pop(subscriber)
                stream.failed(Refused(400, "error", error))
                if isinstance(stream, ReactiveWriter):
                    self._waiting_writers.pop(stream, None)  # the door does not subscribe to a refused writer

    def _handle_subscribe(self, request: codec.Subscribe) -> None:
        """The door subscribes to our writers in the order of our subscriptions. One may have been cancelled."""
        waiting = (writer for writer, name in self._waiting_writers.items() if name == request.publisher)
        writer = next(waiting, None)
        if writer is not None:
            del self._waiting_writers[writer]
        if writer is None or writer.error is not None:
            self._link.session.publishing.fail(request.subscriber, "there is no such publisher here")
            return
        self._publishing[request.subscriber] = writer
        self._link.session.publishing.accept(request.subscriber)
        writer.accepted(request.subscriber)

    def _handle_task_end(self, _: asyncio.Task[None]) -> None:
        """Also of a task that was cancelled before it began."""
        self._fail(self.error or Closed("the connection's task was cancelled"))

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
        await asyncio.wait({self._task})


def _malformed(endpoint: str, words: str) -> Refused:
    """The error for a peer that does not keep to the protocol."""
    return Refused(400, "malformed", f"{endpoint} did not send Reactive Streams: {words}")


def connect(
    endpoint: str,
    *,
    timeout: float = RETRY_DEADLINE_S,
    tls: ssl.SSLContext | None = None,
    authorization: str | None = None,
) -> Opening[ReactiveConnection]:
    """Connect to a Reactive Streams door at HOST:PORT, or a ws: or wss: URL; `async with`, or await it and close
    the result.

    - `timeout`: seconds without a hello after which `Unreachable` is raised. Default: 30.
    - `tls`: the trusted authorities, and optionally a client certificate. At HOST:PORT it enables TLS. Default: at wss:
      the system's authorities.
    - `authorization`: the value of that header, for a WebSocket: `websocket_client.basic` or `.bearer`. Default: none.

    Raises `Unreachable`, also when the door says goodbye instead of hello; `Refused` when its certificate is not
    trusted, or its WebSocket denies access.
    """

    async def open_connection() -> ReactiveConnection:
        try:
            async with asyncio.timeout(timeout):
                transport = await _open_transport(endpoint, tls, authorization)
                connection = ReactiveConnection(endpoint, ReactiveLink(ReactiveRole.CLIENT, transport))
                return await wait_opened(connection, connection.wait_hello())
        except ssl.SSLCertVerificationError as wrong:
            raise untrusted_error(endpoint, wrong) from wrong
        except OSError as error:  # TimeoutError is one
            raise Unreachable(endpoint, timeout, "connecting to a Reactive Streams door") from error

    return Opening(open_connection)


async def _open_transport(endpoint: str, tls: ssl.SSLContext | None, authorization: str | None) -> Transport:
    if "://" not in endpoint:
        return StreamTransport(*await asyncio.open_connection(*host_and_port(endpoint), ssl=tls))
    from mtl.doors.reactive.over_websocket import open_websocket_transport  # noqa: PLC0415 TCP does not need the library

    return await open_websocket_transport(endpoint, tls, authorization)
