"""Writing leases: which contents are taken in, which are duplicates, which leave a gap, and what is confirmed when.

profiles.md "Writers". The gap check is per lease and in memory; duplicates are told per writer and log (`intake`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from mtl import limits
from mtl.broker.intake import Arrival, Intake, WriterKey
from mtl.broker.outbox import Outbox
from mtl.errors import Malformed
from mtl.wire import commands as c

if TYPE_CHECKING:
    from mtl.broker.flows import DataFlow
    from mtl.broker.leases import LeaseTerms


class Packs(Protocol):
    """The check of a pack before it is stored; pure, given to the core so that a simulator may bring a cheap one."""

    def __call__(self, body: c.Buffer, count: int) -> None:
        """Raises `Malformed` unless `body` is a pack of `count` valid contents."""


class WriterLease:
    """One Connection.Writer that was granted.

    `route` finds the intake of a resource by its name (None: there is no such); `only` is the resource that an empty
    name stands for. `expected` is the next number of the flow; 0 until the first content of a flow whose numbers began
    in an earlier lease.
    """

    def __init__(
        self,
        terms: LeaseTerms,
        key: WriterKey,
        only: str | None,
        route: Callable[[str], Intake | None],
        packed: bool,
        stage: str | None = None,
        highest: int = 0,
    ) -> None:
        self.terms = terms
        self.key = key
        self.only = only
        self.route = route
        self.packed = packed
        self.stage = stage
        self.confirmed_flow = terms.confirm == "full"
        self.flow: DataFlow | None = None
        self.expected = highest + 1
        self.resumed = highest > 0
        self.gapped = False
        self.intakes: dict[str, Intake] = {}
        self.unconfirmed: OrderedDict[int, Arrival] = OrderedDict()

    @property
    def settled(self) -> bool:
        """Whether everything that was taken in is durable and confirmed."""
        return not self.unconfirmed

    def rebound(self, flow: DataFlow) -> None:
        """A new data flow presented the lease: whatever was lost on the old one is sent again from the last Confirm."""
        self.flow = flow
        self.gapped = False


class Writers:
    """Takes contents in for every writing lease."""

    def __init__(self, outbox: Outbox, check_pack: Packs, dirty: Callable[[Intake], None]) -> None:
        self._outbox = outbox
        self._check_pack = check_pack
        self._dirty = dirty
        self.octets = 0
        self.counts = {"duplicates": 0, "gaps": 0, "refused": 0, "overloads": 0}

    # --- in -------------------------------------------------------------------------------------------------

    def content(self, lease: WriterLease, content: c.Content) -> None:
        """One Content arrived on the flow that `lease` is bound to."""
        properties: bytes | None = content.properties
        count = 1
        if lease.packed:
            packed = c.packed_count(content.properties)
            if packed is not None:
                count, properties = packed, None
        first = content.sequence
        intake = self._intake(lease, content.resource)
        fault = self._fault(intake, content, count, properties)
        if lease.confirmed_flow and not self._in_turn(lease, first, count, fault is not None):
            return
        if fault is not None or intake is None:
            self._refuse(lease, first + count - 1)
            return
        if lease.confirmed_flow:
            if self._duplicate(lease, intake, first, count, content):
                return
            if self.octets > limits.INBOUND_OCTETS or (intake.stopped is not None):
                self._push_back(lease, first)
                return
        elif intake.stopped is not None or self.octets > limits.INBOUND_OCTETS:
            self.counts["overloads"] += 1
            return
        self._take(lease, intake, first, count, content, properties)

    def _take(
        self,
        lease: WriterLease,
        intake: Intake,
        first: int,
        count: int,
        content: c.Content,
        properties: bytes | None,
    ) -> None:
        size = len(content.body) + (len(properties) if properties else 0)
        arrival = Arrival(lease, intake, first, count, content.body, size, properties)
        if lease.confirmed_flow:
            lease.expected = first + count
            lease.unconfirmed[arrival.last] = arrival
        intake.add(arrival)
        self.octets += size
        self._dirty(intake)

    def _intake(self, lease: WriterLease, name: str) -> Intake | None:
        name = name or lease.only or ""
        intake = lease.intakes.get(name)
        if intake is None and name:
            intake = lease.route(name)
            if intake is not None:
                lease.intakes[name] = intake
        return intake

    def _fault(
        self,
        intake: Intake | None,
        content: c.Content,
        count: int,
        properties: bytes | None,
    ) -> str | None:
        """Why this content can never be taken, or None."""
        if intake is None:
            return "unknown resource"
        if properties is None:
            try:
                self._check_pack(content.body, count)
            except Malformed as e:
                return str(e)
            return None
        if len(content.body) > limits.MAX_CONTENT or len(properties) > limits.MAX_TABLE:
            return "too large"
        if c.reserved(properties):
            return "a reserved property name"
        return None

    def _in_turn(self, lease: WriterLease, first: int, count: int, faulty: bool) -> bool:
        """The gap check. A number above the expected one is pushed back once, then ignored until the run is closed."""
        if first < 1:
            self._refuse(lease, first)
            return False
        if lease.resumed and first <= lease.expected:
            lease.expected = first  # a flow that goes on where an earlier one of the same writer ended
            lease.resumed = False
        if first > lease.expected:
            self.counts["gaps"] += 1
            if not lease.gapped:
                lease.gapped = True
                self._reject(lease, first, recycle=True)
            return False
        lease.gapped = False
        if faulty and first + count - 1 >= lease.expected:
            lease.expected = first + count  # a refused number is spent
        return True

    def _duplicate(
        self, lease: WriterLease, intake: Intake, first: int, count: int, content: c.Content
    ) -> bool:
        """Whether this was taken before: then it is confirmed when the original is durable, and not appended again."""
        last = first + count - 1
        taken = intake.taken.get(lease.key, 0)
        if first > taken:
            return False
        if last > taken:
            self._refuse(
                lease, last
            )  # partial overlap: not the identical frame (profiles.md "Packed contents")
            return True
        self.counts["duplicates"] += 1
        lease.expected = max(lease.expected, last + 1)
        if last in lease.unconfirmed:
            return True
        echo = Arrival(lease, intake, first, count, b"", 0, content.properties)
        lease.unconfirmed[last] = echo
        intake.echo(echo)
        if echo.done:
            self.confirm(lease)
        return True

    # --- out ------------------------------------------------------------------------------------------------

    def durable(self, group: list[Arrival]) -> None:
        """A group is on disk: confirm what each lease's durable prefix now covers."""
        self.octets -= sum(x.size for x in group)
        for lease in {id(x.lease): x.lease for x in group if x.lease.confirmed_flow}.values():
            self.confirm(lease)

    def failed(self, group: list[Arrival]) -> None:
        """A group was not kept: its writers are asked to send again from its first content."""
        self.octets -= sum(x.size for x in group)
        first: dict[int, tuple[WriterLease, int]] = {}
        for arrival in group:
            if arrival.lease.confirmed_flow:
                first.setdefault(id(arrival.lease), (arrival.lease, arrival.first))
        for lease, number in first.values():
            self._push_back(lease, number)

    def confirm(self, lease: WriterLease) -> None:
        """Confirm(multiple) the prefix that is durable in all resources of the flow, if it grew."""
        last = 0
        while lease.unconfirmed:
            number, arrival = next(iter(lease.unconfirmed.items()))
            if not arrival.done:
                break
            del lease.unconfirmed[number]
            last = number
        if last and lease.flow is not None:
            lease.flow.send(c.Confirm(last, True))

    def _push_back(self, lease: WriterLease, first: int) -> None:
        """Ask for `first` and everything after it again: the disk or the memory could not take it."""
        self.counts["overloads"] += 1
        # What is durable in another resource goes too: confirmed later, it would take with it what comes again.
        for number in [n for n, x in lease.unconfirmed.items() if x.first >= first]:
            del lease.unconfirmed[number]
        before = sum(x.octets for x in lease.intakes.values())
        for intake in lease.intakes.values():
            intake.cancel(lease, first)
        self.octets -= before - sum(x.octets for x in lease.intakes.values())
        lease.expected = min(lease.expected, first)
        lease.gapped = True
        self._reject(lease, first, recycle=True)

    def _refuse(self, lease: WriterLease, sequence: int) -> None:
        """Never: unknown resource, too large, ill-formed pack. The only error reply there is, also under "none"."""
        self.counts["refused"] += 1
        self._reject(lease, sequence, recycle=False)

    def _reject(self, lease: WriterLease, sequence: int, *, recycle: bool) -> None:
        if lease.flow is not None:
            lease.flow.send(c.Reject(sequence, False, recycle))
