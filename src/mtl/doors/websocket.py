"""Common parts of doors on WebSocket (RFC 6455): the server with TLS and origin checks, and its end of a connection.

Browsers let any page open a WebSocket to any host that the user can reach, and name the page's origin in `Origin`.
Admitted are requests without Origin (not from a browser), configured origins, and pages served by this door, if its
host is an IP address or localhost: any other name could belong to an attacker and resolve to this host (DNS
rebinding).
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

from mtl.doors.addresses import ListenAddress
from mtl.doors.authentication import AccessDenied, PeerAuthenticator
from mtl.doors.config import DoorConfig
from mtl.doors.failure_log import PeerAddress
from mtl.doors.limits import (
    DOOR_LOGIN_S,
    WS_CLOSE_S,
    WS_KEEPALIVE_S,
    WS_OPEN_S,
    WS_PING_S,
    WS_QUEUE,
    WS_SILENT_S,
    WS_WRITE,
)
from mtl.doors.listening import bound, door_entrance, listening_sockets, logged_in, tls
from mtl.doors.peer_messages import DoorRefusal, peer_message
from mtl.doors.peer_session import PeerSession
from mtl.errors import Malformed, Refused
from mtl.wire.control import OVERLOADED

log = logging.getLogger("mtl.doors.websocket")
log.setLevel(logging.WARNING)  # at INFO the library logs every connection's begin and end

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
    """A message that a peer may not send, with the close code for it."""

    def __init__(self, code: CloseCode, words: str) -> None:
        super().__init__(words)
        self.code = code


class BatchedWebSocket(WebSocket):
    """A WebSocket of either side that sends and receives messages in batches: one system call and one turn of the event
    loop per message would cost more than all other work for a small message.
    """

    unread_messages = 0
    """Number of messages that were received and not taken."""

    async def send_all(self, messages: Iterable[str | bytes]) -> None:
        """Send them with one write. Raises `ConnectionClosed`."""
        if self.state is not State.OPEN:
            await self.send(b"")  # raises the error of the closed connection
            return
        for message in messages:
            if isinstance(message, str):
                self.protocol.send_text(message.encode())
            else:
                self.protocol.send_binary(message)
        self.transport.writelines(self.protocol.data_to_send())
        await self.drain()

    async def recv_all(self) -> list[str | bytes]:
        """The next message and all that are available with it. Raises as `recv`."""
        messages = [await self.recv()]
        while self.unread_messages:
            messages.append(await self.recv())
        return messages

    async def recv(self, decode: bool | None = None) -> Any:
        """The next message."""
        message = await super().recv(decode)
        self.unread_messages -= 1
        return message

    def process_event(self, event: Event) -> None:
        """Count messages."""
        super().process_event(event)
        if isinstance(event, Frame) and event.fin and event.opcode <= Opcode.BINARY:
            self.unread_messages += 1


class DoorSocket(BatchedWebSocket, ServerConnection):
    """One WebSocket at a door.

    The answer to a peer's Close is sent by `answer_close`: it confirms that everything before the Close has arrived, so
    the door processes that first.
    """

    session: PeerSession
    """The peer's session at the door, from its log-in on."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._holding = True
        self._stopped = False
        self._wrong: Violation | None = None

    @property
    def origin(self) -> str | None:
        """The origin of the page that opened this; None for a client that is not a browser."""
        return self.protocol.origin

    @property
    def closed_by_peer(self) -> bool:
        """Whether the peer sent Close; otherwise the connection is open or was lost."""
        return self.protocol.close_rcvd is not None

    async def message(self) -> str | bytes | None:
        """The next message; None when there are no more. Raises `Violation` for an invalid message."""
        try:
            message = await self.recv_messages.get()
            self.unread_messages -= 1
            return message
        except EOFError:
            close = self.protocol.close_sent
            if close is not None and self.protocol.parser_exc is not None:  # the library refused it already
                raise Violation(CloseCode(close.code), close.reason) from self.protocol.parser_exc
            return None
        except TooManyFragments as wrong:
            raise Violation(CloseCode.MESSAGE_TOO_BIG, str(wrong)) from wrong
        except UnicodeDecodeError as wrong:
            raise Violation(CloseCode.INVALID_DATA, "a text message is UTF-8") from wrong

    async def messages(self) -> list[str | bytes]:
        """The next message and all that are available with it; an empty list when there are no more. Raises as
        `message`, after the messages before the invalid one were returned.
        """
        if self._wrong is not None:
            raise self._wrong
        messages = []
        try:
            while (message := await self.message()) is not None:
                messages.append(message)
                if not self.unread_messages:
                    break
        except Violation as wrong:
            if not messages:
                raise
            self._wrong = wrong
        return messages

    def stop_receiving(self) -> None:
        """Stop receiving: `message` returns the messages that are there, then None."""
        self._stopped = True
        self.recv_messages.close()

    def answer_close(self) -> None:
        """Answer the peer's Close; does nothing if there is none."""
        self._holding = False
        self.close_deadline = None
        self.send_data()

    async def refuse(self, error: BaseException) -> None:
        """End with the close code and the text of an error, within WS_CLOSE_S.

        A Close that the peer sent meanwhile is not answered: not everything before it was processed.
        """
        if self.closed_by_peer:
            self.drop()
            return
        await self._drain_until(asyncio.create_task(self.close(*closing(error))))

    async def end_without_close(self) -> None:
        """End without a Close, so that the peer can reconnect. Sent messages are still delivered."""
        if not self.transport.is_closing() and self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()
        await self._drain_until(asyncio.create_task(self.wait_closed()))

    def drop(self) -> None:
        """Break the connection, at once. Harmless when repeated."""
        break_off(self)

    async def _drain_until(self, ending: asyncio.Task[None]) -> None:
        """Read and drop everything from the peer until the end: closing a socket with unread input resets the
        connection, and the peer would lose our last messages.
        """
        self.stop_receiving()
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

    # --- overrides of the library ---------------------------------------------------------------------------

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
        """Enable TCP keepalive: it finds dead peers without taking a slow reader for dead."""
        keep_alive(transport.get_extra_info("socket"))
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the session of a peer that leaves before it is served."""
        if hasattr(self, "session"):
            self.session.end()
        super().connection_lost(exc)

    def process_event(self, event: Event) -> None:
        """No message follows a Close."""
        if self._stopped and isinstance(event, Frame) and event.opcode <= Opcode.BINARY:
            return
        super().process_event(event)
        if isinstance(event, Frame) and event.opcode is Opcode.CLOSE:
            self.recv_messages.close()
            if self.keepalive_task is not None:
                self.keepalive_task.cancel()  # the library expects the end soon: its ping would end the connection

    def send_data(self) -> None:
        """Send everything except the answer to a Close, which is kept for `answer_close`."""
        if not (self._holding and self.protocol.close_rcvd_then_sent):
            super().send_data()


def break_off(connection: WebSocket) -> None:
    """Abort a connection of either side. Aborting a closed transport is an error in Python 3.11."""
    if not connection.connection_lost_waiter.done():
        connection.transport.abort()


def keep_alive(connection: socket.socket) -> None:
    """Enable TCP keepalive, which detects a dead peer."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, WS_KEEPALIVE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, WS_KEEPALIVE_S)


class WebSocketServer:
    """Listens from `listen` to `close`. `admit` begins the session of a peer that has logged in, or raises
    `DoorRefusal`. `serve_one` handles its connection and ends it by returning. `page` is served to browsers at `/` if
    the configuration enables that.
    """

    def __init__(
        self,
        config: DoorConfig,
        authenticator: PeerAuthenticator,
        admit: Callable[[PeerAddress], PeerSession],
        serve_one: Callable[[DoorSocket], Awaitable[None]],
        *,
        subprotocols: Sequence[str],
        largest: int,
        page: str | None = None,
    ) -> None:
        self.endpoint = ""
        self._config = config
        self._authenticator = authenticator
        self._admit = admit
        self._serve_one = serve_one
        self._subprotocols = subprotocols
        self._largest = largest
        self._page = page.encode() if page is not None and config.page else None
        self._secure = tls(config)
        self._entrance = door_entrance()

    async def listen(self, place: ListenAddress) -> None:
        """Begin. Raises `BindFailed`."""
        start = partial(
            serve,
            self._serve_connection,
            ssl=self._secure,
            ssl_handshake_timeout=None if self._secure is None else DOOR_LOGIN_S,
            create_connection=cast("type[ServerConnection]", DoorSocket),
            process_request=self._check_request,
            subprotocols=[Subprotocol(name) for name in self._subprotocols],
            select_subprotocol=self._select_subprotocol,
            compression=None,  # bodies are often compressed already; a window costs 64 KiB per connection
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
        sockets = listening_sockets(place, self._entrance)
        self._servers = [await start(sock=each) for each in sockets]
        self.endpoint = f"{'wss' if self._secure else 'ws'}://{bound(self._servers[0].server)}"

    def close(self) -> None:
        """Admit no more connections, also none that a browser opened in advance."""
        for server in self._servers:
            server.close(close_connections=False)
        self._entrance.close()

    async def closed(self) -> None:
        """Wait until all connections have ended."""
        await asyncio.gather(*(server.wait_closed() for server in self._servers))

    async def _serve_connection(self, connection: ServerConnection) -> None:
        assert isinstance(connection, DoorSocket)
        try:
            await self._serve_one(connection)
        finally:
            connection.session.end()

    async def _check_request(self, connection: ServerConnection, request: Request) -> Response | None:
        """None, or a refusal. Origins are checked first: a browser adds stored credentials to any page's request."""
        assert isinstance(connection, DoorSocket)
        self._entrance.heard(connection.transport.get_extra_info("socket").fileno())
        paged = self._page is not None and request.path == "/" and "Upgrade" not in request.headers
        refusal = None if paged else self._check_origin(connection, request)
        if refusal is not None:
            return refusal
        try:
            user = await self._authenticate(connection, request)
            if paged:
                return self._page_response(connection)
            if connection.connection_lost_waiter.done():
                return None  # the peer left while its password was checked
            connection.session = self._admit(PeerAddress.at(connection.remote_address, user))
        except AccessDenied as denied:
            return _denial(connection, denied)
        except DoorRefusal as full:
            return _refusal(connection, full)
        logged_in(self._entrance, connection.transport)
        return None

    def _page_response(self, connection: ServerConnection) -> Response:
        """The page."""
        assert self._page is not None
        response = connection.respond(HTTPStatus.OK, "")
        del response.headers["Content-Type"], response.headers["Content-Length"]
        response.headers.update(_PAGE_HEADERS)
        response.headers["Content-Length"] = str(len(self._page))
        response.body = self._page
        return response

    async def _authenticate(self, connection: DoorSocket, request: Request) -> str | None:
        """The user of a peer, None without authentication. Raises `AccessDenied`."""
        credentials = request.headers.get_all("Authorization")
        if len(credentials) > 1:
            raise AccessDenied(HTTPStatus.BAD_REQUEST, "at most one Authorization")
        tls = connection.transport.get_extra_info("ssl_object")
        given = credentials[0] if credentials else None
        return await self._authenticator.authenticate(given, address_of(connection), tls)

    def _check_origin(self, connection: ServerConnection, request: Request) -> Response | None:
        """The refusal of a page from a foreign origin, or None."""
        origins = request.headers.get_all("Origin")
        hosts = request.headers.get_all("Host")
        if len(hosts) != 1 or len(origins) > 1:
            return connection.respond(HTTPStatus.BAD_REQUEST, "one Host and at most one Origin\n")
        origin = origins[0] if origins else None
        if not admits(origin, hosts[0], self._config.origins, secure=self._secure is not None):
            return connection.respond(HTTPStatus.FORBIDDEN, f"the origin {origin} is not admitted here\n")
        return None

    def _select_subprotocol(self, _: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol:
        """The first of the client's offers that the door supports: the client's order is its preference."""
        for name in offered:
            if name in self._subprotocols:
                return name
        raise NegotiationError(f"Sec-WebSocket-Protocol is one of {', '.join(self._subprotocols)}")


def _denial(connection: ServerConnection, denied: AccessDenied) -> Response:
    response = connection.respond(denied.status, f"{denied.words}\n")
    for challenge in denied.challenges:
        response.headers["WWW-Authenticate"] = challenge
    return response


def _refusal(connection: ServerConnection, full: DoorRefusal) -> Response:
    """The answer to a peer that is one too many: for its user, or for the door."""
    status = HTTPStatus.SERVICE_UNAVAILABLE if full.reason == OVERLOADED else HTTPStatus.TOO_MANY_REQUESTS
    return connection.respond(status, f"{full.message}\n")


def address_of(connection: ServerConnection) -> str:
    """The peer's address."""
    name = connection.transport.get_extra_info("peername")
    return str(name[0]) if name else ""


def admits(origin: str | None, host: str, allowed: Sequence[str], *, secure: bool) -> bool:
    """Whether a page from `origin` is admitted; `host` is the request's Host header. See the module."""
    if origin is None or origin in allowed or "*" in allowed:
        return True
    own_origin = f"{'https' if secure else 'http'}://{host}"
    return origin.lower() == own_origin.lower() and _is_address(host)


def _is_address(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def closing(error: BaseException) -> tuple[CloseCode, str]:
    """The close code and reason for an error: a violation, a forbidden request, or an internal failure."""
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
    return code, peer_message(error).encode()[:_LONGEST_REASON].decode(errors="ignore")
