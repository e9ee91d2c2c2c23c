"""Where a door listens: the place and the TLS that its configuration names, and a TCP server there."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable

from mtl.doors.config import DoorConfig, host_and_port
from mtl.doors.limits import TLS_OPEN_S
from mtl.errors import OptionError
from mtl.net.router import BindFailed


async def serve_tcp(
    config: DoorConfig,
    default: str,
    accepted: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None] | None],
) -> asyncio.Server:
    """A server that listens where the configuration says or at `default`, HOST:PORT, with TLS where that has it.

    Raises `OptionError`, `BindFailed`.
    """
    place = config.listen or default
    host, port = host_and_port(place)
    secure = tls(config)
    patience = TLS_OPEN_S if secure is not None else None
    try:
        return await asyncio.start_server(accepted, host, port, ssl=secure, ssl_handshake_timeout=patience)
    except OSError as error:
        raise cannot_listen(place, error) from error


def cannot_listen(place: str, error: OSError) -> BindFailed:
    """What is said when a place is taken, or is none of this machine."""
    return BindFailed(f"cannot listen at {place}: {error.strerror or error}; choose another HOST:PORT")


def bound(server: asyncio.Server) -> str:
    """Where it listens, HOST:PORT."""
    name = server.sockets[0].getsockname()
    return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"


def tls(config: DoorConfig) -> ssl.SSLContext | None:
    """TLS with the configured certificate; None where there is none. Raises `OptionError`."""
    if config.certificate_file is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(config.certificate_file, config.key_file)
    except OSError as error:  # an SSLError is one
        raise OptionError(
            f"no certificate and key in {config.certificate_file} and {config.key_file}: {error}"
        ) from error
    return context
