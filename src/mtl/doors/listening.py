"""Listening: the configured address and TLS of a door, and its TCP server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable

from mtl.doors.config import DoorConfig
from mtl.doors.identity import user_of_certificate
from mtl.doors.limits import TLS_OPEN_S
from mtl.doors.peer_messages import DoorRefusal
from mtl.doors.places import ListenPlace
from mtl.errors import OptionError
from mtl.net.router import BindFailed
from mtl.wire.control import NOT_AUTHORIZED


async def serve_tcp(
    config: DoorConfig,
    place: ListenPlace,
    accepted: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None] | None],
) -> asyncio.Server:
    """Start a TCP server at a place, with TLS if it is configured. Raises `OptionError`, `BindFailed`."""
    secure = tls(config)
    patience = TLS_OPEN_S if secure is not None else None
    try:
        return await asyncio.start_server(
            accepted, place.host, place.port, ssl=secure, ssl_handshake_timeout=patience
        )
    except OSError as error:
        raise bind_error(place, error) from error


def bind_error(place: ListenPlace, error: OSError) -> BindFailed:
    """The error for an address that is in use, or not of this machine."""
    return BindFailed(
        f"cannot listen at {place.host}:{place.port}: {error.strerror or error}; choose another HOST:PORT"
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
