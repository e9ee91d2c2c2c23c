"""Listening: the configured address and TLS of a door, its sockets, and its TCP server.

Every accepted connection passes the `Entrance`, before TLS: connections that do not log in are few and short.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from mtl.doors.addresses import ListenAddress
from mtl.doors.config import DoorConfig
from mtl.doors.identity import user_of_certificate
from mtl.doors.limits import (
    DOOR_FAILURES_PER_S,
    DOOR_LOGIN_S,
    DOOR_PENDING,
    DOOR_PENDING_ADDRESS,
)
from mtl.doors.peer_messages import DoorRefusal
from mtl.errors import OptionError
from mtl.net.entrance import Entrance
from mtl.net.pace import Pace
from mtl.net.router import BindFailed
from mtl.wire.control import NOT_AUTHORIZED

log = logging.getLogger("mtl.doors")


def door_entrance() -> Entrance:
    """The entrance of one door. It logs an address that has too many connections, from time to time."""
    pace = Pace(time.monotonic, 1, DOOR_FAILURES_PER_S)

    def report(address: str) -> None:
        if pace.admits(address):
            log.warning(
                "connections of %s that did not log in are closed: their limit is %d (DOOR_PENDING_ADDRESS), and %d of "
                "all addresses (DOOR_PENDING)",
                address or "a peer without an address",
                DOOR_PENDING_ADDRESS,
                DOOR_PENDING,
            )

    call_later = asyncio.get_running_loop().call_later
    return Entrance(DOOR_PENDING, DOOR_PENDING_ADDRESS, DOOR_LOGIN_S, call_later, report)


class _Accepted(socket.socket):
    """A connection, which leaves the entrance when it is closed."""

    entrance: Entrance

    def close(self) -> None:
        """Close it."""
        self.entrance.leave(self.fileno())
        super().close()

    def end(self) -> None:
        """End it: its reader gets the end of its input."""
        with suppress(OSError):  # the peer has ended it
            self.shutdown(socket.SHUT_RDWR)


class ListeningSocket(socket.socket):
    """A listening socket. asyncio makes the handshake of TLS itself and reports a connection only after it, so the
    connections pass the entrance here.
    """

    entrance: Entrance

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection. Raises `BlockingIOError` if there is none."""
        plain, name = super().accept()
        accepted = _Accepted(plain.family, plain.type, plain.proto, fileno=plain.detach())
        accepted.entrance = self.entrance
        self.entrance.enter(accepted.fileno(), str(name[0]), accepted.end)
        return accepted, name


def logged_in(entrance: Entrance, transport: asyncio.BaseTransport | asyncio.StreamWriter) -> None:
    """The peer of this connection has logged in."""
    entrance.leave(transport.get_extra_info("socket").fileno())


def listening_sockets(address: ListenAddress, entrance: Entrance) -> list[ListeningSocket]:
    """A socket for each network address of the host; with port 0 all have the same. Raises `BindFailed`.

    It looks a name up without another thread: the door does not serve yet.
    """
    opened: list[ListeningSocket] = []
    missing: OSError | None = None
    try:
        addresses = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, name in dict.fromkeys(addresses):
            port = opened[0].getsockname()[1] if opened else address.port
            try:
                opened.append(_listening(family, kind, protocol, (name[0], port, *name[2:]), entrance))
            except OSError as error:
                if error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                    raise
                missing = error  # a name of two families on a machine with one
        if missing is not None and not opened:
            raise missing
    except OSError as error:
        for each in opened:
            each.close()
        raise bind_error(address, error) from error
    return opened


def _listening(
    family: int, kind: int, protocol: int, name: tuple[object, ...], entrance: Entrance
) -> ListeningSocket:
    listening = ListeningSocket(family, kind, protocol)
    listening.entrance = entrance
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(name)
    except OSError:
        listening.close()
        raise
    return listening


class TcpServer:
    """The servers of all addresses of one host."""

    def __init__(self, servers: list[asyncio.Server]) -> None:
        self._servers = servers

    @property
    def endpoint(self) -> str:
        """The first address, HOST:PORT."""
        return bound(self._servers[0])

    def close(self) -> None:
        """Accept no more connections."""
        for server in self._servers:
            server.close()


async def serve_tcp(
    config: DoorConfig,
    address: ListenAddress,
    entrance: Entrance,
    accepted: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None] | None],
) -> TcpServer:
    """Start a TCP server at an address, with TLS if it is configured. Raises `OptionError`, `BindFailed`."""
    secure = tls(config)
    start = partial(
        asyncio.start_server,
        accepted,
        ssl=secure,
        ssl_handshake_timeout=None if secure is None else DOOR_LOGIN_S,
    )
    sockets = listening_sockets(address, entrance)
    return TcpServer([await start(sock=each) for each in sockets])


def bind_error(address: ListenAddress, error: OSError) -> BindFailed:
    """The error for an address that is in use, or not of this machine."""
    return BindFailed(
        f"cannot listen at {address.host}:{address.port}: {error.strerror or error}; choose another HOST:PORT"
    )


def bound(server: asyncio.Server) -> str:
    """The address of a server, HOST:PORT."""
    name = server.sockets[0].getsockname()
    return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"


def user_of(config: DoorConfig, writer: asyncio.StreamWriter) -> str | None:
    """The user of a peer's client certificate; None if none is required. Raises `DoorRefusal` if it names no user."""
    if not config.authenticates:
        return None
    user = user_of_certificate(writer.get_extra_info("ssl_object"))
    if user is None:
        raise DoorRefusal(403, NOT_AUTHORIZED, "the certificate has not one common name, which is the user")
    return user


def tls(config: DoorConfig) -> ssl.SSLContext | None:
    """TLS with the configured certificate; None without one. Raises `OptionError`."""
    if config.certificate_file is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(config.certificate_file, config.key_file)
    except OSError as error:  # an SSLError is one
        raise OptionError(
            f"no certificate and key in {config.certificate_file} and {config.key_file}: {error}"
        ) from error
    if config.client_authority_file is not None:
        try:
            context.load_verify_locations(config.client_authority_file)
        except OSError as error:
            raise OptionError(
                f"no authority's certificate in {config.client_authority_file}: {error}"
            ) from error
        otherwise = config.basic or config.tokens_file is not None
        context.verify_mode = ssl.CERT_OPTIONAL if otherwise else ssl.CERT_REQUIRED
    return context
