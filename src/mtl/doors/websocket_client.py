"""Opening a connection to a door on WebSocket, for the clients."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from http import HTTPStatus

from websockets.client import ClientProtocol
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from mtl.doors.clients import untrusted_error
from mtl.doors.http_proxy import connect_through, proxy_for
from mtl.doors.websocket import WebSocket
from mtl.errors import Refused
from mtl.wire.control import OVERLOADED


class ClientSocket(WebSocket):
    """The client's end. A busy door may answer a ping late."""

    _protocol: ClientProtocol

    def __init__(self, protocol: ClientProtocol) -> None:
        super().__init__(protocol)
        self._answer: asyncio.Future[Response | None] = self._loop.create_future()

    async def open(self, authorization: str | None) -> None:
        """Handshake. Raises `Refused` when the door refuses, `ConnectionError` for anything else."""
        request = self._protocol.connect()
        if authorization is not None:
            request.headers["Authorization"] = authorization
        self._protocol.send_request(request)
        self._flush()
        response = await self._answer
        if response is not None and response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            raise _refused(response)
        if response is None or self._protocol.handshake_exc is not None:
            raise ConnectionError(
                f"no WebSocket: {self._protocol.handshake_exc or 'the connection was lost'}"
            )
        self.start_pings()

    def receive_handshake(self, event: Request | Response) -> None:
        """Take the door's answer."""
        assert isinstance(event, Response)
        if not self._answer.done():
            self._answer.set_result(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the handshake, too."""
        super().connection_lost(exc)
        if not self._answer.done():
            self._answer.set_result(None)


def basic(user: str, password: str) -> str:
    """The `authorization` of a user of the broker with its password (RFC 7617)."""
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def bearer(token: str) -> str:
    """The `authorization` for a bearer token (RFC 6750)."""
    return f"Bearer {token}"


async def open_websocket(
    url: str,
    tls: ssl.SSLContext | None,
    *,
    subprotocol: str,
    largest: int,
    authorization: str | None = None,
) -> ClientSocket:
    """Open a WebSocket to a ws: or wss: URL. `tls` is for wss:, by default with the system's authorities; `largest` is
    the maximum of a received message in octets, `authorization` the value of the header of that name. It leads through
    the HTTP proxy of the environment, if there is one.

    Raises `Refused` when the door refuses or its certificate is not trusted, `OSError` when there is no connection.
    """
    uri = parse_uri(url)

    def begin() -> ClientSocket:
        return ClientSocket(ClientProtocol(uri, subprotocols=[Subprotocol(subprotocol)], max_size=largest))

    loop = asyncio.get_running_loop()
    secure = (tls or True) if uri.secure else None
    proxy = proxy_for(uri.host, uri.port, secure=uri.secure)
    try:
        if proxy is None:
            _, socket = await loop.create_connection(begin, uri.host, uri.port, ssl=secure)
        else:
            through = await connect_through(proxy, uri.host, uri.port)
            name = uri.host if uri.secure else None
            _, socket = await loop.create_connection(begin, sock=through, ssl=secure, server_hostname=name)
    except ssl.SSLCertVerificationError as wrong:
        raise untrusted_error(url, wrong) from wrong
    try:
        await socket.open(authorization)
    except BaseException:  # also when cancelled: the caller does not have it yet
        socket.drop()
        raise
    return socket


def _refused(response: Response) -> Refused:
    """The error for a door's answer that is not a WebSocket."""
    status = response.status_code
    words = (response.body or b"").decode(errors="replace").strip()
    return Refused(status, OVERLOADED if status == HTTPStatus.SERVICE_UNAVAILABLE else "refused", words)
