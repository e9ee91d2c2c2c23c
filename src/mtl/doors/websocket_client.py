"""What every client of a door on WebSocket has: the opening of a connection."""

from __future__ import annotations

import ssl
from base64 import b64encode
from http import HTTPStatus

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from mtl.doors.clients import untrusted
from mtl.doors.limits import WS_CLOSE_S, WS_QUEUE
from mtl.doors.websocket import Together
from mtl.errors import Refused
from mtl.wire.control import OVERLOADED


class ClientSocket(Together, ClientConnection):
    """The client's end."""


def basic(user: str, password: str) -> str:
    """The `authorization` of a user of the broker with its password (RFC 7617)."""
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def bearer(token: str) -> str:
    """The `authorization` of whoever has a token (RFC 6750)."""
    return f"Bearer {token}"


async def open_websocket(
    url: str,
    tls: ssl.SSLContext | None,
    *,
    subprotocol: str,
    largest: int,
    authorization: str | None = None,
) -> ClientSocket:
    """A WebSocket to a ws: or wss: URL. `tls` says whom the latter trusts, by default the system's authorities;
    `largest` is the octets of a message that may come, `authorization` the value of the header of that name.

    Raises `Refused` when the door says no or is not to be trusted, `OSError` when there is no connection.
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
            ping_timeout=None,  # a door that has enough to do for now is not gone
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
        raise untrusted(url, wrong) from wrong
    except InvalidHandshake as wrong:
        raise ConnectionError(f"{url}: {wrong}") from wrong
