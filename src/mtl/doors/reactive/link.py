"""Connects a session to a transport; used by the door and the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext

from mtl.doors.limits import RS_BACKLOG, RS_GOODBYE_S, RS_PART
from mtl.doors.peer_messages import DoorRefusal, peer_message
from mtl.doors.reactive.session import ConnectionEnded, Event, ReactiveRole, ReactiveSession
from mtl.doors.reactive.transports import Transport
from mtl.wire.fields import Buffer


class ReactiveLink:
    """One task iterates `events` while the connection is open; `flush` is called after each call of the session.
    `first` are octets of the peer that were read before.
    """

    def __init__(self, role: ReactiveRole, transport: Transport, first: bytes = b"") -> None:
        self.session = ReactiveSession(role)
        self._transport = transport
        self._first = first
        self._over = asyncio.Event()
        self._turn = asyncio.Lock()
        self._splitting = asyncio.Lock()
        self._flushing = False
        self.flush()

    async def events(self) -> AsyncIterator[Event]:
        """The events of the peer; the last one is `ConnectionEnded`, also when the connection broke."""
        reason = "the connection broke"
        try:
            while octets := await self._read():
                for event in self.session.received(octets):
                    self.flush()
                    yield event
                    if isinstance(event, ConnectionEnded):
                        return
                self.flush()
                if self._transport.waiting > RS_BACKLOG:
                    await self._transport.wait_drained()
        except DoorRefusal as refused:  # of a reservation
            reason = peer_message(refused)
            self.session.send_goodbye(reason)
            self.flush()
        yield ConnectionEnded(reason)

    async def _read(self) -> bytes:
        first, self._first = self._first, b""
        return first or await self._transport.read(self.session.incomplete)

    async def publish(self, subscriber: int, element: Buffer) -> None:
        """Send one element, for which there has to be demand, at the peer's pace.

        Streams take turns by messages, and only one large element is in parts at a time: small elements of others
        need not wait for it, and the receiver reassembles one element at a time.
        """
        steps = self.session.publishing.publish(subscriber, element)
        async with self._splitting if len(element) > RS_PART else nullcontext():
            more = True
            while more:
                async with self._turn:
                    more = next(steps, steps) is not steps
                    self.flush()
                    await self._transport.wait_drained()

    async def publish_all(self, subscriber: int, elements: Sequence[bytes]) -> None:
        """Send elements, for which there has to be demand, at the peer's pace: small ones together."""
        at = 0
        while at < len(elements):
            if len(elements[at]) > RS_PART:
                await self.publish(subscriber, elements[at])
                at += 1
                continue
            async with self._turn:
                end, octets = at, 0
                while end < len(elements) and (octets := octets + len(elements[end])) <= RS_PART:
                    end += 1
                self.session.publishing.publish_all(subscriber, elements[at:end])
                self.flush()
                await self._transport.wait_drained()
            at = end

    async def wait_drained(self) -> None:
        """Wait until the peer has read most of what was sent."""
        await self._transport.wait_drained()

    def flush(self) -> None:
        """Send the session's output, together with all other output of this turn of the event loop: a system call for
        each message costs more than all other work for a small element.
        """
        if self.session.waiting >= RS_PART:
            self._write()
        elif not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        self._flushing = False
        if octets := self.session.pop_output():
            self._transport.write(octets)

    async def close(self, reason: str) -> None:
        """Say goodbye, and wait at most RS_GOODBYE_S for the answer and the end. Harmless when repeated."""
        self.session.send_goodbye(reason)
        self.flush()
        try:
            async with asyncio.timeout(RS_GOODBYE_S):
                await self._over.wait()
        except TimeoutError:
            self.abort()

    async def close_transport(self) -> None:
        """Close the transport, for the task of `events`, after them."""
        self._write()
        try:
            await self._transport.close_transport()
        finally:
            self._over.set()

    def abort(self) -> None:
        """Break the connection; `events` ends."""
        self._transport.abort()
