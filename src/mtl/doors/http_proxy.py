"""A client's way through the HTTP proxy of its environment (HTTPS_PROXY, NO_PROXY), by CONNECT (RFC 9110, 9.3.6)."""

from __future__ import annotations

import asyncio
import socket
from base64 import b64encode
from contextlib import suppress
from http.client import HTTP_PORT
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from mtl.errors import OptionError

_LONGEST: Final = 64 << 10
"""Octets of a proxy's answer: its headers, and the begin of the page of a refusal."""


def proxy_for(host: str, port: int, *, secure: bool) -> str | None:
    """The URL of the proxy for a WebSocket; None: connect without one. For ws: that of HTTPS_PROXY, too, comes before
    that of HTTP_PROXY, which may not support CONNECT (RFC 6455, 4.1).
    """
    if proxy_bypass(f"{host}:{port}"):
        return None
    names = ("https",) if secure else ("https", "http")
    return next(filter(None, map(getproxies().get, names)), None)


async def connect_through(proxy: str, host: str, port: int) -> socket.socket:
    """A connection to a host by way of the proxy with this URL. Raises `OptionError` for a proxy of another kind,
    `OSError` when it does not connect.
    """
    parts = _parsed(proxy)
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    request = f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n"
    if parts.username is not None:
        credentials = b64encode(unquote(parts.netloc.rpartition("@")[0]).encode()).decode()
        request += f"Proxy-Authorization: Basic {credentials}\r\n"
    loop = asyncio.get_running_loop()
    (family, kind, protocol, _, address), *_ = await loop.getaddrinfo(
        parts.hostname, parts.port or HTTP_PORT, type=socket.SOCK_STREAM
    )
    connection = socket.socket(family, kind, protocol)
    try:
        connection.setblocking(False)
        await loop.sock_connect(connection, address)
        await _request_tunnel(connection, f"{request}\r\n".encode())
    except BaseException:  # also when cancelled: the caller does not have it yet
        connection.close()
        raise
    return connection


def _parsed(proxy: str) -> SplitResult:
    parts = urlsplit(proxy)
    with suppress(ValueError):  # of the port
        if parts.scheme == "http" and parts.hostname and parts.port != 0:
            return parts
    raise OptionError(
        "the proxy in HTTPS_PROXY or HTTP_PROXY is not http://HOST:PORT; it is not shown, because it may have a "
        "password. NO_PROXY names hosts that are reached without a proxy"
    )


async def _request_tunnel(connection: socket.socket, request: bytes) -> None:
    """What follows the answer comes from the host, which is silent until the client has sent something."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, request)
    answer = b""
    while b"\r\n\r\n" not in answer and (octets := await loop.sock_recv(connection, _LONGEST - len(answer))):
        answer += octets
    head, end, _ = answer.partition(b"\r\n\r\n")
    status = head.partition(b"\r\n")[0]
    if not end or not status.startswith((b"HTTP/1.1 2", b"HTTP/1.0 2")):
        raise ConnectionError(f"the proxy of HTTPS_PROXY or HTTP_PROXY does not connect: {status!r}")
