"""One peer of the MicroMessage2 door: its messages in order to the broker, and its subscriptions to it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from mtl.client.consuming import QueuedContent
from mtl.client.contents import Content
from mtl.client.reader_part import Start
from mtl.doors.limits import DOOR_STOP_S, MM2_HANDSHAKE_S, MM2_READ, MM2_SUBSCRIPTIONS, MM2_WINDOW
from mtl.doors.micromessage.codec import CommandFrame
from mtl.doors.micromessage.contents import as_json, is_topic, resource
from mtl.doors.micromessage.filters import Filter, decode_filter
from mtl.doors.micromessage.negotiation import JSON, ExtensionOffer
from mtl.doors.micromessage.property_cache import PropertyCache, TableCache
from mtl.doors.micromessage.session import (
    Acked,
    CommandArrived,
    Ended,
    Event,
    MessageArrived,
    MicroRole,
    MicroSession,
    MicroState,
)
from mtl.doors.peer_messages import DoorRefusal, peer_message
from mtl.doors.peer_session import PeerSession, Subscription
from mtl.doors.properties import sequence_of
from mtl.doors.runs import ContentRun
from mtl.errors import Closed, FieldError, MtlError

log = logging.getLogger("mtl.doors.micromessage")

DESTINATION, FILTER, FROM = "destination", "filter", "from"


class MicroPeer:
    """Lives from a peer's first octets (`first`) to the end of its connection. `gone` is called once, at the end."""

    def __init__(
        self,
        peer: PeerSession,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        offer: ExtensionOffer,
        identity: str,
        gone: Callable[[], None],
        first: bytes = b"",
    ) -> None:
        self._peer = peer
        self._arriving = peer.arriving()
        self._first = first
        self._reader = reader
        self._writer = writer
        self._report_end = gone
        self._session = MicroSession(MicroRole.SERVER, offer, identity)
        self._run: ContentRun | None = None
        self._tables = TableCache()
        self._under_way: deque[tuple[asyncio.Future[None], int]] = deque()
        self._unacknowledged: deque[Content] = deque()
        self._subscriptions: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()
        self._room = asyncio.Event()
        self._ack_scheduled: asyncio.Handle | None = None
        self._stopped_reading = False
        self._ended = False
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(MM2_HANDSHAKE_S, self._handle_timeout)
        self._work = loop.create_task(self._process())

    # --- messages of the peer -------------------------------------------------------------------------------

    async def _process(self) -> None:
        try:
            while not self._ended and (data := await self._arriving.read(self._read())):
                for event in self._session.received(data):
                    if isinstance(event, MessageArrived):
                        await self._collect(event)
                    else:
                        await self._publish()  # earlier messages
                        await self._handle_event(event)
                await self._publish()
                await self._flush_and_drain()
                await self._arriving.reserve(self._session.incomplete)
            if self._under_way:
                await asyncio.wait({settled for settled, _ in self._under_way})  # the peer may still read
                self._ack()
        except OSError:
            pass  # the connection is lost
        except Exception as failed:  # noqa: BLE001 a bug must not leave a peer without an answer
            self.fail(peer_message(failed))
        self.end()

    async def _read(self) -> bytes:
        first, self._first = self._first, b""
        return first or await self._reader.read(MM2_READ)

    async def _handle_event(self, event: Event) -> None:
        """Handle an event. Raises errors that are answered with ERROR."""
        match event:
            case Acked(count):
                self._handle_acknowledgement(count)
            case CommandArrived(command):
                await self._handle_command(command)
            case Ended():
                self.end()
            case _:
                self._patience.cancel()

    async def _collect(self, message: MessageArrived) -> None:
        """Collect messages to one resource that arrived together, to publish them together."""
        assert self._session.agreed is not None
        name, table = resource(message.destination), self._tables.of(message, self._session.agreed)
        run = self._run
        if run is not None and (run.resource != name or not run.fits(message.payload, table)):
            await self._publish()
            run = None
        if run is None:
            run = self._run = ContentRun(name)
        run.add(message.payload, table)

    async def _publish(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            settled = await self._peer.publish_run(run)
            self._under_way.append((settled, len(run.bodies)))
            settled.add_done_callback(self._handle_result)

    def _handle_result(self, settled: asyncio.Future[None]) -> None:
        """Handle a Confirm or a failure; all confirmed messages are acknowledged together."""
        failed = None if settled.cancelled() else settled.exception()
        if failed is not None:
            self.fail(peer_message(failed))
        elif self._ack_scheduled is None:
            self._ack_scheduled = asyncio.get_running_loop().call_soon(self._ack)

    def _ack(self) -> None:
        self._ack_scheduled = None
        count = 0
        while self._under_way and _is_confirmed(self._under_way[0][0]):
            count += self._under_way.popleft()[1]
        self._session.ack(count)
        self._flush()

    # --- subscriptions --------------------------------------------------------------------------------------

    async def _handle_command(self, command: CommandFrame) -> None:
        """Handle SUBSCRIBE and UNSUBSCRIBE (MM2-55); a repetition changes nothing."""
        given = dict(command.arguments)
        destination = given.pop(DESTINATION, "")
        if not destination or command.name not in {"subscribe", "unsubscribe"}:
            raise DoorRefusal(
                400, "bad-command", f"{command.name[:40]!r} with {DESTINATION}=... is not supported"
            )
        if command.name == "unsubscribe":
            task = self._subscriptions.pop(destination, None)
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
            return
        keep, start = decode_filter(given.pop(FILTER, "")), given.pop(FROM, None)
        if given or (not is_topic(destination) and (keep.terms or start is not None)):
            raise DoorRefusal(400, "bad-command", f"{FILTER} and {FROM} of a topic are the only parameters")
        if destination in self._subscriptions:
            return
        if len(self._subscriptions) >= MM2_SUBSCRIPTIONS:
            raise DoorRefusal(413, "too-many", f"{MM2_SUBSCRIPTIONS} subscriptions are the most")
        name = resource(destination)
        subscription = (
            await self._peer.subscribe(name, _parse_start(start), end=self._end_slow)
            if is_topic(destination)
            else await self._peer.consume(name, self._window, end=self._end_slow)
        )
        delivering = self._deliver(destination, subscription, keep)
        self._subscriptions[destination] = asyncio.create_task(delivering)

    async def _deliver(self, destination: str, subscription: Subscription, keep: Filter) -> None:
        """Deliver contents at the pace of the window and the peer."""
        assert self._session.agreed is not None
        cache = PropertyCache(keep, self._session.agreed)
        try:
            while contents := await subscription.some():
                await self._send_contents(destination, contents, cache)
        except OSError:
            self.end()
        except Exception as failed:  # noqa: BLE001 a bug must not leave a peer without an answer
            self.fail(peer_message(failed))
        finally:
            await subscription.close()

    async def _send_contents(
        self, destination: str, contents: Sequence[Content], cache: PropertyCache
    ) -> None:
        """Deliver in batches of as many as there is room for, so that subscriptions take turns."""
        session = self._session
        assert session.agreed is not None
        left = deque(contents)
        while left:
            async with self._turn:
                while not session.room:
                    self._room.clear()
                    await self._room.wait()
                while left and session.room:
                    content = left.popleft()
                    try:
                        encoded = cache.of(content)
                        if encoded is not None:
                            body = as_json(content.body) if JSON in session.agreed else content.body
                            session.send(destination, body, *encoded)
                            self._unacknowledged.append(content)
                    except FieldError as unfit:
                        _skip_content(destination, content, unfit)
                if session.agreed.window is None:
                    self._handle_acknowledgement(len(self._unacknowledged))
                await self._flush_and_drain()

    @property
    def _window(self) -> int:
        """How many contents of a queue may be unacknowledged: the window of the peer. Without acknowledgements
        contents count as accepted when they are sent.
        """
        assert self._session.agreed is not None
        return self._session.agreed.window or MM2_WINDOW

    def _handle_acknowledgement(self, count: int) -> None:
        """Handle the acknowledgement of these contents: those of queues are accepted (MM2-64)."""
        for _ in range(count):
            content = self._unacknowledged.popleft()
            if isinstance(content, QueuedContent):
                try:
                    content.confirm()
                except Closed:
                    pass  # unsubscribed meanwhile: it went back to the queue
        self._room.set()

    # --- answers to the peer --------------------------------------------------------------------------------

    def _flush(self) -> None:
        data = self._session.to_send()
        if data and not self._writer.is_closing():
            self._writer.write(data)

    async def _flush_and_drain(self) -> None:
        self._flush()
        await self._writer.drain()

    def _end_slow(self) -> None:
        self.fail("you receive contents too slowly; subscribe to less, or connect again")

    def _handle_timeout(self) -> None:
        if self._session.state is not MicroState.OPEN:
            self.fail(f"no handshake within {MM2_HANDSHAKE_S:g} s")

    # --- the end --------------------------------------------------------------------------------------------

    def fail(self, text: str) -> None:
        """Send ERROR and end: the protocol has no other negative answer."""
        self._session.fail(text)
        self.end()

    def stop_reading(self) -> None:
        """Stop reading; contents taken in are still acknowledged."""
        self._stopped_reading = True
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
        if not self._stopped_reading:
            self._return_queue_contents()
        for task in (self._work, *self._subscriptions.values()):
            if task is not asyncio.current_task():
                task.cancel()
        self._ack()
        self._writer.close()
        asyncio.get_running_loop().call_later(DOOR_STOP_S, self._writer.transport.abort)
        self._arriving.end()
        self._peer.end()
        self._report_end()

    def _return_queue_contents(self) -> None:
        """Unacknowledged queue contents count as delivered: they are delivered again, up to the queue's limit."""
        while self._unacknowledged:
            content = self._unacknowledged.popleft()
            if isinstance(content, QueuedContent):
                with suppress(MtlError):  # the broker is away, or it was unsubscribed meanwhile: it went back
                    content.reject(recycle=True)


def _skip_content(destination: str, content: Content, unfit: FieldError) -> None:
    """Handle a content that no message can express: in a queue it becomes a dead letter, in a topic it is left out.
    An ERROR would end the connections of all peers that get it, one after the other.
    """
    if isinstance(content, QueuedContent):
        log.warning("%s: content %d becomes a dead letter: %s", destination, content.sequence, unfit)
        try:
            content.reject(reason=str(unfit))
        except Closed:
            pass  # unsubscribed meanwhile: it went back to the queue
    else:
        log.warning("%s: content %d is skipped: %s", destination, content.sequence, unfit)


def _is_confirmed(settled: asyncio.Future[None]) -> bool:
    """Whether the broker confirmed it. A failure is reported soon; until then no later message is acknowledged."""
    return settled.done() and not settled.cancelled() and settled.exception() is None


def _parse_start(given: str | None) -> Start:
    """The start of a topic's subscription; by default from now on. Raises `Refused`."""
    if given is None or given == "latest":
        return "latest"
    if given == "earliest":
        return "earliest"
    sequence = sequence_of(given)
    if sequence is not None:
        return sequence
    raise DoorRefusal(400, "bad-command", f"{FROM} is earliest, latest or a sequence above 0")
