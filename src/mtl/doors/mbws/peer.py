"""One WebSocket at the MBWS door: sends its client's messages to the broker and the contents of its addresses back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress

from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from mtl.doors.bridge import Bridge, Subscription
from mtl.doors.failing import Whom
from mtl.doors.limits import MBWS_CONNECT_S, WS_CLOSE_S
from mtl.doors.mbws.asking import Asked, parse
from mtl.doors.mbws.codec import Acknowledge, Connect, Frame, Message, NotText
from mtl.doors.mbws.intake import OURS, MbwsIntake
from mtl.doors.mbws.keeping import Keeper
from mtl.doors.mbws.kept import CONNECTIONS, restore
from mtl.doors.mbws.recovery import Client, Connections, KnownConnection, new_name
from mtl.doors.mbws.session import MbwsSession, MbwsState, Role
from mtl.doors.websocket import Socket, Violation
from mtl.errors import Malformed, Unreachable
from mtl.limits import MAX_CONTENT


class PeerLine(KnownConnection):
    """A connection with its state at the door. `holder` is its current or last session."""

    def __init__(
        self, name: str, client: Client, asked: Asked, bridge: Bridge, holder: MbwsPeer, received: int = 0
    ) -> None:
        super().__init__(name, client, asked.addresses)
        self.intake = MbwsIntake(bridge, received)
        self.holder = holder
        self.turn = asyncio.Lock()
        """Serializes reconnects: a client may send two at once."""
        self.stored = False
        """Whether it was stored, or is to be. It is stored once, as another door may have claimed it by then."""


class MbwsPeer:
    """Handles one WebSocket during `serve`. `retain` gets a connection that waits for its client."""

    def __init__(
        self,
        socket: Socket,
        bridge: Bridge,
        connections: Connections[PeerLine],
        keeper: Keeper,
        retain: Callable[[PeerLine], Awaitable[None]],
    ) -> None:
        self._socket = socket
        self._bridge = bridge
        self._connections = connections
        self._keeper = keeper
        self._retain = retain
        self._whom = Whom.at(socket.remote_address, socket.user)
        self._client = Client(socket.origin, socket.user)
        self._asked = Asked()
        self._session: MbwsSession
        self._line: PeerLine | None = None
        self._acked = 0
        self._room = asyncio.Event()
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None
        self._superseded = False
        self._left = asyncio.Event()

    async def serve(self) -> None:
        """Until the WebSocket is over, or `rest`."""
        patience = asyncio.get_running_loop().call_later(MBWS_CONNECT_S, self._late)
        try:
            await self._listened()
        except Exception as failed:  # noqa: BLE001 a bug must not leave a peer without an answer
            self._end(failed)
        finally:
            patience.cancel()
            await self._stopped()
            self._left.set()
        await self._concluded()

    def rest(self) -> None:
        """Stop receiving. Messages taken in are acknowledged, and the client can reconnect."""
        self._socket.rest()

    async def give_way(self) -> None:
        """End at once: another session took the connection over."""
        self._superseded = True
        self._socket.drop()
        await self._left.wait()

    # --- what it says ---------------------------------------------------------------------------------------

    async def _listened(self) -> None:
        socket = self._socket
        assert socket.request is not None
        assert socket.subprotocol is not None
        self._asked = asked = parse(socket.request.path)
        if CONNECTIONS in asked.addresses:
            raise OURS
        self._session = MbwsSession(Role.SERVER, socket.subprotocol, asked.kind, characters=asked.characters)
        if self._session.light:
            await self._begin(self._new_line())
        while self._error is None and (messages := await socket.messages()):
            await self._heard(messages)

    async def _heard(self, said: Iterable[str | bytes]) -> None:
        """Handle messages that arrived together; those before an invalid one count."""
        together: list[Message] = []
        try:
            for one in said:
                frame = self._frame(one)
                if isinstance(frame, Message):
                    together.append(frame)
                elif frame is not None:
                    together = await self._taken(together)
                    await self._handled(frame)
        finally:
            await self._taken(together)

    def _frame(self, said: str | bytes) -> Frame | None:
        try:
            frame = self._session.received(said)
        except NotText as wrong:
            raise Violation(CloseCode.INVALID_DATA, str(wrong)) from wrong
        if isinstance(frame, Message) and len(frame.body) > MAX_CONTENT:
            raise Violation(CloseCode.MESSAGE_TOO_BIG, f"a body has {MAX_CONTENT} octets at most")
        return frame

    async def _taken(self, messages: list[Message]) -> list[Message]:
        """Send the collected messages; returns the empty list that is left."""
        if messages:
            assert self._line is not None
            await self._line.intake.take(messages)
        return []

    async def _handled(self, frame: Connect | Acknowledge) -> None:
        if isinstance(frame, Connect):
            await self._connected(frame)
        else:
            assert self._line is not None
            self._line.outgoing.acknowledged(frame.sequence)
            self._room.set()

    # --- connections ----------------------------------------------------------------------------------------

    async def _connected(self, asked: Connect) -> None:
        """Begin a new connection, or continue the named one if that is possible (MBWS-23, 24)."""
        if asked.name and len(asked.numbers) != 3:
            raise Malformed(f"a reconnect has 3 numbers, not {len(asked.numbers)}")
        if self._line is not None:
            await self._stopped()
            self._connections.clear(self._line)
        line = self._connections.find(asked.name, self._client) or await self._kept(asked.name)
        if line is not None and await self._recovered(line, asked):
            numbers: tuple[int, ...] = (line.intake.confirmed,)
        else:
            line, numbers = self._new_line(), ()
            self._connections.add(line)
        await self._begin(line, Connect(line.name, numbers))

    def _new_line(self) -> PeerLine:
        return PeerLine(new_name(), self._client, self._asked, self._bridge, self)

    async def _kept(self, name: str) -> PeerLine | None:
        """The connection, if a door stored it. Concurrent reconnects find the same one."""
        if not name:
            return None
        async with self._keeper.turn:
            line = self._connections.find(name, self._client)
            if line is None and (record := await self._keeper.claim(name, self._client)) is not None:
                line = PeerLine(name, self._client, self._asked, self._bridge, self, record.received)
                restore(record, line)
                self._connections.add(line)
            return line

    async def _recovered(self, line: PeerLine, asked: Connect) -> bool:
        """Take a connection over, from a session that may not have noticed its loss yet; False: it is over."""
        async with line.turn:
            if line.holder is not self:
                await line.holder.give_way()
            line.holder = self
            self._connections.recovered(line)
            # SSLR has to count the messages under way, or the client would repeat them.
            await line.intake.settled()
        if line.intake.error is None and line.goes_on(asked, line.intake.confirmed):
            line.resume(asked.numbers[0])
            return True
        self._connections.clear(line)
        return False

    async def _begin(self, line: PeerLine, reply: Connect | None = None) -> None:
        """Begin the subscriptions, at the latest from now on; then send the reply."""
        self._line = line
        self._acked = line.intake.confirmed
        subscriptions: list[tuple[str, Subscription]] = []
        try:
            for address, place in line.reading.items():
                subscription = await self._bridge.subscribe(
                    self._whom, address, place.start, place.incarnation
                )
                subscriptions.append((address, subscription))
                position, place.incarnation = subscription.place
                assert position is not None
                place.start = position
            if reply is not None:
                await self._socket.send(self._session.say(reply))
        except BaseException:  # also when cancelled: the subscriptions have no other owner yet
            for _, subscription in subscriptions:
                await subscription.close()
            raise
        self._do(self._acknowledging(line))
        for address, subscription in subscriptions:
            self._do(self._delivering(line, address, subscription))

    async def _acknowledging(self, line: PeerLine) -> None:
        """Acknowledge messages as they become durable, as many at once as there are (MBWS-18, 19)."""
        while line.intake.error is None:
            await line.intake.news.wait()
            line.intake.news.clear()
            await self._acknowledge(line)
        raise line.intake.error

    async def _acknowledge(self, line: PeerLine) -> None:
        if line.intake.confirmed > self._acked and not self._session.light:
            self._acked = line.intake.confirmed
            await self._socket.send(self._session.say(Acknowledge(self._acked)))

    async def _delivering(self, line: PeerLine, address: str, subscription: Subscription) -> None:
        """Send an address's contents, at the pace of the window and the client."""
        to, table = self._session.to_messages(address), None
        try:
            while contents := await subscription.some():
                messages = []
                for content in contents:
                    if content.table != table:
                        to.alike(content.properties)
                        table = content.table
                    messages.append(to.message(content.body, content.sequence))
                at = 0
                while at < len(messages):
                    async with self._turn:
                        end = at + await self._room_for(line, len(messages) - at)
                        if not self._session.light:
                            line.sent(address, [content.sequence for content in contents[at:end]])
                        await self._socket.send_all(messages[at:end])
                    at = end
        finally:
            await subscription.close()

    async def _room_for(self, line: PeerLine, wanted: int) -> int:
        """Wait for room; returns how many of `wanted` messages may be sent now."""
        if self._session.light:
            return wanted
        while not line.outgoing.room:
            self._room.clear()
            await self._room.wait()
        return min(wanted, line.outgoing.room)

    # --- the end --------------------------------------------------------------------------------------------

    def _do(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._end(error)

    def _late(self) -> None:
        if self._session.state is MbwsState.WAITING:
            self._end(Malformed(f"no Connect within {MBWS_CONNECT_S:g} s"))

    def _end(self, error: BaseException) -> None:
        """Stop receiving because of an error."""
        if self._error is None and not isinstance(error, ConnectionClosed):
            self._error = error
        self._socket.rest()

    async def _stopped(self) -> None:
        """Deliver and acknowledge nothing more."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _concluded(self) -> None:
        """Close the connection with its WebSocket, or let it wait for its client (MBWS-11, 21)."""
        line, error = self._line, self._error
        if self._superseded:
            self._socket.drop()
        elif line is None:
            await self._socket.refuse(error or Malformed("no Connect"))
        elif error is None and self._socket.closed_by_peer:
            self._connections.clear(line)
            await line.intake.settled()
            if line.intake.error is None:
                self._socket.conclude()
            else:
                self._socket.drop()
        elif error is None or (isinstance(error, Unreachable) and line.intake.error is None):
            # The WebSocket was lost, the door stops or the broker is unreachable: none of these is a Close.
            self._connections.failed(line)
            await line.intake.settled()
            with suppress(ConnectionClosed, TimeoutError):
                async with asyncio.timeout(WS_CLOSE_S):
                    await self._acknowledge(line)
            if not self._session.light:
                await self._retain(line)
            await self._socket.vanish()
        else:
            self._connections.clear(line)
            await self._socket.refuse(error)
