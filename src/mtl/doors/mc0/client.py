"""A client of an mc0 door, or of any other mc0 middleware, with an interface like `mtl.aio`.

    async with mc0.connect("tcp://127.0.0.1:61616") as c:
        async with c.reader("orders") as r:                # from now on: mc0 has no history
            async with c.writer("orders") as w:
                await w.send(b"...", {"kind": "new"})
            async for received in r: ...

It heartbeats like the connector in the document (MC0-29): after 1.05 TTL without a message, or when the connection
broke, it reconnects, subscribes again, and repeats each PUT without an OK. So a PUT arrives at least once; a subscriber
misses contents that are published while it is disconnected.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, count
from typing import Literal

from mtl.client.aio.opening import Opening
from mtl.doors.clients import (
    AnsweredWriter,
    ContentReader,
    Inbox,
    SendWindow,
    reconnect_forever,
    settle,
    wait_opened,
)
from mtl.doors.limits import MC0_CLIENT_WINDOW, MC0_INBOX, MC0_WAITING
from mtl.doors.mc0.codec import (
    FREE,
    ID,
    TEXT,
    TOPIC,
    TTL,
    VERSION,
    BadMessage,
    Mc0Message,
    Verb,
    decode,
    encode,
)
from mtl.doors.mc0.contents import from_message
from mtl.doors.mc0.session import NOOP_AFTER, SILENCE_LIMIT
from mtl.doors.properties import to_texts
from mtl.doors.received import Received
from mtl.errors import Closed, MtlError, Refused
from mtl.limits import MAX_FRAME, RETRY_DEADLINE_S
from mtl.net.aio import AsyncDealer
from mtl.net.curve import client_keys
from mtl.net.endpoint import Curve
from mtl.net.families import Families
from mtl.wire.fields import Value

VERSION_SPOKEN = "0.3"
_ID = ID.encode()
DEFAULT_TTL_S = 30.0

Compat = Literal["mc0d"]


class Mc0Connection:
    """One DEALER, which is opened again after a loss. For the tasks of one event loop."""

    def __init__(
        self,
        endpoint: str,
        ttl: float,
        compat: Compat | None,
        retry_deadline: float,
        curve: Curve | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._curve = curve
        self._families = Families()
        self._ttl = ttl
        self._delimited = compat == "mc0d"
        self._deadline = retry_deadline
        self._ids = count(1)
        self._unanswered: dict[str, tuple[list[bytes], asyncio.Future[None]]] = {}
        self._readers: dict[str, list[Mc0Reader]] = {}
        self._window = SendWindow(MC0_CLIENT_WINDOW)
        self._dealer: AsyncDealer | None = None
        self._error: MtlError | None = None
        self._last_sent = self._last_received = 0.0
        self._paused = False
        self._task = asyncio.create_task(self._run())

    # --- for readers and writers ----------------------------------------------------------------------------

    def writer(self, topic: str) -> Opening[Mc0Writer]:
        """A writer to a topic; `async with`, or await it."""

        async def open_writer() -> Mc0Writer:
            return Mc0Writer(self, topic)

        return Opening(open_writer)

    def reader(self, topic: str) -> Opening[Mc0Reader]:
        """A reader of contents that are put to a topic from now on; `async with`, or await it."""

        async def open_reader() -> Mc0Reader:
            reader = Mc0Reader(self, topic)
            self._readers.setdefault(topic, []).append(reader)
            try:
                await self.ask(Mc0Message(Verb.SUB, {}, (topic.encode(),)))
            except BaseException:  # also when cancelled: the reader has no owner
                self.forget(reader)
                raise
            return reader

        return Opening(open_reader)

    async def put(self, head: Sequence[bytes], body: bytes) -> asyncio.Future[None]:
        """Send a PUT, `head` being verb and headers; the result is done with its OK. Waits while too many are
        unanswered.
        """
        return await self._window.place(partial(self._send_request, [*head, b"", body]))

    async def ask(self, message: Mc0Message) -> None:
        """Send a command and wait for its OK. Raises `Refused` with the text of the ERROR."""
        await self._send_request(encode(message))

    def forget(self, reader: Mc0Reader) -> bool:
        """Remove a reader. Returns whether it was the last one of its topic."""
        readers = self._readers.get(reader.topic, [])
        if reader in readers:
            readers.remove(reader)
            if not readers:
                del self._readers[reader.topic]
                return True
        return False

    def _send_request(self, frames: list[bytes]) -> asyncio.Future[None]:
        """Send a message with an ID, its first header."""
        if self._error is not None:
            raise self._error
        number = str(next(self._ids))
        frames[1:1] = _ID, number.encode()
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unanswered[number] = frames, answered
        self._send(frames)
        return answered

    # --- one connection after the other ---------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await reconnect_forever(
                self._run_connection, self.endpoint, self._deadline, "connecting to an mc0 middleware"
            )
        except MtlError as error:
            self._fail(error)
        except asyncio.CancelledError:  # the event loop ends: other tasks must not wait for this one
            self._fail(Closed("the connection's task was cancelled"))
            raise

    async def _run_connection(self) -> bool:
        """Run one connection until its end. Returns whether the middleware sent anything."""
        dealer = self._dealer = AsyncDealer(
            self.endpoint,
            hwm=MC0_CLIENT_WINDOW,
            max_frame=MAX_FRAME,
            max_waiting=MC0_WAITING,
            curve=self._curve,
            ipv6=(ipv6 := self._families.is_ipv6(self.endpoint)),
        )
        self._paused = False
        began = self._last_sent = self._last_received = time.monotonic()
        pulse = asyncio.create_task(self._heartbeat(dealer))
        ttl = str(int(self._ttl * 1000))
        self._send_message(Mc0Message(Verb.CONNECT, {VERSION: VERSION_SPOKEN, TTL: ttl}))
        if self._readers:
            self._send_message(Mc0Message(Verb.SUB, {}, tuple(topic.encode() for topic in self._readers)))
        for frames, _ in list(self._unanswered.values()):
            self._send(frames)
        try:
            while messages := await dealer.receive(MC0_INBOX):
                self._last_received = time.monotonic()
                for frames in messages:
                    try:
                        self._handle_message(decode(frames)[0])
                    except BadMessage:
                        continue
                self._paused = True
                for reader in list(chain.from_iterable(self._readers.values())):
                    await reader.inbox.room()
                self._paused = False
        finally:
            pulse.cancel()
            self._dealer = None
            dealer.close()
        answered = self._last_received > began
        (self._families.reached if answered else self._families.missed)(self.endpoint, ipv6=ipv6)
        return answered

    async def _heartbeat(self, dealer: AsyncDealer) -> None:
        """Send NOOP after our own silence; end the connection after the middleware's."""
        while True:
            now = time.monotonic()
            if self._paused:
                self._last_received = now  # this side does not read, so the silence is not the middleware's
            if now >= self._last_received + SILENCE_LIMIT * self._ttl:
                self._send_message(Mc0Message(Verb.DISCONNECT))
                dealer.mark_lost()
                return
            if now >= self._last_sent + NOOP_AFTER * self._ttl:
                self._send_message(Mc0Message(Verb.NOOP))
            due = min(
                self._last_sent + NOOP_AFTER * self._ttl, self._last_received + SILENCE_LIMIT * self._ttl
            )
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _send_message(self, message: Mc0Message) -> None:
        self._send(encode(message))

    def _send(self, frames: list[bytes]) -> None:
        """Send, if there is a connection; else it is sent when there is one."""
        if self._dealer is not None:
            self._last_sent = time.monotonic()
            self._dealer.send_soon([b"", *frames] if self._delimited else frames)

    def _handle_message(self, message: Mc0Message) -> None:
        """Handle a message of the middleware."""
        if message.verb is Verb.MESSAGE:
            topic, sequence, properties, body = from_message(message)
            for reader in self._readers.get(topic, ()):
                reader.inbox.put(Received(topic, sequence, body, properties))
            return
        unanswered = self._unanswered.pop(message.id or "", None)
        if unanswered is None:
            return
        if message.verb is Verb.OK:
            settle(unanswered[1])
        elif message.verb is Verb.ERROR:
            settle(unanswered[1], Refused(400, "error", message.headers.get(TEXT, "")))

    def _fail(self, error: MtlError) -> None:
        self._error = error
        for _, answered in self._unanswered.values():
            settle(answered, error)
        for readers in self._readers.values():
            for reader in readers:
                reader.inbox.fail(error)

    # --- the end --------------------------------------------------------------------------------------------

    async def leave(self, *, failed: bool) -> None:  # noqa: ARG002 writers flush, a connection has nothing to wait for
        """Close, at the end of a block."""
        await self.close()

    async def close(self) -> None:
        """Send DISCONNECT, and drop everything. Harmless when repeated."""
        self._send_message(Mc0Message(Verb.DISCONNECT))
        self._fail(self._error or Closed("the connection is closed"))
        self._task.cancel()
        await asyncio.wait({self._task})


class Mc0Writer(AnsweredWriter):
    """Puts contents to one topic. `flush` waits until all of them are answered with OK: durable, at an MTL door."""

    def __init__(self, connection: Mc0Connection, topic: str) -> None:
        super().__init__()
        self.topic = topic
        self._connection = connection
        self._texts: dict[str, str] = {}
        self._head = _put(topic, {})

    async def send(self, body: bytes, properties: Mapping[str, Value] | None = None) -> asyncio.Future[None]:
        """Send one content; await the result for its OK, or `flush` for all. Other values than text become text."""
        texts = to_texts(properties or {})
        if texts != self._texts:  # texts: 1 and True are equal, too, and not the same
            self._texts = texts
            self._head = _put(self.topic, texts)
        return self._sent(await self._connection.put(self._head, body))


def _put(topic: str, texts: Mapping[str, str]) -> list[bytes]:
    """Verb and headers of a PUT; consecutive ones are mostly equal."""
    headers = {f"{FREE}{name}": value for name, value in texts.items()}
    return encode(Mc0Message(Verb.PUT, {TOPIC: topic, **headers}))


class Mc0Reader(ContentReader):
    """The contents put to one topic while the reader is open, in order; at most once."""

    def __init__(self, connection: Mc0Connection, topic: str) -> None:
        self.topic = topic
        self.inbox: Inbox[Received] = Inbox(MC0_CLIENT_WINDOW)
        self._connection = connection

    async def next(self) -> Received:
        """The next content. Raises `Unreachable` when the middleware stays away, `Closed`."""
        return await self.inbox.get()

    async def close(self) -> None:
        """Unsubscribe. Harmless when repeated."""
        self.inbox.fail(Closed("the reader is closed"))
        if self._connection.forget(self):
            try:
                await self._connection.ask(Mc0Message(Verb.UNSUB, {}, (self.topic.encode(),)))
            except MtlError:
                pass  # the subscription ends with the connection


def connect(
    endpoint: str,
    *,
    ttl: float = DEFAULT_TTL_S,
    compat: Compat | None = None,
    retry_deadline: float = RETRY_DEADLINE_S,
    curve_server: str | os.PathLike[str] | None = None,
    curve_key_file: str | os.PathLike[str] | None = None,
) -> Opening[Mc0Connection]:
    """Connect to an mc0 middleware; `async with`, or await it and close the result.

    - `ttl`: the liveness period of both ends, in seconds. Default: 30.
    - `compat`: "mc0d" puts an empty frame before every message, which older middlewares require. Default: none.
    - `retry_deadline`: seconds without an answer after which `Unreachable` is raised. Default: 30.
    - `curve_server`: the middleware's public key in Z85 or its file, for CURVE. Default: no encryption.
    - `curve_key_file`: the file of the client's private key, which identifies it. Default: a new key for this
      connection.

    Raises `Unreachable`, `OptionError` for keys that cannot be read.
    """
    curve = client_keys(curve_server, curve_key_file)

    async def open_connection() -> Mc0Connection:
        connection = Mc0Connection(endpoint, ttl, compat, retry_deadline, curve)
        return await wait_opened(connection, connection.ask(Mc0Message(Verb.NOOP)))

    return Opening(open_connection)
