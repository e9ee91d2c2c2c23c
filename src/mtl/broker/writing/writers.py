"""Writing leases: acceptance of contents, duplicates, gaps, and confirmation.

PROTOCOL.md 5.4. The gap check is per lease and in memory; duplicates are found per writer and log (`intake`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, takewhile
from typing import NamedTuple, Protocol, cast

from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.broker.leases.lease import Flow, Lease, LeaseTerms
from mtl.broker.writing.intake import AcceptedContents, InboundBudget, Intake
from mtl.broker.writing.intakes import Intakes
from mtl.broker.writing.numbers import WriterKey
from mtl.broker.writing.unconfirmed import Unconfirmed
from mtl.errors import LogStopped, Malformed
from mtl.wire import commands
from mtl.wire.fields import Buffer

_U64_MAX = (1 << 64) - 1


class Packs(Protocol):
    """The check of a pack before it is stored: a pure function, passed in so that a simulator may bring a cheap one."""

    def __call__(self, body: Buffer, count: int, /) -> object:
        """Raises `Malformed` unless `body` is a pack of `count` valid contents. The result is not used."""


class ReceivedContents(NamedTuple):
    """One Content as received: its numbers, its properties (None: a pack), its body, and the reason, if any, why it can
    never be stored.
    """

    first: int
    contents: int
    properties: bytes | None
    body: Buffer = b""
    fault: str | None = None

    @property
    def last(self) -> int:
        """The number of its Confirm or Reject."""
        return self.first + self.contents - 1


class WriterLease(Lease):
    """One granted Connection.Writer.

    `route` finds the intake of a resource by name (None: there is none); `only` is the resource that an empty name
    stands for. `expected` is the next number of the flow. A flow that continues an earlier one of its writer
    (`resumed`) may begin lower, with the numbers that the earlier one left unconfirmed.
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
        super().__init__(terms, packed=packed)
        self.key = key
        self.share = terms.principal
        self.only = only
        self.route = route
        self.stage = stage
        self.confirmed_flow = terms.confirm == "full"
        self.expected = highest + 1
        self.resumed = highest > 0
        self.gapped = False
        self.closing = False
        """The lease is being closed: further contents are too late."""
        self.intakes: dict[str, Intake] = {}
        self.unconfirmed = Unconfirmed()
        self.plain_form: PlainForm | None = None
        """The form of its last plain content that was found valid."""

    def spend(self, last: int) -> None:
        """Contents up to this number were accepted, or refused for good: later ones follow."""
        self.expected = max(self.expected, last + 1)

    def rebound(self, flow: Flow) -> None:
        """A new data flow presented the lease: the writer sends again everything after the last Confirm.

        Contents are confirmed only after they were sent again: a Confirm would also cover a number whose Reject was
        lost.
        """
        self.flow = flow
        self.resumed = True
        self.gapped = False
        self.unconfirmed.clear()


class PlainForm(NamedTuple):
    """The common form of consecutive plain contents; `tail` is the header's, for this resource and these properties."""

    resource: str
    properties: bytes
    tail: bytes

    def run(self, headers: Sequence[bytes], at: int, number: int) -> int:
        """The number of headers from `at` on with this form and consecutive numbers from `number` on; at most one
        chunk.
        """
        return commands.content_run(headers, at, self.tail, number, limits.MAX_PACK // len(self.tail))


class Writers:
    """Accepts contents for every writing lease."""

    def __init__(self, inbound: InboundBudget, check_pack: Packs, intakes: Intakes) -> None:
        self._inbound = inbound
        self._check_pack = check_pack
        self._intakes = intakes
        self.counts = {"duplicates": 0, "gaps": 0, "refused": 0, "overloads": 0, "dropped": 0}

    # --- in -------------------------------------------------------------------------------------------------

    def run(self, lease: WriterLease, headers: Sequence[bytes], bodies: Sequence[Buffer], at: int) -> int:
        """Accept the contents from `at` on that `content` would accept without further checks. Returns their
        number.

        They continue the flow's numbers and have the form of the last one that `content` accepted. 0 if the first does
        not.
        """
        form, first = lease.plain_form, lease.expected
        if form is None or lease.closing:
            return 0
        intake = self._intake(lease, form.resource)
        if intake is None or first <= intake.numbers.accepted(lease.key) or self._full(lease, intake):
            return 0
        if not (count := form.run(headers, at, first)):
            return 0
        fit = _fitting(bodies[at : at + count], limits.MAX_PACK - count * len(form.properties))
        accepted = AcceptedContents(lease, first, len(fit), fit, form.properties)
        if not fit or not self._inbound.fits(lease.share, accepted.cost):
            return 0
        lease.resumed = lease.gapped = False
        self._add(lease, intake, accepted)
        return len(fit)

    def content(self, lease: WriterLease, content: commands.Content) -> None:
        """One Content arrived on the flow that `lease` is bound to."""
        if lease.closing:
            self.counts["dropped"] += 1
            return
        received = _received(lease, content)
        if lease.confirmed_flow and not self._is_in_order(lease, received):
            return
        intake = self._intake(lease, content.resource)
        if intake is None or received.fault or self._fault(received):
            if lease.confirmed_flow:
                lease.spend(received.last)  # a refused number is spent
            self._refuse(lease, received.last)
        elif not lease.confirmed_flow:
            self._accept_unconfirmed(lease, intake, received)
        elif not self._duplicate(lease, intake, received):
            if lease.stage is not None and isinstance(intake.stopped, LogStopped):
                # A stage's log is not opened again while its writer waits: the writer has to use another stage.
                lease.spend(received.last)
                self._refuse(lease, received.last)
            elif self._full(lease, intake):
                self._push_back(lease, received.first, received.last)
            else:
                self._accept(lease, intake, received, content.resource)

    def _accept(self, lease: WriterLease, intake: Intake, received: ReceivedContents, resource: str) -> None:
        self._add(lease, intake, _accepted(lease, received))
        form = lease.plain_form
        if received.properties is not None and (form is None or form[:2] != (resource, received.properties)):
            tail = commands.content_tail(resource, received.properties)
            lease.plain_form = PlainForm(resource, received.properties, tail)

    def _add(self, lease: WriterLease, intake: Intake, accepted: AcceptedContents) -> None:
        lease.spend(accepted.last)
        lease.unconfirmed.add(accepted)
        intake.add(accepted)
        self._intakes.wait(intake)

    def _accept_unconfirmed(self, lease: WriterLease, intake: Intake, received: ReceivedContents) -> None:
        """Under confirm "none" numbers are not checked, and contents that do not fit are dropped and counted."""
        if self._full(lease, intake):
            self.counts["overloads"] += 1
            return
        intake.add(_accepted(lease, received))
        self._intakes.wait(intake)

    def _full(self, lease: WriterLease, intake: Intake) -> bool:
        return (
            not self._inbound.fits(lease.share)
            or intake.stopped is not None
            or len(lease.unconfirmed) >= broker_limits.MAX_UNCONFIRMED
        )

    def _intake(self, lease: WriterLease, name: str) -> Intake | None:
        """The intake for a resource's contents. A stopped log may have been replaced: then find it again."""
        name = name or lease.only or ""
        intake = lease.intakes.get(name)
        if name and (intake is None or intake.stopped is not None):
            intake = lease.route(name)
            if intake is not None:
                lease.intakes[name] = intake
            else:
                lease.intakes.pop(name, None)
        return intake

    def _fault(self, received: ReceivedContents) -> str | None:
        """The reason why this content can never be stored, or None."""
        if received.properties is None:
            try:
                self._check_pack(received.body, received.contents)
            except Malformed as e:
                return str(e)
            return None
        if len(received.body) > limits.MAX_CONTENT or len(received.properties) > limits.MAX_TABLE:
            return "too large"
        return "a reserved property name" if commands.reserved(received.properties) else None

    def _is_in_order(self, lease: WriterLease, received: ReceivedContents) -> bool:
        """The gap check. A number above the expected one is pushed back once, then ignored until the run is closed."""
        if received.first < 1:
            self._refuse(lease, received.first)
            return False
        if lease.resumed and received.first <= lease.expected:
            lease.expected = received.first
            lease.resumed = False
        if received.first > lease.expected:
            self.counts["gaps"] += 1
            if not lease.gapped:
                lease.gapped = True
                self._reject(lease, received.last, recycle=True)
            return False
        lease.gapped = False
        return True

    def _duplicate(self, lease: WriterLease, intake: Intake, received: ReceivedContents) -> bool:
        """Whether this was accepted before: then it is confirmed with the original, and not appended again."""
        highest = intake.numbers.accepted(lease.key)
        if received.first > highest:
            return False
        lease.spend(received.last)
        if received.last > highest:
            self._refuse(lease, received.last)  # partial overlap: not the identical frame (PROTOCOL.md 3)
            return True
        self.counts["duplicates"] += 1
        if received.last in lease.unconfirmed:
            return True
        echo = AcceptedContents(lease, received.first, received.contents)
        intake.echo(echo)
        lowest = lease.unconfirmed.lowest
        if echo.done and (lowest is None or received.last < lowest):
            self._confirm(lease, received.last)
        else:
            lease.unconfirmed.add(echo)
        return True

    # --- out ------------------------------------------------------------------------------------------------

    def durable(self, group: Sequence[AcceptedContents]) -> None:
        """A group is on disk: confirm each lease's durable prefix."""
        for lease in {id(x.lease): _lease(x) for x in group if x.lease.confirmed_flow}.values():
            last = lease.unconfirmed.pop_durable()
            if last:
                self._confirm(lease, last)

    def failed(self, lost: Sequence[AcceptedContents]) -> None:
        """These contents were not stored: ask their writers to send again from the first of them on."""
        lowest: dict[int, AcceptedContents] = {}
        for accepted in lost:
            known = lowest.get(id(accepted.lease))
            if not accepted.lease.confirmed_flow:
                self.counts["dropped"] += 1
            elif known is None or accepted.first < known.first:
                lowest[id(accepted.lease)] = accepted
        for accepted in lowest.values():
            self._push_back(_lease(accepted), accepted.first, accepted.reject_number)

    def _push_back(self, lease: WriterLease, first: int, last: int) -> None:
        """Ask for this content and all after it again: the disk or the memory had no room for it."""
        self.counts["overloads"] += 1
        lease.unconfirmed.forget_from(first)
        lease.expected = min(lease.expected, first)
        lease.gapped = True
        self._reject(lease, last, recycle=True)

    def _confirm(self, lease: WriterLease, last: int) -> None:
        if lease.flow is not None:
            lease.flow.send(commands.Confirm(last, True))

    def _refuse(self, lease: WriterLease, sequence: int) -> None:
        """Refuse for good: unknown resource, too large, malformed pack. The one error reply, also under "none"."""
        self.counts["refused"] += 1
        self._reject(lease, sequence, recycle=False)

    def _reject(self, lease: WriterLease, sequence: int, *, recycle: bool) -> None:
        if lease.flow is not None:
            lease.flow.send(commands.Reject(sequence, False, recycle))


def _lease(accepted: AcceptedContents) -> WriterLease:
    return cast(WriterLease, accepted.lease)  # each `Sender` is one; `intake` knows only what it needs of it


def _fitting(bodies: Sequence[Buffer], octets: int) -> Sequence[Buffer]:
    """The first bodies that have at most the given octets together: nearly always all."""
    if sum(map(len, bodies)) <= octets:
        return bodies
    return bodies[: sum(1 for _ in takewhile(octets.__ge__, accumulate(map(len, bodies))))]


def _received(lease: WriterLease, content: commands.Content) -> ReceivedContents:
    """A Content, by its properties. Only a packed lease has packs; an invalid count is one faulty content."""
    first, properties, body = content.sequence, content.properties, content.body
    if lease.packed:
        try:
            count = commands.packed_count(properties)
        except Malformed as e:
            return ReceivedContents(first, 1, properties, fault=str(e))
        if count is not None and first + count - 1 > _U64_MAX:
            return ReceivedContents(first, 1, properties, fault="numbers above 64 bits")
        if count is not None:
            return ReceivedContents(first, count, None, body)
    return ReceivedContents(first, 1, properties, body)


def _accepted(lease: WriterLease, received: ReceivedContents) -> AcceptedContents:
    return AcceptedContents(lease, received.first, received.contents, (received.body,), received.properties)
