"""One peer of the MicroMessage2 door: its messages in order to the broker, and its subscriptions to it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from mtl.client.consumer import QueuedContent
from mtl.client.contents import Content
from mtl.client.feed import Start
from mtl.doors.bridge import Bridge, Subscription
from mtl.doors.limits import DOOR_STOP_S, MM2_HANDSHAKE_S, MM2_READ, MM2_SUBSCRIPTIONS
from mtl.doors.micromessage.codec import Command
from mtl.doors.micromessage.contents import as_json, from_message, is_topic, resource, to_message
from mtl.doors.micromessage.filters import Filter, decode_filter
from mtl.doors.micromessage.negotiation import JSON, Offer
from mtl.doors.micromessage.session import Acked, Arrived, Asked, Ended, Event, Role, Session, State
from mtl.doors.properties import SEQUENCE, from_texts
from mtl.doors.running import failure
from mtl.errors import Closed, Refused

DESTINATION, FILTER, FROM = "destination", "filter", "from"


class Peer:
    """Lives from a connection's begin to its end. `gone` is called once, at the end."""

    def __init__(
        self,
        bridge: Bridge,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        offer: Offer,
        identity: str,
        gone: Callable[[], None],
    ) -> None:
        self._bridge = bridge
        self._reader = reader
        self._writer = writer
        self._gone = gone
        self._session = Session(Role.SERVER, offer, identity)
        self._under_way: deque[asyncio.Future[None]] = deque()
        self._in_hand: deque[Content] = deque()
        self._subscriptions: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()
        self._room = asyncio.Event()
        self._acking: asyncio.Handle | None = None
        self._ended = False
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(MM2_HANDSHAKE_S, self._late)
        self._work = loop.create_task(self._worked())

    # --- what it says ---------------------------------------------------------------------------------------

    async def _worked(self) -> None:
        try:
            while not self._ended and (data := await self._reader.read(MM2_READ)):
                for event in self._session.received(data):
                    await self._handled(event)
                await self._flushed()
            if self._under_way:
                await asyncio.wait(set(self._under_way))  # it may still listen
                self._ack()
        except OSError:
            pass  # the connection is lost
        except Exception as failed:  # noqa: BLE001 a bug must not leave a peer without an answer
            self.fail(failure(failed))
        self.end()

    async def _handled(self, event: Event) -> None:
        """Raises what is to be answered with ERROR."""
        match event:
            case Arrived():
                await self._publish(event)
            case Acked(count):
                self._acked(count)
            case Asked(command):
                await self._asked(command)
            case Ended():
                self.end()
            case _:
                self._patience.cancel()

    async def _publish(self, message: Arrived) -> None:
        assert self._session.agreed is not None
        properties = from_texts(from_message(message, self._session.agreed).items())
        settled = await self._bridge.publish(resource(message.destination), message.payload, properties)
        self._under_way.append(settled)
        settled.add_done_callback(self._settled)

    def _settled(self, settled: asyncio.Future[None]) -> None:
        """The broker confirmed one, or not; acknowledged are all that are, together."""
        failed = None if settled.cancelled() else settled.exception()
        if failed is not None:
            self.fail(failure(failed))
        elif self._acking is None:
            self._acking = asyncio.get_running_loop().call_soon(self._ack)

    def _ack(self) -> None:
        self._acking = None
        count = 0
        while self._under_way and _fine(self._under_way[0]):
            self._under_way.popleft()
            count += 1
        self._session.ack(count)
        self._flush()

    # --- subscriptions --------------------------------------------------------------------------------------

    async def _asked(self, command: Command) -> None:
        """SUBSCRIBE and its opposite (MM2-55); again changes nothing."""
        given = dict(command.arguments)
        destination = given.pop(DESTINATION, "")
        if not destination or command.name not in {"subscribe", "unsubscribe"}:
            raise Refused(
                400, "bad-command", f"{command.name[:40]!r} with {DESTINATION}=... is not understood"
            )
        if command.name == "unsubscribe":
            task = self._subscriptions.pop(destination, None)
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
            return
        keep, start = decode_filter(given.pop(FILTER, "")), given.pop(FROM, None)
        if given or (not is_topic(destination) and (keep.terms or start is not None)):
            raise Refused(400, "bad-command", f"{FILTER} and {FROM} of a topic are all that can be said")
        if destination in self._subscriptions:
            return
        if len(self._subscriptions) >= MM2_SUBSCRIPTIONS:
            raise Refused(413, "too-many", f"{MM2_SUBSCRIPTIONS} subscriptions are the most")
        name = resource(destination)
        subscription = (
            await self._bridge.subscribe(name, _start(start))
            if is_topic(destination)
            else await self._bridge.consume(name)
        )
        delivering = self._delivered(destination, subscription, keep)
        self._subscriptions[destination] = asyncio.create_task(delivering)

    async def _delivered(self, destination: str, subscription: Subscription, keep: Filter) -> None:
        """Hand over what comes, as the window and the peer's reading allow."""
        assert self._session.agreed is not None
        agreed = self._session.agreed
        try:
            while (content := await subscription.next()) is not None:
                properties, kind = to_message(content.properties, agreed)
                if not keep.matches(properties):
                    continue
                body = as_json(content.body) if JSON in agreed else content.body
                async with self._turn:
                    while not self._session.room:
                        self._room.clear()
                        await self._room.wait()
                    self._session.send(destination, body, {**properties, SEQUENCE: content.sequence}, kind)
                    self._in_hand.append(content)
                    if agreed.window is None:
                        self._acked(1)
                    await self._flushed()
        except OSError:
            self.end()
        except Exception as failed:  # noqa: BLE001 a bug must not leave a peer without an answer
            self.fail(failure(failed))
        finally:
            await subscription.close()

    def _acked(self, count: int) -> None:
        """The peer has these: what is of a queue is done (MM2-64)."""
        for _ in range(count):
            content = self._in_hand.popleft()
            if isinstance(content, QueuedContent):
                try:
                    content.confirm()
                except Closed:
                    pass  # unsubscribed meanwhile: it went back to the queue
        self._room.set()

    # --- what it is told ------------------------------------------------------------------------------------

    def _flush(self) -> None:
        data = self._session.to_send()
        if data and not self._writer.is_closing():
            self._writer.write(data)

    async def _flushed(self) -> None:
        self._flush()
        await self._writer.drain()

    def _late(self) -> None:
        if self._session.state is not State.OPEN:
            self.fail(f"no handshake within {MM2_HANDSHAKE_S:g} s")

    # --- the end --------------------------------------------------------------------------------------------

    def fail(self, text: str) -> None:
        """Say ERROR and end: the protocol has no other negative answer."""
        self._session.fail(text)
        self.end()

    def rest(self) -> None:
        """Read no more; what was taken in is still acknowledged."""
        self._work.cancel()

    async def stop(self) -> None:
        """End, and wait until everything has ended."""
        tasks = {self._work, *self._subscriptions.values()}
        self.end()
        await asyncio.wait(tasks)

    def end(self) -> None:
        """Stop everything, at once. Harmless when repeated."""
        if self._ended:
            return
        self._ended = True
        self._patience.cancel()
        for task in (self._work, *self._subscriptions.values()):
            if task is not asyncio.current_task():
                task.cancel()
        self._ack()
        self._writer.close()
        asyncio.get_running_loop().call_later(DOOR_STOP_S, self._writer.transport.abort)
        self._gone()


def _fine(settled: asyncio.Future[None]) -> bool:
    """Whether the broker has it. One that failed is told soon, and until then nothing behind it is acknowledged."""
    return settled.done() and not settled.cancelled() and settled.exception() is None


def _start(given: str | None) -> Start:
    """Where a topic's subscription begins: from now on, or what is said. Raises `Refused`."""
    if given is None or given == "latest":
        return "latest"
    if given == "earliest":
        return "earliest"
    if given.isascii() and given.isdecimal() and len(given) < 19 and int(given):
        return int(given)
    raise Refused(400, "bad-command", f"{FROM} is earliest, latest or a sequence above 0")
