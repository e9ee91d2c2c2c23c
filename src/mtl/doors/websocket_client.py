"""Opening a connection to a door on WebSocket, for the clients."""

from __future__ import annotations

import ssl
from base64 import b64encode
from http import HTTPStatus

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from mtl.doors.clients import untrusted_error
from mtl.doors.limits import WS_CLOSE_S, WS_QUEUE
from mtl.doors.websocket import BatchedWebSocket
from mtl.errors import Refused
from mtl.wire.control import OVERLOADED


class ClientSocket(BatchedWebSocket, ClientConnection):
    """The client's end."""


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
    the maximum of a received message in octets, `authorization` the value of the header of that name.

    Raises `Refused` when the door refuses or its certificate is not trusted, `OSError` when there is no connection.
    """
    try:
        socket = await connect(
            url,
            create_connection=ClientSocket,
            ssl=(tls or True) if url.startswith("wss:") else None,
            subprotocols=[Subprotocol(subprotocol)],
            additional_headers={} if authorization is None else {"Authorization": authorization},
            compression=None,
            max_size=largest,
            max_queue=WS_QUEUE,
            ping_timeout=None,  # a busy door may answer late
            close_timeout=WS_CLOSE_S,
        )
        assert isinstance(socket, ClientSocket)
        return socket
    except InvalidStatus as refused:
        status = refused.response.status_code
        full = status == HTTPStatus.SERVICE_UNAVAILABLE
        words = (refused.response.body or b"").decode(errors="replace").strip()
        raise Refused(status, OVERLOADED if full else "refused", words) from refused
    except ssl.SSLCertVerificationError as wrong:
        raise untrusted_error(url, wrong) from wrong
    except InvalidHandshake as wrong:
        raise ConnectionError(f"{url}: {wrong}") from wrong
