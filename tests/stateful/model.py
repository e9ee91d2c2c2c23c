"""The answers of a broker according to the two documents, in the shortest form. It uses no code of the broker.

A call is one command on a data flow; it returns the commands that each flow gets because of it, in order. Leases are
identified by the tokens of the broker. Profiles `test` (RFC 11 "The Test Profile") and `log` (PROTOCOL.md 5), plain;
of `queue` (6) everything except contents, which `queues` checks.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from mtl.wire.commands import Command, Confirm, Content, Pong, Reject, Response
from mtl.wire.fields import EMPTY
from tests.stateful.queues import Consumer, Queue

OK, CANNOT, FORBIDDEN = 200, 400, 403
TEST_RESOURCE = "resource"

Sent = dict[int, list[Command]]
"""The commands of the broker, by flow."""


@dataclass(eq=False)
class Writer:
    """A writing lease: contents are numbered from 1, without gaps."""

    profile: str
    resource: str
    full: bool
    flow: int | None = None
    expected: int = 1
    stored: int = 0
    """The highest number that was stored. One that was refused may come again, and is stored then."""
    gapped: bool = False

    def unbound(self) -> None:
        self.flow = None

    def bound(self, flow: int) -> None:
        self.flow = flow
        self.gapped = False


@dataclass(eq=False)
class Reader:
    """A reading lease: a place in its resource (`log`), or a number of deliveries (`test`)."""

    profile: str
    resource: str
    full: bool
    window: int
    next: int = 1
    flow: int | None = None
    summoned: bool = False
    unsettled: list[int] = field(default_factory=list)

    def unbound(self) -> None:
        self.flow = None

    def bound(self, flow: int) -> None:
        """No resource is summoned; delivery continues at the lowest unsettled content."""
        self.flow = flow
        self.summoned = False
        self.next = min([self.next, *self.unsettled])
        self.unsettled = []

    def settle(self, sequence: int, multiple: bool) -> None:
        """Contents that were never sent, or are settled, cannot be settled."""
        if multiple and self.unsettled and sequence <= self.unsettled[-1]:
            self.unsettled = [n for n in self.unsettled if n > sequence]
        elif not multiple and sequence in self.unsettled:
            self.unsettled.remove(sequence)

    @property
    def has_room(self) -> bool:
        return not self.full or not self.unsettled or len(self.unsettled) < self.window


class Model:
    """Resources of the profile log, leases, and their flows."""

    def __init__(self) -> None:
        self.contents: dict[str, list[bytes]] = {}
        self.leases: dict[str, Writer | Reader | Consumer] = {}
        self.queues: dict[str, Queue] = {}
        self.now = 0.0
        self._sent: Sent = defaultdict(list)

    # --- commands of clients --------------------------------------------------------------------------------

    def lease(self, flow: int, sequence: int, token: str) -> Sent:
        """The lease moves to the last flow that presents it; a flow has at most one lease of a kind."""
        lease = self.leases.get(token)
        rival = self._writer(flow) if isinstance(lease, Writer) else self._reading(flow)
        if lease is None or rival not in {None, lease}:
            return self._answer(flow, Response(sequence, FORBIDDEN))
        if lease.flow != flow:
            lease.bound(flow)
        return self._answer(flow, Response(sequence, OK))

    def close(self, token: str) -> None:
        lease = self.leases.pop(token)
        if isinstance(lease, Consumer):
            lease.close()

    def summon(self, flow: int, sequence: int, resource: str) -> Sent:
        return self._turn(flow, sequence, resource, summoned=True)

    def dismiss(self, flow: int, sequence: int, resource: str) -> Sent:
        return self._turn(flow, sequence, resource, summoned=False)

    def _turn(self, flow: int, sequence: int, resource: str, *, summoned: bool) -> Sent:
        """Summon or Dismiss: in alternation, and only for resources of the lease."""
        reader = self._reading(flow)
        if reader is None:
            code = CANNOT if self._writer(flow) else FORBIDDEN
            return self._answer(flow, Response(sequence, code))
        if resource != reader.resource or reader.summoned is summoned:
            return self._answer(flow, Response(sequence, CANNOT))
        reader.summoned = summoned
        self._sent[flow].append(Response(sequence, OK))
        return self._delivered(reader) if isinstance(reader, Reader) else self._take_sent()

    def content(self, flow: int, number: int, resource: str, body: bytes) -> Sent:
        writer = self._writer(flow)
        if writer is None:
            return {}  # of no lease: no answer
        known = resource in {"", writer.resource}
        if writer.profile == "test":
            return self._fan_out(body) if known else self._answer(flow, Reject(number, False, False))
        if writer.full and not self._is_in_turn(writer, number):
            return self._take_sent()
        if not known:
            if writer.full:
                writer.expected = max(writer.expected, number + 1)  # a refused number is spent
            return self._answer(flow, Reject(number, False, False))
        if not writer.full or number > writer.stored:
            writer.stored = max(writer.stored, number)
            writer.expected = max(writer.expected, number + 1) if writer.full else writer.expected + 1
            self.contents[writer.resource].append(body)
        if writer.full:
            self._sent[flow].append(Confirm(number, True))  # one that it has is confirmed again
        return self._delivered(*self._readers_of(writer.resource))

    def _is_in_turn(self, writer: Writer, number: int) -> bool:
        """0 is not a number, and after a gap there is one Reject until the missing number arrives."""
        assert writer.flow is not None
        if number == 0:
            self._sent[writer.flow].append(Reject(0, False, False))
        elif number > writer.expected:
            if not writer.gapped:
                self._sent[writer.flow].append(Reject(number, False, True))
            writer.gapped = True
        else:
            writer.gapped = False
        return 0 < number <= writer.expected

    def settled(self, flow: int, sequence: int, *, multiple: bool, how: str) -> Sent:
        """A Confirm ("confirm"), a Reject ("reject"), or one with recycle ("recycle"): nothing to the log."""
        reader = self._reading(flow)
        if reader is None or not reader.full:
            return {}
        if isinstance(reader, Consumer):
            reader.settle(sequence, multiple=multiple, how=how, now=self.now)
            return {}
        if how == "recycle":
            return {}
        reader.settle(sequence, multiple)
        return self._delivered(reader)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for queue in self.queues.values():
            queue.wait(self.now)

    def ping(self, flow: int) -> Sent:
        there = self._reading(flow) or self._writer(flow)
        return self._answer(flow, Pong()) if there else {}

    # --- deliveries -----------------------------------------------------------------------------------------

    def _delivered(self, *readers: Reader) -> Sent:
        """Readers of the profile log get contents within their window."""
        for reader in readers:
            stored = self.contents.get(reader.resource, []) if reader.profile == "log" else []
            while (
                reader.flow is not None and reader.summoned and reader.has_room and reader.next <= len(stored)
            ):
                self._deliver(reader, stored[reader.next - 1])
                if reader.full:
                    reader.unsettled.append(reader.next - 1)
        return self._take_sent()

    def _fan_out(self, body: bytes) -> Sent:
        for reader in self.leases.values():
            if isinstance(reader, Reader) and reader.profile == "test" and reader.summoned:
                self._deliver(reader, body)
        return self._take_sent()

    def _deliver(self, reader: Reader, body: bytes) -> None:
        if reader.flow is not None:
            self._sent[reader.flow].append(Content(reader.next, reader.resource, EMPTY, body))
            reader.next += 1

    def _answer(self, flow: int, command: Command) -> Sent:
        self._sent[flow].append(command)
        return self._take_sent()

    def _take_sent(self) -> Sent:
        sent, self._sent = dict(self._sent), defaultdict(list)
        return sent

    def _writer(self, flow: int) -> Writer | None:
        return next((x for x in self.leases.values() if isinstance(x, Writer) and x.flow == flow), None)

    def _reading(self, flow: int) -> Reader | Consumer | None:
        return next((x for x in self.leases.values() if not isinstance(x, Writer) and x.flow == flow), None)

    def consumer(self, flow: int) -> Consumer | None:
        """The consumer of a queue on this flow."""
        reading = self._reading(flow)
        return reading if isinstance(reading, Consumer) else None

    def _readers_of(self, resource: str) -> list[Reader]:
        return [x for x in self.leases.values() if isinstance(x, Reader) and x.resource == resource]
