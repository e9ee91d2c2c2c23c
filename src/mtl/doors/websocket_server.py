"""The server of doors on WebSocket, with TLS and origin checks, and its end of a connection.

Browsers let any page open a WebSocket to any host that the user can reach, and name the page's origin in `Origin`.
Admitted are requests without Origin (not from a browser), configured origins, and pages served by this door, if its
host is an IP address or localhost: any other name could belong to an attacker and resolve to this host (DNS
rebinding).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from http import HTTPStatus
from urllib.parse import urlsplit

from websockets.exceptions import NegotiationError
from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from mtl.doors.addresses import ListenAddress
from mtl.doors.authentication import AccessDenied, PeerAuthenticator
from mtl.doors.config import DoorConfig
from mtl.doors.failure_log import PeerAddress
from mtl.doors.limits import DOOR_LOGIN_S, WS_CLOSE_S, WS_OPEN_S, WS_SILENT_S
from mtl.doors.listening import bound, door_entrance, listening_sockets, logged_in, tls
from mtl.doors.peer_messages import DoorRefusal, peer_message
from mtl.doors.peer_session import PeerSession
from mtl.doors.websocket import Violation, WebSocket
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


class DoorSocket(WebSocket):
    """One WebSocket at a door. `opening` gets it with its request.

    The answer to a peer's Close is sent by `answer_close`: it confirms that everything before the Close has arrived, so
    the door processes that first.
    """

    session: PeerSession
    """The peer's session at the door, from its log-in on."""

    request: Request
    response: Response

    _protocol: ServerProtocol

    def __init__(self, protocol: ServerProtocol, opening: Callable[[DoorSocket], None]) -> None:
        super().__init__(protocol, WS_SILENT_S)
        self._holds_answer = True
        self._opening = opening
        self._open_timer: asyncio.TimerHandle | None = None

    @property
    def origin(self) -> str | None:
        """The origin of the page that opened this; None for a client that is not a browser."""
        return self.request.headers.get("Origin")

    @property
    def subprotocol(self) -> str:
        """The selected subprotocol."""
        return self.response.headers["Sec-WebSocket-Protocol"]

    def receive_handshake(self, event: Request | Response) -> None:
        """Begin to serve the peer."""
        assert isinstance(event, Request)
        self.request = event
        self._opening(self)

    def reject(self, status: HTTPStatus, words: str) -> Response:
        """A response that opens no WebSocket."""
        return self._protocol.reject(status, words)

    def respond(self, refusal: Response | None) -> bool:
        """Answer the request. Returns whether the WebSocket is open."""
        self._cancel_open_timer()
        if self._protocol.state is not State.CONNECTING or self._protocol.close_expected():
            self.drop()  # the peer has left, or sent what it may not send before the answer
            return False
        self.response = refusal or self._protocol.accept(self.request)
        self._protocol.send_response(self.response)
        self._flush()
        opened = self.response.status_code == HTTPStatus.SWITCHING_PROTOCOLS
        if opened:
            self.start_pings()
        return opened

    def answer_close(self) -> None:
        """Answer the peer's Close, now or when it arrives."""
        self._holds_answer = False
        self._flush()

    async def refuse(self, error: BaseException) -> None:
        """End with the close code and the text of an error, within WS_CLOSE_S.

        A Close that the peer sent meanwhile is not answered: not everything before it was processed.
        """
        code, reason = closing(error)
        if self.closed_by_peer:
            self.drop()
            return
        self.drop_input()
        await self.close(code, reason)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the request, but not for long."""
        super().connection_made(transport)
        self._open_timer = self._loop.call_later(WS_OPEN_S, self.drop)

    def _cancel_open_timer(self) -> None:
        if self._open_timer is not None:
            self._open_timer.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the session, also of a peer that leaves before it is served."""
        super().connection_lost(exc)
        self._cancel_open_timer()
        if hasattr(self, "session"):
            self.session.end()


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
        self._subprotocols = [Subprotocol(name) for name in subprotocols]
        self._largest = largest
        self._page = page.encode() if page is not None and config.page else None
        self._secure = tls(config)
        self._entrance = door_entrance()
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    async def listen(self, place: ListenAddress) -> None:
        """Begin. Raises `BindFailed`."""
        start = partial(
            asyncio.get_running_loop().create_server,
            self._accept,
            ssl=self._secure,
            ssl_handshake_timeout=None if self._secure is None else DOOR_LOGIN_S,
            ssl_shutdown_timeout=None if self._secure is None else WS_CLOSE_S,
        )
        sockets = listening_sockets(place, self._entrance)
        self._servers = [await start(sock=each) for each in sockets]
        self.endpoint = f"{'wss' if self._secure else 'ws'}://{bound(self._servers[0])}"

    def close(self) -> None:
        """Admit no more connections, also none that a browser opened in advance."""
        self._closing = True
        for server in self._servers:
            server.close()
        self._entrance.close()

    async def closed(self) -> None:
        """Wait until all connections have ended."""
        await asyncio.gather(*(server.wait_closed() for server in self._servers))
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _accept(self) -> DoorSocket:
        protocol = ServerProtocol(
            subprotocols=self._subprotocols,
            select_subprotocol=_select_subprotocol(self._subprotocols),
            max_size=self._largest,
            logger=log,
        )
        return DoorSocket(protocol, self._open)

    def _open(self, connection: DoorSocket) -> None:
        task = asyncio.create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: DoorSocket) -> None:
        """Answer the request, serve the peer, and end the connection."""
        try:
            if connection.respond(await self._check_request(connection)):
                logged_in(self._entrance, connection.transport)
                await self._serve_one(connection)
                connection.session.end()
            await connection.close()
        except Exception as failed:  # noqa: BLE001 a bug must not leave a peer without an answer
            await connection.refuse(failed)
        finally:
            connection.drop()

    async def _check_request(self, connection: DoorSocket) -> Response | None:
        """None, or a refusal. Origins are checked first: a browser adds stored credentials to any page's request."""
        request = connection.request
        self._entrance.heard(connection.transport.get_extra_info("socket").fileno())
        paged = self._page is not None and request.path == "/" and "Upgrade" not in request.headers
        refusal = None if paged else self._check_origin(connection)
        if refusal is not None:
            return refusal
        try:
            user = await self._authenticate(connection)
            if paged:
                return self._page_response(connection)
            if self._closing:
                return connection.reject(HTTPStatus.SERVICE_UNAVAILABLE, "the door stops\n")
            if connection.ended.is_set():
                return None  # the peer left while its password was checked
            connection.session = self._admit(PeerAddress.at(connection.remote_address, user))
            connection.arriving = connection.session.arriving()
        except AccessDenied as denied:
            return _denial(connection, denied)
        except DoorRefusal as full:
            return _refusal(connection, full)
        except Exception as failed:  # noqa: BLE001 as in `_serve`
            return connection.reject(HTTPStatus.INTERNAL_SERVER_ERROR, f"{peer_message(failed)}\n")
        return None

    def _page_response(self, connection: DoorSocket) -> Response:
        """The page."""
        assert self._page is not None
        response = connection.reject(HTTPStatus.OK, "")
        del response.headers["Content-Type"], response.headers["Content-Length"]
        response.headers.update(_PAGE_HEADERS)
        response.headers["Content-Length"] = str(len(self._page))
        response.body = self._page
        return response

    async def _authenticate(self, connection: DoorSocket) -> str | None:
        """The user of a peer, None without authentication. Raises `AccessDenied`."""
        credentials = connection.request.headers.get_all("Authorization")
        if len(credentials) > 1:
            raise AccessDenied(HTTPStatus.BAD_REQUEST, "at most one Authorization")
        tls = connection.transport.get_extra_info("ssl_object")
        given = credentials[0] if credentials else None
        return await self._authenticator.authenticate(given, address_of(connection), tls)

    def _check_origin(self, connection: DoorSocket) -> Response | None:
        """The refusal of a page from a foreign origin, or None."""
        origins = connection.request.headers.get_all("Origin")
        hosts = connection.request.headers.get_all("Host")
        if len(hosts) != 1 or len(origins) > 1:
            return connection.reject(HTTPStatus.BAD_REQUEST, "one Host and at most one Origin\n")
        origin = origins[0] if origins else None
        if not admits(origin, hosts[0], self._config.origins, secure=self._secure is not None):
            return connection.reject(HTTPStatus.FORBIDDEN, f"the origin {origin} is not admitted here\n")
        return None


def _select_subprotocol(
    supported: Sequence[Subprotocol],
) -> Callable[[ServerProtocol, Sequence[Subprotocol]], Subprotocol]:
    """Selects the first of the client's offers that the door supports: the client's order is its preference."""

    def select(_: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol:
        for name in offered:
            if name in supported:
                return name
        raise NegotiationError(f"Sec-WebSocket-Protocol is one of {', '.join(supported)}")

    return select


def _denial(connection: DoorSocket, denied: AccessDenied) -> Response:
    response = connection.reject(denied.status, f"{denied.words}\n")
    for challenge in denied.challenges:
        response.headers["WWW-Authenticate"] = challenge
    return response


def _refusal(connection: DoorSocket, full: DoorRefusal) -> Response:
    """The answer to a peer that is one too many: for its user, or for the door."""
    status = HTTPStatus.SERVICE_UNAVAILABLE if full.reason == OVERLOADED else HTTPStatus.TOO_MANY_REQUESTS
    return connection.reject(status, f"{full.message}\n")


def address_of(connection: DoorSocket) -> str:
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
