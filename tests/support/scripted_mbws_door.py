"""An MBWS door that the test speaks for. Its WebSockets take the place of those that the client opens."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import cast

import pytest
from websockets.frames import Close, CloseCode

from mtl.doors.clients import reconnect_forever
from mtl.doors.limits import WS_CLOSE_S
from mtl.doors.mbws import link
from mtl.doors.mbws.codec import Connect, Frame, Kind, decode, encode
from mtl.doors.websocket_client import ClientSocket
from mtl.errors import Refused
from tests.support.virtual_time import now


class ScriptedSocket:
    """Both ends of one WebSocket. The client's end has the part of `ClientSocket` that a link uses."""

    def __init__(self, url: str, options: dict[str, object]) -> None:
        self.url = url
        self.options = options
        self.writes: list[list[bytes | str]] = []
        """The messages of each write of the client."""
        self.frames: list[Frame] = []
        """The frames of the client that `frame` has not returned."""
        self.closes: list[int] = []
        """The codes of the client's Closes."""
        self.unread: deque[bytes | str] = deque()
        """The messages that the client has not read."""
        self.writable = asyncio.Event()
        """While it is not set, the client waits after a write, as for a door that does not read."""
        self.writable.set()
        self._written = asyncio.Event()
        self._readable = asyncio.Event()
        self._all_read = asyncio.Event()
        self.ended = asyncio.Event()
        self.close_received: Close | None = None

    # --- the door's end -------------------------------------------------------------------------------------

    async def frame(self) -> Frame:
        """The next frame of the client."""
        while not self.frames:
            self._written.clear()
            await self._written.wait()
        return self.frames.pop(0)

    async def accept(self, name: str, *numbers: int) -> Connect:
        """Answer the client's Connect, which is returned."""
        connect = await self.frame()
        assert isinstance(connect, Connect)
        self.deliver(Connect(name, numbers))
        return connect

    def deliver(self, *frames: Frame) -> None:
        """Send frames, which arrive together."""
        self.deliver_messages(*(encode(frame, Kind.BINARY) for frame in frames))

    def deliver_messages(self, *messages: bytes | str) -> None:
        """Send messages of a WebSocket."""
        self.unread.extend(messages)
        self._readable.set()

    def lose(self) -> None:
        """The network breaks the connection."""
        self.ended.set()
        self._readable.set()

    def end(self, code: int, reason: str = "") -> None:
        """Close the WebSocket."""
        self.close_received = Close(code, reason)
        self.lose()

    # --- the client's end -----------------------------------------------------------------------------------

    async def send(self, message: bytes | str) -> None:
        await self.send_all([message])

    async def send_all(self, messages: Iterable[bytes | str]) -> None:
        if self.ended.is_set():
            raise ConnectionResetError
        assert not self.closes, "a client sends nothing after its Close"
        self.writes.append(list(messages))
        self.frames += map(decode, self.writes[-1])
        self._written.set()
        await self.writable.wait()

    async def messages(self) -> list[bytes | str]:
        while not self.unread and not self.ended.is_set():
            self._readable.clear()
            await self._readable.wait()
        messages = [*self.unread]
        self.unread.clear()
        self._all_read.set()
        return messages

    def drop(self) -> None:
        self.lose()

    async def wait_closed(self) -> None:
        await self.ended.wait()

    async def close(self, code: int = CloseCode.NORMAL_CLOSURE) -> None:
        """The door answers at once, but the client has to read everything before the answer."""
        self.closes.append(code)
        try:
            async with asyncio.timeout(WS_CLOSE_S):
                while self.unread:
                    self._all_read.clear()
                    await self._all_read.wait()
        except TimeoutError:
            self.lose()
        else:
            self.end(code)


class ScriptedDoor:
    """The door of all links while `patch` lasts; their deadlines are in the time of the event loop."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.failures: deque[OSError | Refused] = deque()
        """The results of the next attempts to open a WebSocket."""
        self.answers = True
        """Otherwise an attempt to open a WebSocket has no result."""
        self.attempts: list[float] = []
        """The times of the attempts."""
        self._opened: asyncio.Queue[ScriptedSocket] = asyncio.Queue()
        patch.setattr(link, "open_websocket", self._open)
        patch.setattr(link, "reconnect_forever", partial(reconnect_forever, clock=now))

    async def socket(self) -> ScriptedSocket:
        """The next WebSocket that a client opens."""
        return await self._opened.get()

    async def connected(self, name: str = "one") -> ScriptedSocket:
        """The next WebSocket, after the beginning of a new connection."""
        socket = await self.socket()
        await socket.accept(name)
        return socket

    async def recovered(self, name: str, *numbers: int) -> tuple[ScriptedSocket, Connect]:
        """The next WebSocket after the answer to its Connect, which is returned too."""
        socket = await self.socket()
        return socket, await socket.accept(name, *numbers)

    async def _open(self, url: str, tls: ssl.SSLContext | None, **options: object) -> ClientSocket:
        self.attempts.append(now())
        if not self.answers:
            await asyncio.Event().wait()
        if self.failures:
            raise self.failures.popleft()
        socket = ScriptedSocket(url, {"tls": tls, **options})
        self._opened.put_nowait(socket)
        return cast("ClientSocket", socket)
