"""The WebSocket server shared by all doors, on loopback sockets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import CloseCode
from websockets.typing import Origin, Subprotocol

from mtl.doors.addresses import ListenAddress, listen_address
from mtl.doors.authentication import PeerAuthenticator
from mtl.doors.config import DoorConfig
from mtl.doors.limits import WS_OPEN_S
from mtl.doors.peer_messages import DoorRefusal
from mtl.doors.pools import Shares
from mtl.doors.users import Bridges
from mtl.doors.websocket import Violation
from mtl.doors.websocket_client import basic, bearer, open_websocket
from mtl.doors.websocket_server import DoorSocket, WebSocketServer, admits, closing
from mtl.errors import Malformed, OptionError, Refused
from mtl.net.router import BindFailed
from mtl.wire.control import NOT_AUTHORIZED, OVERLOADED
from tests.support.aio import in_loop
from tests.support.tls import Certificates

ANYWHERE = ListenAddress("ws", "127.0.0.1", 0)
ONE, TWO, THREE = [Subprotocol("one")], Subprotocol("two"), Subprotocol("three")
LOGINS = SimpleNamespace(connect_as=print)
HERE = Origin("https://example.org")


async def known(user: str, password: str, _address: str) -> None:
    """The user that logs in at the broker."""
    if (user, password) != ("alice", "secret"):
        raise Refused(401, NOT_AUTHORIZED, "the broker did not accept the password")


@asynccontextmanager
async def listening(
    serve_one: Callable[[DoorSocket], Awaitable[None]],
    config: DoorConfig | None = None,
    page: str | None = None,
    place: ListenAddress = ANYWHERE,
    check: Callable[[str, str, str], Awaitable[None]] = known,
) -> AsyncIterator[WebSocketServer]:
    config = config or DoorConfig()
    server = WebSocketServer(
        config,
        PeerAuthenticator(config, check),
        Bridges(cast("Any", None), cast("Any", LOGINS), Shares(config.max_sessions, config.quotas)).admit,
        serve_one,
        subprotocols=("one", "two"),
        largest=1000,
        page=page,
    )
    await server.listen(place)
    try:
        yield server
    finally:
        server.close()
        await server.closed()


async def echo(there: DoorSocket) -> None:
    try:
        while messages := await there.messages():
            await there.send_all(messages)
        there.answer_close()
    except Malformed as wrong:
        await there.refuse(wrong)


UPGRADE = (
    "GET / HTTP/1.1\nHost: localhost\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nSec-WebSocket-Protocol: one\n\n"
)


@asynccontextmanager
async def relaying(endpoint: str) -> AsyncIterator[str]:
    """A proxy to a door."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while octets := await reader.read(1000):
            writer.write(octets)
        writer.close()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        there = await asyncio.open_connection(*endpoint.partition("://")[2].split(":"))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


async def http(endpoint: str, request: str, further: bytes = b"") -> bytes:
    reader, writer = await asyncio.open_connection(*endpoint.removeprefix("ws://").split(":"))
    writer.write(request.replace("\n", "\r\n").encode() + further)
    try:
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.requirement("MBWS-04")
@in_loop
async def test_the_clients_first_supported_subprotocol_is_selected() -> None:
    async with listening(echo) as server:
        for offered in (ONE, [TWO], [*ONE, TWO]):
            async with connect(server.endpoint, subprotocols=offered) as c:
                assert c.subprotocol == offered[0]
        async with connect(server.endpoint, subprotocols=[THREE, TWO, *ONE]) as c:
            assert c.subprotocol == "two"
            for message in ("text", b"octets"):
                await c.send(message)
                assert await c.recv() == message
        for unsupported in ([THREE], [Subprotocol("ONE")], None):
            with pytest.raises(InvalidStatus, match="400") as refused:
                async with connect(server.endpoint, subprotocols=unsupported):
                    pass
            assert b"Sec-WebSocket-Protocol is one of one, two" in (refused.value.response.body or b"")


@in_loop
async def test_a_close_is_answered_on_request_of_the_door() -> None:
    """Messages before the close are delivered first."""
    received: list[object] = []
    release = asyncio.Event()

    async def serve(there: DoorSocket) -> None:
        while messages := await there.messages():
            received.extend(messages)
        assert there.closed_by_peer
        received.append("closed")
        await release.wait()
        there.answer_close()

    async with listening(serve) as server:
        c = await connect(server.endpoint, subprotocols=ONE)
        await c.send("a")
        await c.send("b")
        ending = asyncio.create_task(c.close())
        done, _ = await asyncio.wait({ending}, timeout=0.1)
        assert not done
        assert received == ["a", "b", "closed"]
        release.set()
        await ending
        assert c.close_code == CloseCode.NORMAL_CLOSURE


@in_loop
async def test_a_close_that_crosses_a_refusal_is_not_answered() -> None:
    """An answer would confirm messages that were not processed."""
    done = asyncio.Event()

    async def serve(there: DoorSocket) -> None:
        while await there.messages():
            pass
        assert there.closed_by_peer
        await there.refuse(Malformed("nobody says that"))
        await done.wait()  # the end of this function would end the connection, too

    async with listening(serve) as server:
        c = await connect(server.endpoint, subprotocols=ONE, close_timeout=None)
        await c.send("unprocessed")
        try:
            async with asyncio.timeout(10):
                await c.close()
        finally:
            done.set()
        assert c.close_code == CloseCode.ABNORMAL_CLOSURE


@in_loop
async def test_messages_behind_an_unanswered_close_are_ignored() -> None:
    """Such a message would make the library abort the connection."""

    async def serve(there: DoorSocket) -> None:
        while await there.messages():
            pass
        await there.send("late")
        there.answer_close()

    async with listening(serve) as server:
        c = await connect(server.endpoint, subprotocols=ONE)
        await c.close()
        assert c.close_code == CloseCode.NORMAL_CLOSURE


@in_loop
async def test_a_flood_of_empty_fragments_is_a_close_code(caplog: pytest.LogCaptureFixture) -> None:
    """Fragments behind the last accepted one are read as well, and do not start a message."""
    async with listening(echo) as server, connect(server.endpoint, subprotocols=ONE) as c:
        empty = bytes((0x80, 0, 0, 0, 0))  # masked by zeros
        c.transport.write(b"\x02" + empty + (b"\x00" + empty) * 100_000)
        with pytest.raises(ConnectionClosed):
            await c.recv()
        assert c.close_code == CloseCode.MESSAGE_TOO_BIG
    assert not caplog.records


@in_loop
async def test_a_connection_without_handshake_does_not_delay_the_end() -> None:
    async with listening(echo) as server:
        reader, writer = await asyncio.open_connection(*server.endpoint.removeprefix("ws://").split(":"))
        async with connect(server.endpoint, subprotocols=ONE):
            pass  # it is accepted by now
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < WS_OPEN_S / 2
    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize(
    "early",
    [b"\x88\x80\0\0\0\0", b"\x83\x80\0\0\0\0", b"\x81\x81\0\0\0\0\xff"],
    ids=["a Close", "a wrong opcode", "not UTF-8"],
)
@in_loop
async def test_the_wrong_octets_before_the_answer_end_a_connection(
    early: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(echo) as server:
        assert await http(server.endpoint, UPGRADE, early) == b""
    assert not caplog.records


@in_loop
async def test_a_message_before_the_answer_is_received() -> None:
    async with listening(echo) as server:
        reader, writer = await asyncio.open_connection(*server.endpoint.removeprefix("ws://").split(":"))
        writer.write(UPGRADE.replace("\n", "\r\n").encode() + b"\x82\x81\0\0\0\x001")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        assert await reader.readexactly(3) == b"\x82\x011"
        writer.close()


@in_loop
async def test_a_door_that_stops_opens_no_connection() -> None:
    """Also none whose password is being checked."""
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow(*_: str) -> None:
        asked.set()
        await answer.wait()

    header = {"Authorization": basic("alice", "secret")}
    async with listening(echo, DoorConfig(basic=True), check=slow) as server:
        opening = asyncio.ensure_future(
            connect(server.endpoint, subprotocols=ONE, additional_headers=header).connect()
        )
        await asked.wait()
        server._closing = True
        answer.set()
        with pytest.raises(InvalidStatus, match="503"):
            await opening


@in_loop
async def test_a_failure_of_the_door_is_logged_and_a_close_code(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(there: DoorSocket) -> None:
        raise RuntimeError(str(there.remote_address))

    async with listening(fail) as server:
        c = await connect(server.endpoint, subprotocols=ONE)
        with pytest.raises(ConnectionClosed):
            await c.recv()
        assert c.close_code == CloseCode.INTERNAL_ERROR
    (record,) = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], RuntimeError)


@in_loop
async def test_an_end_without_close_delivers_sent_messages() -> None:
    async def serve(there: DoorSocket) -> None:
        await there.send("last")
        await there.end_without_close()

    async with listening(serve) as server:
        c = await connect(server.endpoint, subprotocols=ONE)
        with suppress(ConnectionClosed):
            while True:
                await c.send("on its way")
        assert await c.recv() == "last"
        assert c.close_code == CloseCode.ABNORMAL_CLOSURE


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (bytes(1001), CloseCode.MESSAGE_TOO_BIG),
        ([b"x"] * 5000, CloseCode.MESSAGE_TOO_BIG),
        ("wrong", CloseCode.PROTOCOL_ERROR),
    ],
)
@in_loop
async def test_forbidden_messages_are_answered_with_a_close_code(
    message: str | bytes | list[bytes], code: CloseCode
) -> None:
    async def serve(there: DoorSocket) -> None:
        try:
            while messages := await there.messages():
                if messages == ["wrong"]:
                    await there.refuse(Malformed("nobody says that"))
        except Malformed as wrong:
            await there.refuse(wrong)

    async with listening(serve) as server:
        c = await connect(server.endpoint, subprotocols=ONE)
        await c.send(message)
        with pytest.raises(ConnectionClosed):
            await c.recv()
        assert c.close_code == code


@in_loop
async def test_text_is_utf8() -> None:
    async with listening(echo) as server:
        c = await connect(server.endpoint, subprotocols=ONE)
        await c.send(b"\xff", text=True)
        with pytest.raises(ConnectionClosed):
            await c.recv()
        assert c.close_code == CloseCode.INVALID_DATA


@in_loop
async def test_tls_needs_a_certificate_and_its_key(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    config = DoorConfig(certificate_file=certificates.certificate, key_file=certificates.key)
    async with listening(echo, config) as server:
        assert server.endpoint.startswith("wss://127.0.0.1:")
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(server.endpoint, subprotocols=ONE)
        async with connect(server.endpoint, ssl=certificates.trusting, subprotocols=ONE) as c:
            await c.send("private")
            assert await c.recv() == "private"


@pytest.mark.parametrize("secure", [False, True])
@in_loop
async def test_a_client_connects_through_the_proxy_of_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, secure: bool
) -> None:
    certificates = Certificates(tmp_path)
    config = DoorConfig(certificate_file=certificates.certificate, key_file=certificates.key)
    async with listening(echo, config if secure else None) as server, relaying(server.endpoint) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy}")
        monkeypatch.setenv("NO_PROXY", "other")
        socket = await open_websocket(server.endpoint, certificates.trusting, subprotocol="one", largest=100)
        assert proxy.endswith(f":{socket.remote_address[1]}")
        await socket.send("hello")
        assert await socket.messages() == ["hello"]
        await socket.close()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (DoorConfig(certificate_file="none", key_file="none"), "no certificate"),
    ],
)
@in_loop
async def test_invalid_configurations_are_refused(config: DoorConfig, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        async with listening(echo, config):
            pass


@in_loop
async def test_an_endpoint_in_use_is_refused() -> None:
    async with listening(echo) as server:
        place = listen_address("mbws", server.endpoint)
        with pytest.raises(BindFailed, match="choose another"):
            async with listening(echo, place=place):
                pass


@in_loop
async def test_a_full_door_answers_503_until_a_session_ends() -> None:
    async with listening(echo, DoorConfig(max_sessions=1)) as server:
        async with connect(server.endpoint, subprotocols=ONE):
            with pytest.raises(InvalidStatus, match="503"):
                await connect(server.endpoint, subprotocols=ONE)
        async with connect(server.endpoint, subprotocols=ONE):
            pass


@in_loop
async def test_a_page_is_served_if_configured() -> None:
    ask = "GET / HTTP/1.1\nHost: localhost\nConnection: close\n\n"
    async with listening(echo, DoorConfig(page=True), page="<p>größer</p>") as server:
        answer = await http(server.endpoint, ask)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith("\r\n\r\n<p>größer</p>".encode())
        assert b"Content-Security-Policy" in answer
        assert b" 426 " in await http(server.endpoint, ask.replace("/", "/other", 1))
        async with connect(f"{server.endpoint}/", subprotocols=ONE) as c:
            await c.send("hello")
            assert await c.recv() == "hello", "an upgrade at the page's path is a WebSocket"
    async with listening(echo, page="<p></p>") as server:
        assert b" 426 " in await http(server.endpoint, ask)


"""As whom the door comes in at the broker, which is not asked here."""


@in_loop
async def test_a_peer_with_wrong_credentials_is_refused(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.touch(0o600)
    tokens.write_text("bob 0123456789abcdef\n")
    addresses: list[str | None] = []

    async def record_user(there: DoorSocket) -> None:
        addresses.append(there.session.peer.user)
        await echo(there)

    async with listening(record_user, DoorConfig(basic=True, tokens_file=str(tokens))) as server:
        for header in (basic("alice", "secret"), bearer("0123456789abcdef")):
            async with connect(
                server.endpoint, subprotocols=ONE, additional_headers={"Authorization": header}
            ) as c:
                await c.send("hello")
                assert await c.recv() == "hello"
        assert addresses == ["alice", "bob"]
        for wrong in (
            None,
            basic("alice", "wrong"),
            basic("bob", "secret"),
            bearer("0123456789abcdeg"),
            "Basic",
            "x y",
        ):
            headers = {} if wrong is None else {"Authorization": wrong}
            with pytest.raises(InvalidStatus, match="401") as refused:
                await connect(server.endpoint, subprotocols=ONE, additional_headers=headers)
            asked = refused.value.response.headers.get_all("WWW-Authenticate")
            assert [challenge.partition(" ")[0] for challenge in asked] == ["Basic", "Bearer"]
        assert len(addresses) == 2


@in_loop
async def test_the_page_needs_the_credentials_of_the_door() -> None:
    """A browser that sent credentials for the page sends them again at the upgrade."""
    ask = "GET / HTTP/1.1\nHost: localhost\nConnection: close\n{}\n"
    async with listening(echo, DoorConfig(page=True, basic=True), page="<p>") as server:
        assert b" 401 " in await http(server.endpoint, ask.format(""))
        header = f"Authorization: {basic('alice', 'secret')}\n"
        assert b" 200 OK" in await http(server.endpoint, ask.format(header))


@in_loop
async def test_a_page_of_another_origin_cannot_use_cached_credentials() -> None:
    async with listening(echo, DoorConfig(basic=True)) as server:
        with pytest.raises(InvalidStatus, match="403"):
            await connect(
                server.endpoint,
                origin=HERE,
                subprotocols=ONE,
                additional_headers={"Authorization": basic("alice", "secret")},
            )


@in_loop
async def test_an_upgrade_from_another_origin_is_answered_403() -> None:
    async with listening(echo, DoorConfig(origins=(HERE,))) as server:
        for origin in (HERE, Origin(server.endpoint.replace("ws://", "http://")), None):
            async with connect(server.endpoint, origin=origin, subprotocols=ONE):
                pass
        with pytest.raises(InvalidStatus, match="403"):
            await connect(server.endpoint, origin=Origin("https://example.com"), subprotocols=ONE)
        assert b" 400 " in await http(server.endpoint, "GET / HTTP/1.1\n\n")


@pytest.mark.parametrize(
    ("origin", "host", "allowed", "secure", "admitted"),
    [
        (None, "anything", (), False, True),
        ("http://127.0.0.1:80", "127.0.0.1:80", (), False, True),
        ("http://[::1]:80", "[::1]:80", (), False, True),
        ("https://LOCALHOST", "localhost", (), True, True),
        ("http://localhost", "localhost", (), True, False),
        ("http://localhost:1", "localhost:2", (), False, False),
        ("http://rebound.example:80", "rebound.example:80", (), False, False),
        ("http://rebound.example:80", "rebound.example:80", ("http://rebound.example:80",), False, True),
        ("null", "localhost", (), False, False),
        ("http://[", "[", (), False, False),
        ("null", "localhost", ("*",), False, True),
    ],
)
def test_origins_are_compared(
    origin: str | None, host: str, allowed: tuple[str, ...], *, secure: bool, admitted: bool
) -> None:
    assert admits(origin, host, allowed, secure=secure) is admitted


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (Malformed("m"), CloseCode.PROTOCOL_ERROR, "m"),
        (Violation(CloseCode.MESSAGE_TOO_BIG, "v"), CloseCode.MESSAGE_TOO_BIG, "v"),
        (DoorRefusal(404, "unknown", "u"), CloseCode.POLICY_VIOLATION, "404 unknown: u"),
        (Refused(404, "unknown", "r"), CloseCode.POLICY_VIOLATION, "404 unknown"),
        (
            Refused(503, OVERLOADED, "o"),
            CloseCode.TRY_AGAIN_LATER,
            "503 overloaded: the broker is overloaded",
        ),
        (RuntimeError("e"), CloseCode.INTERNAL_ERROR, "internal error (RuntimeError)"),
    ],
)
def test_close_codes_are_mapped(error: Exception, code: CloseCode, words: str) -> None:
    assert closing(error)[0] is code
    assert closing(error)[1].startswith(words)


def test_a_close_reason_is_cut_at_a_character_boundary() -> None:
    _, reason = closing(Malformed("ü" * 100))
    assert reason == "ü" * 61
