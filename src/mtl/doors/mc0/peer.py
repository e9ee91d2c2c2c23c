"""One peer of the mc0 door: its messages one after the other, its subscriptions, and its waiting answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from mtl.doors.limits import MC0_BACKLOG, MC0_RETRY_S, MC0_STUCK_S, MC0_TOPICS
from mtl.doors.mc0.codec import BadMessage, Mc0Message, Verb, decode, encode, error, ok
from mtl.doors.mc0.contents import PutTables, SubscriptionFrames
from mtl.doors.mc0.session import HeartbeatAction, Leave, Mc0Session, Mc0State, Put, Sub, Unsub
from mtl.doors.peer_messages import DoorRefusal, peer_message
from mtl.doors.peer_session import PeerSession, Subscription
from mtl.doors.runs import ContentRun
from mtl.errors import MtlError
from mtl.limits import ARRIVAL_OVERHEAD
from mtl.net.router import SendOutcome


class SendFrames(Protocol):
    """Sends to one peer; never waits."""

    def __call__(self, frames: list[bytes]) -> SendOutcome:
        """Send the frames of one message."""


def _ignore() -> None:
    """Nothing was counted."""


class Batch(NamedTuple):
    """Messages that arrived together, none at the end of the connection. `handled` is called after their turn."""

    messages: list[list[bytes]]
    handled: Callable[[], None] = _ignore


class Mc0Peer:
    """Lives from a connection's first message until its end. A DISCONNECT resets it.

    `inbox` takes its messages; the task that fills it bounds their octets. `gone` is called once, at the end, and
    `given_up` when the peer was silent for too long. `absent`: its previous connection was closed for silence, and the
    peer does not know.
    """

    def __init__(
        self,
        peer: PeerSession,
        send: SendFrames,
        clock: Callable[[], float],
        gone: Callable[[], None],
        given_up: Callable[[], None],
        *,
        absent: bool,
    ) -> None:
        self.inbox: asyncio.Queue[Batch] = asyncio.Queue()
        self._peer = peer
        self._send = send
        self._clock = clock
        self._report_end = gone
        self._free_identity = given_up
        self._session = Mc0Session(clock(), Mc0State.ABSENT if absent else Mc0State.IMPLICIT)
        self._delimited = False
        self._tables = PutTables()
        self._run: ContentRun | None = None
        self._ids: list[str | None] = []
        self._backlog: deque[list[bytes]] = deque()
        self._backlog_octets = 0
        self._subscriptions: dict[str, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._task = asyncio.create_task(self._process())
        self._full_since: float | None = None
        self._busy = False
        self._lost = False
        self._ended = False

    # --- messages of the peer -------------------------------------------------------------------------------

    async def _process(self) -> None:
        while not self._ended:
            together = await self.inbox.get()
            if not together.messages:
                self.end()
                return
            self._busy = True
            try:
                for frames in together.messages:
                    await self._handle_frames(frames)
                await self._publish()
            finally:
                together.handled()
            self._busy = False
            self._set_timer()

    async def _handle_frames(self, frames: list[bytes]) -> None:
        try:
            message, self._delimited = decode(frames)
        except BadMessage as bad:
            self._answer(error(str(bad), bad.id))
            return
        try:
            await self._handle_message(message)
        except Exception as failed:  # noqa: BLE001 a bug must not leave a peer without an answer
            self._answer(error(peer_message(failed), message.id))

    async def _handle_message(self, message: Mc0Message) -> None:
        """Execute a command. Raises errors that are answered with ERROR (MC0-10)."""
        event = self._session.received(message, self._clock())
        if isinstance(event, Put):
            await self._collect(event, message.id)
            return
        await self._publish()  # earlier messages
        if isinstance(event, Sub):
            for topic in event.topics:
                await self._subscribe(topic)
        elif isinstance(event, Unsub):
            for topic in event.topics:
                await self._unsubscribe(topic)
        if message.id is not None and message.verb not in {Verb.OK, Verb.ERROR}:
            self._answer(ok(message.id))
        if isinstance(event, Leave):
            self._forget()
            self._session = Mc0Session(self._clock())

    async def _collect(self, put: Put, id: str | None) -> None:  # noqa: A002 it is the header's name
        """Collect messages to one topic that arrived together, to publish them together."""
        body, table = self._tables.of(put)
        run = self._run
        if run is not None and (run.resource != put.topic or not run.fits(body, table)):
            await self._publish()
            run = None
        if run is None:
            run = self._run = ContentRun(put.topic)
        run.add(body, table)
        self._ids.append(id)

    async def _publish(self) -> None:
        """Publish the collected messages. Their answers follow the Confirm; later messages do not wait for it."""
        run, self._run = self._run, None
        ids, self._ids = self._ids, []
        if run is None:
            return
        try:
            settled = await self._peer.publish_run(run)
        except Exception as failed:  # noqa: BLE001 a bug must not leave a peer without an answer
            self._refuse(ids, failed)
        else:
            settled.add_done_callback(partial(self._handle_result, ids))

    def _handle_result(self, ids: list[str | None], settled: asyncio.Future[None]) -> None:
        if settled.cancelled():
            return
        failed = settled.exception()
        if failed is not None:
            self._refuse(ids, failed)
            return
        for id in ids:  # noqa: A001
            if id is not None:
                self._answer(ok(id))

    def _refuse(self, ids: list[str | None], failed: BaseException) -> None:
        words = peer_message(failed)
        for id in ids:  # noqa: A001
            self._answer(error(words, id))

    # --- subscriptions --------------------------------------------------------------------------------------

    async def _subscribe(self, topic: str) -> None:
        """Subscribe from now on; repeatable. After this returns no later PUT is missed."""
        if topic in self._subscriptions or self._lost:
            return
        if len(self._subscriptions) >= MC0_TOPICS:
            raise DoorRefusal(413, "too-many", f"{MC0_TOPICS} subscriptions are the most for one client")
        subscription = await self._peer.subscribe(topic, "latest", end=self._end_slow)
        self._subscriptions[topic] = asyncio.create_task(self._deliver(topic, subscription))

    def _end_slow(self) -> None:
        self._session.mark_silent()
        self._drop_silent()

    async def _unsubscribe(self, topic: str) -> None:
        task = self._subscriptions.pop(topic, None)
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _deliver(self, topic: str, subscription: Subscription) -> None:
        """Deliver contents at the peer's pace. On a failure the peer gets an ERROR, and may SUB again."""
        deliveries = SubscriptionFrames()
        try:
            while self._is_connected() and (contents := await subscription.some()):
                for content in contents:
                    frames = deliveries.frames(content)
                    while not self._try_send([b"", *frames] if self._delimited else frames):
                        if not self._is_connected():
                            return
                        if self._is_stuck():
                            self._end_slow()
                            return
                        await asyncio.sleep(MC0_RETRY_S)
        except MtlError as failed:
            self._subscriptions.pop(topic, None)
            self._answer(error(f"subscription to {topic!r} ended: {peer_message(failed)}"))
        finally:
            await subscription.close()

    # --- answers to the peer --------------------------------------------------------------------------------

    def _answer(self, message: Mc0Message) -> None:
        """Send, or keep until there is room: an answer is never dropped; with too many the peer is disconnected."""
        if self._ended or self._lost:
            return
        frames = encode(message, delimited=self._delimited)
        if not self._try_send(frames) and not self._lost:
            self._backlog.append(frames)
            self._backlog_octets += _octets(frames)
            if self._backlog_octets > MC0_BACKLOG:
                self._end_slow()
            elif self._retry is None:
                self._retry = asyncio.get_running_loop().call_later(MC0_RETRY_S, self._flush)

    def _flush(self) -> None:
        self._retry = None
        backlog, self._backlog = self._backlog, deque()
        while backlog and self._try_send(backlog[0]):
            self._backlog_octets -= _octets(backlog.popleft())
        if self._lost:
            return
        self._backlog = backlog
        if backlog and not self._ended:
            self._retry = asyncio.get_running_loop().call_later(MC0_RETRY_S, self._flush)

    def _try_send(self, frames: list[bytes]) -> bool:
        """Whether the frames were sent."""
        if self._backlog or self._lost:
            return False
        sent = self._send(frames)
        if sent is SendOutcome.FULL:
            self._full_since = self._full_since or self._clock()
            return False
        self._full_since = None
        if sent is SendOutcome.GONE:
            self.connection_lost()
            return False
        self._session.sent(self._clock())
        return True

    def _is_connected(self) -> bool:
        """Whether the peer's connection is still open."""
        return not self._lost

    def _is_stuck(self) -> bool:
        """Whether the queue was full for too long: libzmq may keep the queue of a dead peer."""
        return self._full_since is not None and self._clock() > self._full_since + MC0_STUCK_S

    # --- heartbeats -----------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """Set the timer for the next heartbeat or deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._session.due
        if due is not None and not (self._ended or self._lost):
            delay = max(0.0, due - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self._check_silence)

    def _check_silence(self) -> None:
        """Send NOOP, or close a silent peer. Unprocessed messages count as received: the delay is the door's."""
        if self.inbox.empty() and not self._busy:
            due = self._session.check(self._clock())
            if due is HeartbeatAction.ABSENT:
                self._drop_silent()
                return
            if due is HeartbeatAction.NOOP:
                self._answer(Mc0Message(Verb.NOOP))
                self._session.sent(self._clock())  # also if the NOOP waits in the backlog
            self._set_timer()
        else:
            self._timer = asyncio.get_running_loop().call_later(MC0_RETRY_S, self._check_silence)

    # --- the end --------------------------------------------------------------------------------------------

    def connection_lost(self) -> None:
        """The connection has ended: nothing is sent any more, and the peer's messages are still processed. Harmless
        when repeated.
        """
        self._lost = True
        self._forget()

    def _drop_silent(self) -> None:
        """End the subscriptions of a silent peer; its next message is answered with ERROR."""
        self._forget()
        self._free_identity()

    def _forget(self) -> None:
        """End the subscriptions and drop waiting answers."""
        for task in self._subscriptions.values():
            if task is not asyncio.current_task():
                task.cancel()
        self._subscriptions.clear()
        self._backlog.clear()
        self._backlog_octets = 0

    async def stop(self) -> None:
        """End, and wait until everything has ended."""
        tasks = {self._task, *self._subscriptions.values()}
        self.end()
        await asyncio.wait(tasks)

    def end(self) -> None:
        """Stop everything, at once. Harmless when repeated."""
        if self._ended:
            return
        self._ended = True
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()
        self._forget()
        if asyncio.current_task() is not self._task:
            self._task.cancel()
        while not self.inbox.empty():
            self.inbox.get_nowait().handled()
        self._peer.end()
        self._report_end()


def _octets(frames: list[bytes]) -> int:
    """The memory of an answer that waits."""
    return ARRIVAL_OVERHEAD + sum(map(len, frames))
