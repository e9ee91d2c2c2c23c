"""One peer of the Reactive Streams door: the streams that it subscribed to and those that it publishes."""

from __future__ import annotations

import asyncio

from mtl.client.contents import Content
from mtl.doors.limits import RS_HELLO_S
from mtl.doors.peer_messages import peer_message
from mtl.doors.peer_session import PeerSession
from mtl.doors.reactive import codec
from mtl.doors.reactive.intake import ReactiveIntake
from mtl.doors.reactive.link import ReactiveLink
from mtl.doors.reactive.names import SEQUENCE_OCTETS, Confirmations, ResourceContents, parse
from mtl.doors.reactive.publishing import Demanded
from mtl.doors.reactive.session import Event, ReactiveState
from mtl.doors.reactive.subscribing import Elements
from mtl.errors import Refused


class ReactivePeer:
    """The peer of one connection; `serve` handles it until its end."""

    def __init__(self, link: ReactiveLink, session: PeerSession) -> None:
        self._link = link
        self._session = session
        self._streams: dict[int, _ContentStream] = {}
        self._tasks = asyncio.TaskGroup()
        """The tasks of the streams, also of those that are being closed. They end with `serve`."""
        self._intakes: dict[int, ReactiveIntake] = {}
        """By the Id of the confirmations, which the peer chose."""
        self._intakes_by_elements: dict[int, ReactiveIntake] = {}
        """The same by the Id of the elements, which the door chose."""

    async def serve(self) -> None:
        """Handle events until the connection has ended."""
        hello = asyncio.get_running_loop().call_later(RS_HELLO_S, self._handle_hello_timeout)
        try:
            async with self._tasks:
                async for event in self._link.events():
                    await self._handle(event)
                for stream in self._streams.values():
                    stream.end()
        finally:
            hello.cancel()
            for intake in self._intakes.values():
                intake.end()
            await self._link.close_transport()

    async def stop(self) -> None:
        """Confirm all contents taken in, then say goodbye."""
        await asyncio.gather(*(intake.stop() for intake in self._intakes.values()))
        await self._link.close("the door closes")

    def abort(self) -> None:
        """Break the connection."""
        self._link.abort()

    def _handle_hello_timeout(self) -> None:
        if self._link.session.state is ReactiveState.OPENING:
            self._link.abort()

    # --- messages of the peer -------------------------------------------------------------------------------

    async def _handle(self, event: Event) -> None:
        match event:
            case codec.Subscribe():
                self._subscribe(event)
            case Demanded(subscriber):
                if (stream := self._streams.get(subscriber)) is not None:
                    stream.wake.set()
                elif (intake := self._intakes.get(subscriber)) is not None:
                    intake.send_confirmations()
            case codec.Cancel(subscriber):
                if (stream := self._streams.pop(subscriber, None)) is not None:
                    stream.end()
                elif (intake := self._intakes.pop(subscriber, None)) is not None:
                    intake.end()
            case Elements(subscriber, elements):
                await self._intakes_by_elements[subscriber].publish(elements)
            case codec.OnComplete(subscriber) | codec.OnError(subscriber):
                self._intakes_by_elements[subscriber].finish()

    def _subscribe(self, request: codec.Subscribe) -> None:
        subscriber = request.subscriber
        try:
            name = parse(request.publisher)
            if isinstance(name, Confirmations):
                intake = ReactiveIntake(self._link, self._session, name, subscriber, self._handle_intake_end)
                self._intakes[subscriber] = self._intakes_by_elements[intake.elements] = intake
            else:
                stream = self._streams[subscriber] = _ContentStream(
                    self._link, self._session, name, subscriber
                )
                stream.task = self._tasks.create_task(self._send(stream))
        except Refused as refused:
            self._link.session.publishing.fail(subscriber, peer_message(refused))

    async def _send(self, stream: _ContentStream) -> None:
        """Send the contents of a stream. At its end its Id may already belong to another stream."""
        await stream.send()
        if self._streams.get(stream.subscriber) is stream:
            del self._streams[stream.subscriber]

    def _handle_intake_end(self, intake: ReactiveIntake) -> None:
        """The producer's streams have ended."""
        if self._intakes.get(intake.confirmations) is intake:
            del self._intakes[intake.confirmations]


class _ContentStream:
    """One stream of a resource's contents: reads and sends by demand. `wake` is set when there is demand again."""

    task: asyncio.Task[None]

    def __init__(
        self,
        link: ReactiveLink,
        session: PeerSession,
        name: ResourceContents,
        subscriber: int,
    ) -> None:
        self.wake = asyncio.Event()
        self._link = link
        self._session = session
        self._name = name
        self.subscriber = subscriber

    def end(self) -> None:
        """Stop sending. Harmless when repeated."""
        self.task.cancel()

    async def send(self) -> None:
        """Send until `end`, or a failure, which the peer gets."""
        publishing = self._link.session.publishing
        try:
            subscription = await self._session.subscribe(
                self._name.resource, self._name.start, end=self._link.abort
            )
            try:
                publishing.accept(self.subscriber)
                self._link.flush()
                while True:
                    await self._demand()  # before the first read
                    elements = list(map(self._element, await subscription.some()))
                    at = 0
                    while at < len(elements):
                        end = at + await self._demand()
                        await self._link.publish_all(self.subscriber, elements[at:end])
                        at = end
            finally:
                await subscription.close()
        except Exception as failed:  # noqa: BLE001 a bug must not leave a subscriber waiting
            publishing.fail(self.subscriber, peer_message(failed))
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
