"""One peer of the Reactive Streams door: the streams that it subscribed to, and what it publishes."""

from __future__ import annotations

import asyncio
from functools import partial

from mtl.client.contents import Content
from mtl.doors.bridge import Bridge
from mtl.doors.failing import Whom
from mtl.doors.limits import RS_HELLO_S
from mtl.doors.reactive import codec as m
from mtl.doors.reactive.intake import ReactiveIntake
from mtl.doors.reactive.link import ReactiveLink
from mtl.doors.reactive.names import SEQUENCE_OCTETS, Confirmations, ResourceContents, parse
from mtl.doors.reactive.publishing import Demanded
from mtl.doors.reactive.session import Event, ReactiveState
from mtl.doors.reactive.subscribing import Elements
from mtl.doors.telling import told
from mtl.errors import Refused


class ReactivePeer:
    """Lives as long as its connection; `serve` is its life."""

    def __init__(self, link: ReactiveLink, bridge: Bridge, whom: Whom) -> None:
        self._link = link
        self._bridge = bridge
        self._whom = whom
        self._outlets: dict[int, _Outlet] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        """Theirs, and of those that are being closed."""
        self._confirming: dict[int, ReactiveIntake] = {}
        """By the Id of the confirmations, which is the peer's."""
        self._taking: dict[int, ReactiveIntake] = {}
        """The same by the Id of the elements, which is ours."""

    async def serve(self) -> None:
        """Until the connection is over."""
        hello = asyncio.get_running_loop().call_later(RS_HELLO_S, self._impatient)
        try:
            async for event in self._link.events():
                await self._handle(event)
        finally:
            hello.cancel()
            for intake in self._confirming.values():
                intake.end()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            await self._link.shut()

    async def stop(self) -> None:
        """Confirm all contents taken in, then say goodbye."""
        await asyncio.gather(*(intake.stop() for intake in self._confirming.values()))
        await self._link.close("the door closes")

    def _impatient(self) -> None:
        if self._link.session.state is ReactiveState.OPENING:
            self._link.give_up()

    # --- what it says ---------------------------------------------------------------------------------------

    async def _handle(self, event: Event) -> None:
        match event:
            case m.Subscribe():
                self._subscribe(event)
            case Demanded(subscriber):
                if (outlet := self._outlets.get(subscriber)) is not None:
                    outlet.wake.set()
                elif (intake := self._confirming.get(subscriber)) is not None:
                    intake.tell()
            case m.Cancel(subscriber):
                if (outlet := self._outlets.pop(subscriber, None)) is not None:
                    outlet.end()
                elif (intake := self._confirming.pop(subscriber, None)) is not None:
                    intake.end()
            case Elements(subscriber, elements):
                await self._taking[subscriber].take(elements)
            case m.OnComplete(subscriber) | m.OnError(subscriber):
                self._taking[subscriber].no_more()

    def _subscribe(self, asked: m.Subscribe) -> None:
        subscriber = asked.subscriber
        try:
            name = parse(asked.publisher)
            if isinstance(name, Confirmations):
                intake = ReactiveIntake(self._link, self._bridge, name, subscriber, self._confirmed)
                self._confirming[subscriber] = self._taking[intake.elements] = intake
            else:
                outlet = self._outlets[subscriber] = _Outlet(
                    self._link, self._bridge, self._whom, name, subscriber
                )
                self._tasks.add(outlet.task)
                outlet.task.add_done_callback(partial(self._sent, outlet))
        except Refused as refused:
            self._link.session.publishing.fail(subscriber, told(refused))

    def _sent(self, outlet: _Outlet, task: asyncio.Task[None]) -> None:
        """A stream is over; its Id may already belong to another stream."""
        self._tasks.discard(task)
        if self._outlets.get(outlet.subscriber) is outlet:
            del self._outlets[outlet.subscriber]

    def _confirmed(self, intake: ReactiveIntake) -> None:
        """The same for a producer."""
        if self._confirming.get(intake.confirmations) is intake:
            del self._confirming[intake.confirmations]


class _Outlet:
    """One stream of a resource's contents: reads and sends by demand. `wake` is set when there is demand again."""

    def __init__(
        self, link: ReactiveLink, bridge: Bridge, whom: Whom, name: ResourceContents, subscriber: int
    ) -> None:
        self.wake = asyncio.Event()
        self._link = link
        self._bridge = bridge
        self._whom = whom
        self._name = name
        self.subscriber = subscriber
        self.task = asyncio.create_task(self._sent())

    def end(self) -> None:
        """Send nothing more. Harmless when repeated."""
        self.task.cancel()

    async def _sent(self) -> None:
        publishing = self._link.session.publishing
        try:
            subscription = await self._bridge.subscribe(self._whom, self._name.resource, self._name.start)
            try:
                publishing.accept(self.subscriber)
                self._link.flush()
                while True:
                    await self._demand()  # before anything is read
                    elements = list(map(self._element, await subscription.some()))
                    at = 0
                    while at < len(elements):
                        end = at + await self._demand()
                        await self._link.publish_all(self.subscriber, elements[at:end])
                        at = end
            finally:
                await subscription.close()
        except Exception as failed:  # noqa: BLE001 a bug must not leave a subscriber waiting
            publishing.fail(self.subscriber, told(failed))
            self._link.flush()

    async def _demand(self) -> int:
        """Wait for demand; returns how many elements may be published."""
        while not (demand := self._link.session.publishing.demand(self.subscriber)):
            self.wake.clear()
            await self.wake.wait()
        return demand

    def _element(self, content: Content) -> bytes:
        if not self._name.enveloped:
            return content.body
        return content.sequence.to_bytes(SEQUENCE_OCTETS, "big") + content.body
