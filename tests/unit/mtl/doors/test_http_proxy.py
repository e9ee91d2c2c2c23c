"""A proxy on a loopback socket, of which a client asks connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mtl.doors.http_proxy import connect_through, proxy_for
from mtl.errors import OptionError
from tests.support.aio import in_loop


@asynccontextmanager
async def proxy(answer: bytes, requests: list[bytes]) -> AsyncIterator[str]:
    """Its HOST:PORT. It answers each request with `answer`, and echoes what follows."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        if answer.endswith(b"\r\n\r\n"):
            writer.write(await reader.read(100))
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


@pytest.mark.parametrize(
    ("user", "host", "request_octets"),
    [
        ("", "door", b"CONNECT door:80 HTTP/1.1\r\nHost: door:80\r\n\r\n"),
        (
            "u%40:p@",
            "::1",
            b"CONNECT [::1]:80 HTTP/1.1\r\nHost: [::1]:80\r\nProxy-Authorization: Basic dUA6cA==\r\n\r\n",
        ),
    ],
)
@in_loop
async def test_a_proxy_is_asked_for_a_connection(user: str, host: str, request_octets: bytes) -> None:
    requests: list[bytes] = []
    async with proxy(b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\n", requests) as place:
        with await connect_through(f"http://{user}{place}", host, 80) as connection:
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(connection, b"hello")
            assert await loop.sock_recv(connection, 100) == b"hello"
    assert requests == [request_octets]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n<p>", "407 Proxy Authentication Required"),
        (b"HTTP/1.1 200", "does not connect"),
        (b"", "does not connect"),
    ],
)
@in_loop
async def test_a_proxy_that_does_not_connect_is_an_error(answer: bytes, words: str) -> None:
    async with proxy(answer, []) as place:
        with pytest.raises(ConnectionError, match=words):
            await connect_through(f"http://{place}", "door", 80)


@pytest.mark.parametrize("url", ["socks5://h:1", "https://h:1", "h:1", "http://h:x"])
@in_loop
async def test_a_proxy_of_another_kind_is_an_error(url: str) -> None:
    with pytest.raises(OptionError, match="is not http://"):
        await connect_through(url, "door", 80)


def test_the_proxy_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert proxy_for("door", 80, secure=True) is None
    monkeypatch.setenv("HTTP_PROXY", "http://plain")
    assert proxy_for("door", 80, secure=False) == "http://plain"
    assert proxy_for("door", 80, secure=True) is None
    monkeypatch.setenv("HTTPS_PROXY", "http://secure")
    assert {proxy_for("door", 80, secure=secure) for secure in (True, False)} == {"http://secure"}
    monkeypatch.setenv("NO_PROXY", "other,door")
    assert proxy_for("door", 80, secure=True) is None
