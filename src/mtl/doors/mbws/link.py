"""The client's side of one MBWS connection: it reconnects after a loss, and recovers if the door knows it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from websockets.frames import CloseCode

from mtl.doors.budget import Budget
from mtl.doors.clients import reconnect_forever, settle
from mtl.doors.limits import MBWS_ACK_S, MBWS_CLIENT_OCTETS, MBWS_CLIENT_WINDOW, MBWS_CONNECT_S, WS_WRITE
from mtl.doors.mbws.codec import Acknowledge, Connect, Kind, Message
from mtl.doors.mbws.session import LARGEST, MBWS, MbwsRole, MbwsSession
from mtl.doors.mbws.subscription_query import SubscriptionQuery
from mtl.doors.mbws.windows import Outgoing
from mtl.doors.websocket_client import ClientSocket, open_websocket
from mtl.errors import Closed, Malformed, MtlError, Refused
from mtl.wire.control import OVERLOADED

_ACK_AT: Final = MBWS_CLIENT_WINDOW // 8
"""Number of consumed messages from which an acknowledgement is sent at once."""

_GOES_ON: Final = {
    CloseCode.NORMAL_CLOSURE,
    CloseCode.GOING_AWAY,
    CloseCode.INTERNAL_ERROR,
    CloseCode.SERVICE_RESTART,
    CloseCode.TRY_AGAIN_LATER,
}
"""Close codes after which the client reconnects; the others are about an error of the client."""


@dataclass(frozen=True, slots=True)
class LinkTarget:
    """How to reach a door. `deadline` is how long to retry without progress, in seconds; `authorization` is the value
    of that header.
    """

    url: str
    kind: Kind
    tls: ssl.SSLContext | None
    deadline: float
    authorization: str | None = None


class _Sent(NamedTuple):
    """A message that is retained until it is acknowledged; then `settled` is done. `size` is in octets."""

    data: bytes | str
    size: int
    settled: asyncio.Future[None]


class MbwsLink:
    """One connection. `subscriptions` is called for each session, `handle` gets the messages, `ended` the error.

    `handle` is awaited: nothing more is read from the socket until it returns. The owner calls
    `count_consumed` for each message.
    `room` and `octets` limit unacknowledged messages: `send` takes from them first.
    """

    def __init__(
        self,
        target: LinkTarget,
        subscriptions: Callable[[], SubscriptionQuery] = SubscriptionQuery,
        handle: Callable[[Sequence[Message], int], Awaitable[None]] | None = None,
        ended: Callable[[MtlError], None] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self.error: MtlError | None = None
        self.name = ""
        self.beginnings = 0
        """How often a new connection began: its sequences begin with 1 again."""
        self.sent = 0
        """How many messages were ever sent."""
        self.room = Budget(MBWS_CLIENT_WINDOW)
        self.octets = Budget(MBWS_CLIENT_OCTETS)
        self._target = target
        self._subscriptions = subscriptions
        self._handle = handle
        self._ended = ended
        self._socket: ClientSocket | None = None
        self._outgoing: Outgoing[_Sent] = Outgoing(MBWS_CLIENT_WINDOW)
        self._settled = 0
        self._settled_more = asyncio.Event()
        self._restart_sequences()
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._task = asyncio.create_task(self._run())

    def _restart_sequences(self) -> None:
        """Count from the beginning in both directions."""
        self._outgoing.acked = self._written = self._received = self._consumed = self._acked = 0

    # --- for readers and writers ----------------------------------------------------------------------------

    async def send(self, data: bytes | str, size: int) -> asyncio.Future[None]:
        """Send a Message's frame of `size` octets, now or when there is a session, in order; waits while the window is
        full. The result is done when the door acknowledged it.
        """
        await self.octets.acquire(size)
        try:
            await self.room.acquire(1)
        except BaseException:  # cancelled: it is not under way
            self.octets.release(size)
            raise
        if self.error is not None:
            self._release(1, size)
            raise self.error
        settled: asyncio.Future[None] = self._loop.create_future()
        self._outgoing.send(_Sent(data, size, settled))
        self.sent += 1
        self._wake.set()
        return settled

    async def flush(self, sent: int) -> None:
        """Wait until the first `sent` messages ever are acknowledged. Raises the error that ended the line."""
        while self._settled < sent:
            if self.error is not None:
                raise self.error
            self._settled_more.clear()
            await self._settled_more.wait()

    def _release(self, messages: int, octets: int) -> None:
        self.room.release(messages)
        self.octets.release(octets)

    def count_consumed(self, beginning: int) -> None:
        """Acknowledge one more message, soon. `beginning` is the value that `handle` got with it."""
        if beginning != self.beginnings:
            return  # it belongs to a connection that has ended
        self._consumed += 1
        if self._consumed - self._acked >= _ACK_AT:
            self._wake.set()
        elif self._timer is None:
            self._timer = self._loop.call_later(MBWS_ACK_S, self._acknowledge)

    def _acknowledge(self) -> None:
        self._timer = None
        self._wake.set()

    # --- one session after the other ------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await reconnect_forever(
                self._session, self._target.url, self._target.deadline, "connecting to an MBWS door"
            )
        except MtlError as error:
            self.fail(error)
        except asyncio.CancelledError:  # the event loop ends: other tasks must not wait for this one
            self.fail(Closed("the connection's task was cancelled"))
            raise

    async def _session(self) -> bool:
        """Run one WebSocket until it is over. Returns whether it made progress.

        Raises `Refused` for permanent errors.
        """
        try:
            async with asyncio.timeout(MBWS_CONNECT_S):
                socket = await self._open_socket()
        except OSError:  # TimeoutError is an OSError
            return False
        except Refused as refused:
            if refused.reason == OVERLOADED and self.opened.done():
                return False
            raise
        session = MbwsSession(MbwsRole.CLIENT, MBWS, self._target.kind)
        sending: asyncio.Task[None] | None = None
        before = None
        try:
            async with asyncio.timeout(MBWS_CONNECT_S):
                further = await self._connect(socket, session)
            before = self._progress
            self._socket = socket
            sending = asyncio.create_task(self._send_loop(socket, session))
            await self._handle_frames(session, further)
            while messages := await socket.messages():
                await self._handle_frames(session, messages)
            await socket.wait_closed()
        except (TimeoutError, ConnectionResetError):
            pass
        except Malformed as wrong:
            await socket.close(CloseCode.PROTOCOL_ERROR)
            raise Refused(400, "malformed", f"{self._target.url} did not send MBWS: {wrong}") from wrong
        finally:
            self._socket = None
            if sending is not None:
                sending.cancel()
            socket.drop()
        await socket.wait_closed()
        lost = self._is_recoverable(socket)
        return before is not None and (lost or self._progress != before)

    @property
    def _progress(self) -> tuple[int, int]:
        return self._outgoing.acked, self._received

    async def _open_socket(self) -> ClientSocket:
        query = self._subscriptions().query
        url = f"{self._target.url}?{query}" if query else self._target.url
        target = self._target
        return await open_websocket(
            url, target.tls, subprotocol=MBWS, largest=LARGEST, authorization=target.authorization
        )

    async def _connect(self, socket: ClientSocket, session: MbwsSession) -> list[str | bytes]:
        """Connect, or reconnect (MBWS-25), and continue from the state of both sides. Returns the messages that came
        with the reply.
        """
        numbers = (self._received, *self._outgoing.bounds) if self.name else ()
        await socket.send(session.to_message(Connect(self.name, numbers)))
        if not (messages := await socket.messages()):
            raise ConnectionResetError("the door has closed the WebSocket")
        reply = session.received(messages[0])
        assert isinstance(reply, Connect), "the session's table"
        if not reply.name:
            raise Malformed("the reply to a Connect has no name")
        if reply.name == self.name:
            if len(reply.numbers) != 1:
                raise Malformed(f"the reply to a reconnect has 1 number, not {len(reply.numbers)}")
            self._settle(*reply.numbers)
            self._written = self._outgoing.acked
        else:  # a new connection, possibly instead of the requested one (MBWS-32)
            self.name = reply.name
            self.beginnings += 1
            self._restart_sequences()
        settle(self.opened)
        return messages[1:]

    async def _handle_frames(self, session: MbwsSession, frames: Sequence[str | bytes]) -> None:
        """Handle messages that arrived together."""
        messages: list[Message] = []
        for frame in frames:
            match session.received(frame):
                case Message() as message:
                    messages.append(message)
                case Acknowledge(sequence):
                    self._settle(sequence)
        self._received += len(messages)
        if messages and self._handle is not None:
            await self._handle(messages, self.beginnings)

    async def _send_loop(self, socket: ClientSocket, session: MbwsSession) -> None:
        """Send everything unsent, then new messages and acknowledgements, until the end."""
        try:
            while True:
                self._wake.clear()
                while self._written < self._outgoing.sent:
                    await socket.send_all(self._next_messages())
                if self._consumed > self._acked:
                    self._acked = self._consumed
                    await socket.send(session.to_message(Acknowledge(self._acked)))
                await self._wake.wait()
        except ConnectionResetError:
            pass  # `_session` handles it

    def _next_messages(self) -> list[bytes | str]:
        """Take the messages of the next write: from now on they count as sent."""
        messages: list[bytes | str] = []
        octets = 0
        for entry in islice(self._outgoing.entries, self._written - self._outgoing.acked, None):
            messages.append(entry.data)
            octets += entry.size
            if octets >= WS_WRITE:
                break
        self._written += len(messages)
        return messages

    def _settle(self, sequence: int) -> None:
        if sequence > self._written:
            raise Malformed(f"message {sequence} is acknowledged, {self._written} is the last that was sent")
        settled = self._outgoing.acknowledged(sequence)
        for entry in settled:
            settle(entry.settled)
        self._settled += len(settled)
        self._settled_more.set()
        self._release(len(settled), sum(entry.size for entry in settled))

    def _is_recoverable(self, socket: ClientSocket) -> bool:
        """Whether the connection can be recovered; otherwise it was closed with its WebSocket (MBWS-11)."""
        close = socket.close_received
        if close is None:
            return True
        if close.code not in _GOES_ON:
            raise Refused(400, "closed", f"{self._target.url} closed with {close.code}: {close.reason}")
        self.name = ""
        return False

    # --- the end --------------------------------------------------------------------------------------------

    def fail(self, error: MtlError) -> None:
        """End the line with an error for all waiting tasks. Only the first call counts."""
        self.error = self.error or error
        for entry in self._outgoing.rewind(self._outgoing.acked):
            settle(entry.settled, self.error)
            self._release(1, entry.size)
        self._settled_more.set()
        settle(self.opened, self.error)
        if self._ended is not None:
            self._ended(self.error)

    async def close(self) -> None:
        """Close the connection, and drop unsent messages. Harmless when repeated."""
        self._wake.set()
        await asyncio.sleep(0)  # the last acknowledgement is sent before the Close
        if self._socket is not None:
            await self._socket.close()
        self.fail(Closed("the connection is closed"))
        self._task.cancel()
        await asyncio.wait({self._task})
