"""Publishing through the door, for which the document has no message: two streams in opposite directions.

    peer  ──subscribe $publish/orders, Id P──►  door
          ◄──subscribed P, 8 octets each──────
          ◄──subscribe orders, Id Q, demand────
          ──onNext Q: contents────────────────►     each is appended to the log
          ◄──onNext P: 1, 2, 3 ...─────────────     the number of durable contents
          ──onComplete Q──────────────────────►
          ◄──onComplete P──────────────────────     all contents are durable

A failure is onError on P. Confirmations without demand on P wait, as a number; Q continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mtl.doors.limits import RS_DEMAND
from mtl.doors.peer_messages import peer_message
from mtl.doors.peer_session import PeerSession
from mtl.doors.reactive.link import ReactiveLink
from mtl.doors.reactive.names import SEQUENCE_OCTETS, Confirmations
from mtl.doors.runs import ContentRun
from mtl.errors import MtlError
from mtl.wire.fields import EMPTY


class ReactiveIntake:
    """The contents of one producer. `elements` is the Id of Q, `confirmations` the Id of P; `ended` is called when the
    door has ended P.
    """

    def __init__(
        self,
        link: ReactiveLink,
        session: PeerSession,
        name: Confirmations,
        confirmations: int,
        ended: Callable[[ReactiveIntake], None],
    ) -> None:
        self._link = link
        self._session = session
        self._resource = name.resource
        self._ended = ended
        self._sent: asyncio.Queue[tuple[asyncio.Future[None], int] | None] = asyncio.Queue()
        self._confirmed = self._reported = self._renew = 0
        self._complete = False
        self._scheduled = False
        self.confirmations = confirmations
        link.session.publishing.accept(confirmations, SEQUENCE_OCTETS)
        self.elements = link.session.subscribing.subscribe(name.back, RS_DEMAND)
        self._task = asyncio.create_task(self._await_confirms())

    async def publish(self, elements: tuple[bytes, ...]) -> None:
        """Publish elements of Q; waits for room in the door's budget."""
        run = ContentRun(self._resource)
        for element in elements:
            if not run.fits(element, EMPTY):
                await self._publish(run)
                run = ContentRun(self._resource)
            run.add(element, EMPTY)
        await self._publish(run)

    async def _publish(self, run: ContentRun) -> None:
        if self._task.done():
            return
        try:
            settled = await self._session.publish_run(run)
        except MtlError as failed:
            settled = asyncio.get_running_loop().create_future()
            settled.set_exception(failed)
        # A failure after another one is not reported.
        settled.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._sent.put_nowait((settled, len(run.bodies)))

    def finish(self) -> None:
        """Handle the end of Q. P ends when all contents are confirmed to the peer."""
        self._sent.put_nowait(None)

    def send_confirmations(self) -> None:
        """Send as many confirmations as there is demand for, and request more contents."""
        self._scheduled = False
        publishing = self._link.session.publishing
        count = min(self._confirmed - self._reported, publishing.demand(self.confirmations))
        if count:
            ordinals = range(self._reported + 1, self._reported + count + 1)
            self._reported += count
            publishing.publish_packed(
                self.confirmations, [n.to_bytes(SEQUENCE_OCTETS, "big") for n in ordinals]
            )
        if self._renew:
            self._link.session.subscribing.request(self.elements, self._renew)
            self._renew = 0
        if self._complete and self._reported == self._confirmed:
            publishing.complete(self.confirmations)
            self._ended(self)
        self._link.flush()

    async def stop(self) -> None:
        """Stop taking contents; return when all taken ones are confirmed to the peer."""
        self.finish()
        await asyncio.wait({self._task})

    def end(self) -> None:
        """End at once, without a message to the peer; contents taken in are still sent. Harmless when repeated."""
        self._task.cancel()
        self._link.session.subscribing.cancel(self.elements)
        self._link.flush()

    async def _await_confirms(self) -> None:
        """Await Confirms in the order of sending, so that a confirmation is only a number."""
        try:
            while (sent := await self._sent.get()) is not None:
                settled, contents = sent
                await settled
                self._confirmed += contents
                self._renew += contents
                self._schedule_confirmations()
            self._complete = True
            self.send_confirmations()
        except Exception as failed:  # noqa: BLE001 a bug must not leave a producer waiting
            self.send_confirmations()
            self._link.session.publishing.fail(self.confirmations, peer_message(failed))
            self._ended(self)
            self._link.session.subscribing.cancel(self.elements)
            self._link.flush()

    def _schedule_confirmations(self) -> None:
        """Send one message for all contents that are confirmed together."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.send_confirmations)
