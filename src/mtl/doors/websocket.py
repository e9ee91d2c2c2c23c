"""What every door on WebSocket (RFC 6455) has: the server with TLS and a check of origins, and its end of a connection.

Browsers let any page open a WebSocket to any place, with whatever the user may reach, and tell in `Origin` which page
it is. Let in are what has no Origin (no browser), origins that the configuration names, and a page that came from
this very place, if that is an address or localhost: a name could be anybody's who lets it point here (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import urlsplit

from websockets.asyncio.connection import Connection as WebSocket
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import NegotiationError, TooManyFragments
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import Event, State
from websockets.typing import DataLike, Subprotocol

from mtl.doors.config import DoorConfig
from mtl.doors.gate import Gate, Turned
from mtl.doors.limits import WS_CLOSE_S, WS_KEEPALIVE_S, WS_OPEN_S, WS_PING_S, WS_QUEUE, WS_SILENT_S, WS_WRITE
from mtl.doors.listening import bound, cannot_listen, tls
from mtl.doors.places import Place
from mtl.doors.telling import told
from mtl.errors import Malformed, Refused
from mtl.wire.control import OVERLOADED

log = logging.getLogger("mtl.doors.websocket")
log.setLevel(logging.WARNING)  # the library tells of every connection's begin and end

_LONGEST_REASON = 123
"""Octets of a Close's reason (RFC 6455, 5.5)."""

_PAGE_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


class Violation(Malformed):
    """Something that a peer may not send, with the close code that says so."""

    def __init__(self, code: CloseCode, words: str) -> None:
        super().__init__(words)
        self.code = code


class Together(WebSocket):
    """A WebSocket of either side that takes and gives many messages at a time: a call of the system, and a turn of the
    event loop, for each would cost more than all else that is done for a small one.
    """

    whole = 0
    """Messages that are there and not taken."""

    async def send_all(self, messages: Iterable[str | bytes]) -> None:
        """Send them with one write. Raises `ConnectionClosed`."""
        if self.state is not State.OPEN:
            await self.send(b"")  # which raises
            return
        for message in messages:
            if isinstance(message, str):
                self.protocol.send_text(message.encode())
            else:
                self.protocol.send_binary(message)
        self.transport.writelines(self.protocol.data_to_send())
        await self.drain()

    async def recv_all(self) -> list[str | bytes]:
        """The next message and all that are there with it. Raises what `recv` does."""
        together = [await self.recv()]
        while self.whole:
            together.append(await self.recv())
        return together

    async def recv(self, decode: bool | None = None) -> Any:
        """The next message."""
        message = await super().recv(decode)
        self.whole -= 1
        return message

    def process_event(self, event: Event) -> None:
        """Count messages."""
        super().process_event(event)
        if isinstance(event, Frame) and event.fin and event.opcode <= Opcode.BINARY:
            self.whole += 1


class Socket(Together, ServerConnection):
    """One WebSocket at a door.

    The answer to a peer's Close is held back until `conclude`: a Close that is answered says that everything before it
    has arrived, so the door first makes sure that it has.
    """

    def __init__(self, *args: Any, all_there: set[Socket], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._all_there = all_there
        self.user: str | None = None
        """The user of the broker that the peer came in as; None where nobody has to prove anything."""
        self._holding = True
        self._resting = False
        self._wrong: Violation | None = None

    @property
    def origin(self) -> str | None:
        """Where the page came from that opened this; None of what is no browser."""
        return self.protocol.origin

    @property
    def closed_by_peer(self) -> bool:
        """Whether the peer said Close; else the connection was lost, or it is there."""
        return self.protocol.close_rcvd is not None

    async def message(self) -> str | bytes | None:
        """The next message; None when there are no more. Raises `Violation` for what is no message."""
        try:
            message = await self.recv_messages.get()
            self.whole -= 1
            return message
        except EOFError:
            said = self.protocol.close_sent
            if said is not None and self.protocol.parser_exc is not None:  # the library refused it already
                raise Violation(CloseCode(said.code), said.reason) from self.protocol.parser_exc
            return None
        except TooManyFragments as wrong:
            raise Violation(CloseCode.MESSAGE_TOO_BIG, str(wrong)) from wrong
        except UnicodeDecodeError as wrong:
            raise Violation(CloseCode.INVALID_DATA, "a text message is UTF-8") from wrong

    async def messages(self) -> list[str | bytes]:
        """The next message and all that are there with it; none when there are no more. Raises as `message`, behind
        what came before.
        """
        if self._wrong is not None:
            raise self._wrong
        together = []
        try:
            while (message := await self.message()) is not None:
                together.append(message)
                if not self.whole:
                    break
        except Violation as wrong:
            if not together:
                raise
            self._wrong = wrong
        return together

    def rest(self) -> None:
        """Hear no more: `message` gives what is there, then None."""
        self._resting = True
        self.recv_messages.close()

    def conclude(self) -> None:
        """Answer the peer's Close. Harmless when there is none."""
        self._holding = False
        self.close_deadline = None
        self.send_data()

    async def refuse(self, error: BaseException) -> None:
        """End with the close code and the words of an error, within WS_CLOSE_S.

        A peer that said Close meanwhile gets no answer to it: not all that came before it has been taken in.
        """
        if self.closed_by_peer:
            self.drop()
            return
        await self._emptied(asyncio.create_task(self.close(*closing(error))))

    async def vanish(self) -> None:
        """End without a Close: a peer that can come back will. What was sent is still delivered."""
        if not self.transport.is_closing() and self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()
        await self._emptied(asyncio.create_task(self.wait_closed()))

    def drop(self) -> None:
        """Break the connection, at once. Harmless when repeated."""
        break_off(self)

    async def _emptied(self, ending: asyncio.Task[None]) -> None:
        """What the peer has under way is read until the end, and dropped: closing over it would reset the connection,
        and what we said last with it.
        """
        self.rest()
        self.recv_messages.frames.queue.clear()
        self.recv_messages.maybe_resume()
        try:
            async with asyncio.timeout(WS_CLOSE_S):
                await asyncio.shield(ending)
        except TimeoutError:
            pass
        finally:
            self.drop()
            await asyncio.wait({ending})

    # --- what the library does, otherwise -------------------------------------------------------------------

    async def send(
        self,
        message: DataLike | Iterable[DataLike] | AsyncIterable[DataLike],
        *,
        text: bool | None = None,
    ) -> None:
        """Send a message; nothing after the peer's Close. Raises `ConnectionClosed`."""
        if not self.closed_by_peer:
            await super().send(message, text=text)

    async def send_all(self, messages: Iterable[str | bytes]) -> None:
        """Send messages; nothing after the peer's Close. Raises `ConnectionClosed`."""
        if not self.closed_by_peer:
            await super().send_all(messages)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Whether a peer that is silent is still there, its TCP says: one that reads slowly is no dead one."""
        keep_alive(transport.get_extra_info("socket"))
        self._all_there.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is one of its server's no more."""
        self._all_there.discard(self)
        super().connection_lost(exc)

    def process_event(self, event: Event) -> None:
        """No message follows a Close."""
        if self._resting and isinstance(event, Frame) and event.opcode <= Opcode.BINARY:
            return
        super().process_event(event)
        if isinstance(event, Frame) and event.opcode is Opcode.CLOSE:
            self.recv_messages.close()
            if self.keepalive_task is not None:
                self.keepalive_task.cancel()  # a ping would give the connection up: it is to end soon, for the library

    def send_data(self) -> None:
        """Save the answer to a Close."""
        if not (self._holding and self.protocol.close_rcvd_then_sent):
            super().send_data()


def break_off(connection: WebSocket) -> None:
    """Break a connection of either side, at once. To abort a transport that is closed is an error in Python 3.11."""
    if not connection.connection_lost_waiter.done():
        connection.transport.abort()


def keep_alive(there: socket.socket) -> None:
    """Let TCP find out when nobody is at the other end any more."""
    there.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        there.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, WS_KEEPALIVE_S)
        there.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, WS_KEEPALIVE_S)


class WebSocketServer:
    """Listens from `listen` to `stop`. `serve` has one connection, until it returns; `page` is what a browser finds at
    `/` where the configuration wants that.
    """

    def __init__(
        self,
        config: DoorConfig,
        gate: Gate,
        serve_one: Callable[[Socket], Awaitable[None]],
        *,
        subprotocols: Sequence[str],
        largest: int,
        page: str | None = None,
    ) -> None:
        self.endpoint = ""
        self._config = config
        self._gate = gate
        self._serve_one = serve_one
        self._subprotocols = subprotocols
        self._largest = largest
        self._page = page.encode() if page is not None and config.page else None
        self._secure = tls(config)
        self._sockets: set[Socket] = set()
        self._open = 0

    async def listen(self, place: Place) -> None:
        """Begin. Raises `BindFailed`."""
        try:
            self._server = await serve(
                self._served,
                place.host,
                place.port,
                ssl=self._secure,
                ssl_handshake_timeout=None if self._secure is None else WS_OPEN_S,
                create_connection=cast("type[ServerConnection]", partial(Socket, all_there=self._sockets)),
                process_request=self._admitted,
                subprotocols=[Subprotocol(name) for name in self._subprotocols],
                select_subprotocol=self._selected,
                compression=None,  # bodies are often compressed already, and a window costs each connection 64 KiB
                max_size=self._largest,
                max_queue=WS_QUEUE,
                write_limit=WS_WRITE,
                open_timeout=WS_OPEN_S,
                close_timeout=WS_CLOSE_S,
                ping_interval=WS_PING_S,
                ping_timeout=WS_SILENT_S,
                server_header=None,
                logger=log,
            )
        except OSError as error:
            raise cannot_listen(place, error) from error
        self.endpoint = f"{'wss' if self._secure else 'ws'}://{bound(self._server.server)}"

    def close(self) -> None:
        """Let nobody in any more; browsers open connections that they may need later."""
        self._server.close(close_connections=False)
        for connection in list(self._sockets):
            if connection.state is State.CONNECTING:
                connection.drop()

    async def closed(self) -> None:
        """Wait until all connections have ended."""
        await self._server.wait_closed()

    async def _served(self, connection: ServerConnection) -> None:
        assert isinstance(connection, Socket)
        self._open += 1
        try:
            await self._serve_one(connection)
        finally:
            self._open -= 1

    async def _admitted(self, connection: ServerConnection, request: Request) -> Response | None:
        """None, or what is answered instead. Origins first: a browser adds what it knows to any page's request."""
        paged = self._page is not None and request.path == "/" and "Upgrade" not in request.headers
        refusal = None if paged else self._kept_out(connection, request)
        if refusal is None:
            refusal = await self._unknown(connection, request)
        if refusal is None and paged:
            return self._shown(connection)
        return refusal

    def _shown(self, connection: ServerConnection) -> Response:
        """The page."""
        assert self._page is not None
        response = connection.respond(HTTPStatus.OK, "")
        del response.headers["Content-Type"], response.headers["Content-Length"]
        response.headers.update(_PAGE_HEADERS)
        response.headers["Content-Length"] = str(len(self._page))
        response.body = self._page
        return response

    async def _unknown(self, connection: ServerConnection, request: Request) -> Response | None:
        """What is answered to a peer that does not prove who it is."""
        assert isinstance(connection, Socket)
        shown = request.headers.get_all("Authorization")
        if len(shown) > 1:
            return connection.respond(HTTPStatus.BAD_REQUEST, "at most one Authorization\n")
        tls = connection.transport.get_extra_info("ssl_object")
        try:
            connection.user = await self._gate.user(shown[0] if shown else None, address_of(connection), tls)
        except Turned as turned:
            response = connection.respond(turned.status, f"{turned.words}\n")
            for challenge in turned.challenges:
                response.headers["WWW-Authenticate"] = challenge
            return response
        return None

    def _kept_out(self, connection: ServerConnection, request: Request) -> Response | None:
        """What is answered to a page of somebody else, and by a full door."""
        origins = request.headers.get_all("Origin")
        hosts = request.headers.get_all("Host")
        if len(hosts) != 1 or len(origins) > 1:
            return connection.respond(HTTPStatus.BAD_REQUEST, "one Host and at most one Origin\n")
        origin = origins[0] if origins else None
        if not admits(origin, hosts[0], self._config.origins, secure=self._secure is not None):
            return connection.respond(HTTPStatus.FORBIDDEN, f"the origin {origin} is not let in here\n")
        if self._open >= self._config.max_sessions:
            words = f"{self._config.max_sessions} clients are this door's limit; try again later\n"
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, words)
        return None

    def _selected(self, _: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol:
        """The first that the client offers and we have: the order is its preference."""
        for name in offered:
            if name in self._subprotocols:
                return name
        raise NegotiationError(f"Sec-WebSocket-Protocol is one of {', '.join(self._subprotocols)}")


def address_of(connection: ServerConnection) -> str:
    """The peer's address."""
    name = connection.transport.get_extra_info("peername")
    return str(name[0]) if name else ""


def admits(origin: str | None, host: str, allowed: Sequence[str], *, secure: bool) -> bool:
    """Whether a page from `origin` may come in at `host`, as the browser calls us; see the module."""
    if origin is None or origin in allowed or "*" in allowed:
        return True
    ours = f"{'https' if secure else 'http'}://{host}"
    return origin.lower() == ours.lower() and _is_address(host)


def _is_address(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def closing(error: BaseException) -> tuple[CloseCode, str]:
    """The close code and reason for an error: what the peer did wrong, what it may not do, or our own trouble."""
    match error:
        case Violation():
            code = error.code
        case Malformed():
            code = CloseCode.PROTOCOL_ERROR
        case Refused(reason=reason) if reason == OVERLOADED:
            code = CloseCode.TRY_AGAIN_LATER
        case Refused():
            code = CloseCode.POLICY_VIOLATION
        case _:
            code = CloseCode.INTERNAL_ERROR
    return code, told(error).encode()[:_LONGEST_REASON].decode(errors="ignore")
