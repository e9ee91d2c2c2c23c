"""One end of a WebSocket (RFC 6455) in an event loop, for doors and their clients. The library's `ServerProtocol` and
`ClientProtocol` (sans IO) are the protocol; this is their connection to an asyncio transport.

The library's own connections lack what a door needs. Messages that arrive together are handed out together, and those
of one `send_all` are one write: a system call and a turn of the event loop for each message would cost more than all
other work for a small message. The answer to a Close can wait until everything before it was processed.
"""

from __future__ import annotations

import asyncio
import socket
from abc import abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, cast

from websockets.client import ClientProtocol
from websockets.frames import Close, CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import SEND_EOF, State
from websockets.server import ServerProtocol
from websockets.typing import BytesLike

from mtl.doors.arriving import Arriving, stalled
from mtl.doors.limits import (
    DOOR_ARRIVING_FREE,
    DOOR_STALL_S,
    WS_CLOSE_S,
    WS_FRAGMENTS,
    WS_KEEPALIVE_S,
    WS_PING_S,
    WS_QUEUE,
    WS_WRITE,
)
from mtl.doors.peer_messages import DoorRefusal, peer_message
from mtl.errors import Malformed

_DATA: Final = frozenset((Opcode.CONT, Opcode.TEXT, Opcode.BINARY))


class Violation(Malformed):
    """A message that a peer may not send, with the close code for it."""

    def __init__(self, code: CloseCode, words: str) -> None:
        super().__init__(words)
        self.code = code


class WebSocket(asyncio.Protocol):
    """See the module. One task receives. `silence` is how long a ping may be unanswered before the connection is broken
    off, in seconds, by default for ever.
    """

    transport: asyncio.Transport

    def __init__(self, protocol: ServerProtocol | ClientProtocol, silence: float | None = None) -> None:
        self.ended = asyncio.Event()
        """The connection has ended: nothing is sent or received any more."""
        self.closed_by_peer = False
        """Whether the peer sent a Close, first or as an answer."""
        self._protocol = protocol
        self._silence = silence
        self._loop = asyncio.get_running_loop()
        self._receives = True
        self._messages: list[str | bytes] = []
        self._fragments: list[BytesLike] = []
        self._fragment_octets = 0
        self._incomplete = 0
        """Octets since the last whole message."""
        self._unprocessed = self._handed_out = 0
        """Octets of whole messages: of all that are not processed, and of those that `messages` returned last."""
        self.retained = 0
        """Octets of earlier messages that the receiver keeps, since its own messages are not whole."""
        self.arriving: Arriving | None = None
        """The reservation for a large message of a door's peer."""
        self._reserving: asyncio.Task[None] | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._is_text = False
        self._readable = asyncio.Event()
        self._wrong: Malformed | None = None
        self._read_paused = False
        self._pongs_unsent = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._output_ended = False
        self._close_sent = False
        self._holds_answer = False
        self._unanswered_since: float | None = None
        self._ping_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None

    @property
    def remote_address(self) -> Any:
        """The `getpeername` of the socket."""
        return self.transport.get_extra_info("peername")

    @property
    def close_received(self) -> Close | None:
        """The Close of the peer, after the end of the connection."""
        return self._protocol.close_exc.rcvd

    @property
    def unsent(self) -> int:
        """Octets that are buffered for the peer."""
        return self.transport.get_write_buffer_size()

    # --- receiving ------------------------------------------------------------------------------------------

    async def messages(self) -> list[str | bytes]:
        """The next message and all that are available with it; an empty list when there are no more. Raises
        `Malformed` for an invalid message, after the messages before it were returned.
        """
        self._unprocessed -= self._handed_out  # the receiver has processed them
        self._handed_out = 0
        self._reserve()
        self._update_reading()
        await self._readable.wait()
        messages, self._messages = self._messages, []
        self._handed_out = self._unprocessed
        if self._receives:
            self._readable.clear()
        self._update_reading()
        if not messages and self._wrong is not None:
            raise self._wrong
        return messages

    def stop_receiving(self, wrong: Malformed | None = None) -> None:
        """Receive no further messages: `messages` returns those that are there, then none, or raises `wrong`."""
        if self._receives:
            self._receives = False
            self._wrong = wrong
            self._drop_fragments()
            self._readable.set()

    def drop_input(self) -> None:
        """Read and drop everything from now on. Closing a socket with unread input resets the connection, and the peer
        would lose our last messages.
        """
        self.stop_receiving()
        self._messages.clear()
        self._update_reading()

    def _receive_frame(self, frame: Frame) -> None:
        if frame.opcode in _DATA:
            if self._receives:
                self._receive_fragment(frame)
        elif frame.opcode is Opcode.CLOSE:
            self.closed_by_peer = True
            if self._close_sent:
                self._holds_answer = False
            self.stop_receiving()
        elif frame.opcode is Opcode.PONG:
            self._unanswered_since = None
        elif not self._writable.is_set():  # the pongs of a peer that does not read must not pile up
            self._pongs_unsent = True
            self._update_reading()
        self._incomplete = self._fragment_octets

    def _receive_fragment(self, frame: Frame) -> None:
        octets: BytesLike = frame.data
        if not frame.fin or self._fragments:
            self._is_text = self._is_text if self._fragments else frame.opcode is Opcode.TEXT
            self._fragments.append(octets)
            self._fragment_octets += len(octets)
            if len(self._fragments) > WS_FRAGMENTS:
                self._refuse(CloseCode.MESSAGE_TOO_BIG, f"a message has {WS_FRAGMENTS} fragments at most")
            if not frame.fin or not self._receives:
                return
            octets = b"".join(self._fragments)
            self._drop_fragments()
        else:
            self._is_text = frame.opcode is Opcode.TEXT
        self._unprocessed += len(octets)
        try:
            self._messages.append(str(octets, "utf-8") if self._is_text else bytes(octets))
        except UnicodeDecodeError:
            self._refuse(CloseCode.INVALID_DATA, "a text message is UTF-8")
        self._readable.set()
        self._update_reading()

    def _drop_fragments(self) -> None:
        self._fragments.clear()
        self._fragment_octets = 0

    def _refuse(self, code: CloseCode, words: str) -> None:
        self._close_sent = True
        self._protocol.fail(code, words)
        self.stop_receiving(Violation(code, words))

    def _update_reading(self) -> None:
        """Read from the socket only while there is room."""
        full = (
            len(self._messages) > WS_QUEUE
            or self._pongs_unsent
            or self._reserving is not None
            or (self.arriving is not None and self._unprocessed > DOOR_ARRIVING_FREE)
        )
        if full != self._read_paused:
            self._read_paused = full
            if full:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    # --- the room for a large message ------------------------------------------------------------------------

    def _reserve(self) -> None:
        """Read on when there is room for the rest of the message, and not for ever if nothing of it arrives. The room
        is kept until the message is processed; until then the next one is not read.
        """
        if self.arriving is None or self._reserving is not None or not self._receives:
            return
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        if not self.arriving.try_reserve(self._large):
            self._reserving = asyncio.create_task(self._wait_for_room(self.arriving))
            self._update_reading()
        elif max(self._incomplete, self.retained) > DOOR_ARRIVING_FREE:
            self._stall_timer = self._loop.call_later(DOOR_STALL_S, self._handle_stall)

    @property
    def _large(self) -> int:
        """The octets that need room."""
        return max(self._incomplete, self._unprocessed, self.retained)

    async def _wait_for_room(self, arriving: Arriving) -> None:
        try:
            await arriving.reserve(self._large)
        except DoorRefusal as refused:
            self._refuse(CloseCode.TRY_AGAIN_LATER, peer_message(refused))
            self._flush()
        self._reserving = None
        self._update_reading()
        self._reserve()

    def _handle_stall(self) -> None:
        self._stall_timer = None
        if self._read_paused:  # the peer may have sent the rest
            self._reserve()
        else:
            self._refuse(CloseCode.TRY_AGAIN_LATER, peer_message(stalled()))
            self._flush()

    def _end_reservation(self) -> None:
        if self._reserving is not None:
            self._reserving.cancel()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        if self.arriving is not None:
            self.arriving.end()
            self.arriving = None

    # --- sending --------------------------------------------------------------------------------------------

    async def send(self, message: str | bytes) -> None:
        """As `send_all`, for one message."""
        await self.send_all((message,))

    async def send_all(self, messages: Iterable[str | bytes]) -> None:
        """Send messages with one write, and wait until the peer has read most of them; nothing after the peer's Close.
        Raises `ConnectionResetError` when the connection is closed otherwise.
        """
        if self._protocol.state is not State.OPEN and not self.closed_by_peer:
            raise ConnectionResetError("the WebSocket is closed")
        self.write(messages)
        await self.drain()

    def write(self, messages: Iterable[str | bytes]) -> None:
        """Send messages without waiting for the peer. Ignored when the connection is closed."""
        if self._protocol.state is not State.OPEN:
            return
        for message in messages:
            if isinstance(message, str):
                self._protocol.send_text(message.encode())
            else:
                self._protocol.send_binary(message)
        self._flush()

    async def drain(self) -> None:
        """Wait until the peer has read most of what was sent. Raises `ConnectionResetError` when it never will."""
        await self._writable.wait()
        if self.ended.is_set():
            raise ConnectionResetError("the WebSocket has ended")

    def _flush(self) -> None:
        """Write the output of the protocol, except an answer to a Close that has to wait."""
        if self.closed_by_peer and self._holds_answer:
            return
        output = self._protocol.data_to_send()
        if not output or self._output_ended or self.transport.is_closing():
            return
        last = output[-1] == SEND_EOF
        if last:
            output.pop()
        if output:
            self.transport.writelines(output)
        if last:
            self._end_output()
        if self._close_timer is None and self._protocol.close_expected():
            self._close_timer = self._loop.call_later(WS_CLOSE_S, self.drop)

    def _end_output(self) -> None:
        self._output_ended = True
        if self.transport.can_write_eof():
            with suppress(OSError):  # the peer has broken the connection
                self.transport.write_eof()
        else:  # TLS has no half of an end
            self.transport.close()

    # --- pings ----------------------------------------------------------------------------------------------

    def start_pings(self) -> None:
        """Send a ping from time to time, after the handshake."""
        self._ping_timer = self._loop.call_later(WS_PING_S, self._ping)

    def _ping(self) -> None:
        if self._protocol.state is not State.OPEN:
            return
        now = self._loop.time()
        if self._unanswered_since is None:
            self._unanswered_since = now
        if self._silence is not None and now - self._unanswered_since >= self._silence:
            self.drop()
            return
        self._protocol.send_ping(b"")
        self._flush()
        self.start_pings()

    # --- the end --------------------------------------------------------------------------------------------

    async def close(self, code: CloseCode = CloseCode.NORMAL_CLOSURE, reason: str = "") -> None:
        """Send a Close and wait for the end, at most WS_CLOSE_S. Harmless when repeated."""
        if self._protocol.state is State.OPEN:
            self._close_sent = True
            self._protocol.send_close(code, reason)
            self._flush()
        await self.wait_closed()

    async def wait_closed(self) -> None:
        """Wait for the end of the connection, at most WS_CLOSE_S; then it is broken off."""
        try:
            async with asyncio.timeout(WS_CLOSE_S):
                await self.ended.wait()
        except TimeoutError:
            pass
        finally:
            self.drop()
            await self.ended.wait()

    async def end_without_close(self) -> None:
        """End without a Close, so that the peer can reconnect. Sent messages are still delivered."""
        self._end_output()
        self.drop_input()
        await self.wait_closed()

    def drop(self) -> None:
        """Break the connection, at once. Harmless when repeated."""
        if not self.ended.is_set():  # aborting a closed transport is an error in Python 3.11
            self.transport.abort()

    # --- what the event loop calls --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Enable TCP keepalive: it finds dead peers without taking a slow reader for dead."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(WS_WRITE)
        keep_alive(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        """Handle octets of the peer."""
        self._protocol.receive_data(data)
        self._incomplete += len(data)
        self._receive_events()
        self._reserve()
        if self._protocol.state is State.CLOSING and not (self._close_sent or self.closed_by_peer):
            self._close_sent = True
            self.stop_receiving(Malformed("a frame breaks RFC 6455, or the limit of its size"))
        self._flush()

    def _receive_events(self) -> None:
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._receive_frame(event)
            else:
                self.receive_handshake(event)

    @abstractmethod
    def receive_handshake(self, event: Request | Response) -> None:
        """Handle the peer's part of the handshake."""

    def eof_received(self) -> None:
        """Handle the end of the peer's octets, which may be that of an HTTP response; asyncio closes the transport."""
        self._protocol.receive_eof()
        self._receive_events()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 one end is like another
        """Wake all that wait."""
        self._protocol.receive_eof()
        for timer in (self._ping_timer, self._close_timer):
            if timer is not None:
                timer.cancel()
        self._end_reservation()
        self.ended.set()
        self._writable.set()
        self.stop_receiving()

    def pause_writing(self) -> None:
        """The peer reads slowly."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The peer has read most of what was sent."""
        self._writable.set()
        self._pongs_unsent = False
        self._update_reading()


def keep_alive(connection: socket.socket) -> None:
    """Enable TCP keepalive, which detects a dead peer."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, WS_KEEPALIVE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, WS_KEEPALIVE_S)
