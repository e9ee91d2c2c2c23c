"""The intake of one log: duplicates, the queue of waiting contents, group commit.

One intake per resource and per staged log. At most one group of a log is with the disk at any time; contents that
arrive meanwhile form the next group. This is group commit: under load groups grow; an idle log has groups of one
content. Only a few logs have a group with the disk at a time (`turns`), so that the groups of many logs grow, too.

A log does one action at a time. An operation of several steps (a commit, retention, Delete) holds the log. Holders
take turns, in the order of their requests. An operation on several logs requests all of them at once, so that two
operations never wait for each other.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Protocol, TypeVar

from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.broker.outbox import Outbox
from mtl.broker.steps import Outcome
from mtl.broker.writing.numbers import WriterKey, WriterNumbers
from mtl.broker.writing.turns import Turns
from mtl.errors import LogStopped, StorageError
from mtl.shares import Uses, highest_share
from mtl.storage.api import Answered, Append, Change, Changes, Draft, LogKey, LogView, NewChunk, RunEntry
from mtl.wire.fields import EMPTY, Buffer

log = logging.getLogger("mtl.broker")

T = TypeVar("T")


class Sender(Protocol):
    """The lease of contents. `confirmed_flow` says whether it numbers and confirms them, `share` is the user that they
    count for.
    """

    share: str
    key: WriterKey
    confirmed_flow: bool


class InboundBudget(Uses):
    """Octets in all logs that are accepted and neither durable nor dropped: the memory cost of a slow disk. They are
    counted for each user that sent them, so that the contents of one user leave room for those of others.
    """

    @property
    def full(self) -> bool:
        """Whether further contents have to be refused for now."""
        return self.used > broker_limits.INBOUND_OCTETS

    def fits(self, share: str, more: int = 0) -> bool:
        """Whether so many octets of a user can be accepted: in all, and beside the reserve for others."""
        most = broker_limits.INBOUND_OCTETS
        return self.used + more <= most and self.of(share) + more <= highest_share(most)


class AcceptedContents:
    """Contents of one writer, accepted at once: a pack (`properties` None, one body), or a run of plain contents with
    consecutive numbers and the same properties.

    `done` is set when they are durable and their octets are released. `chunk` is the form in which a pack is
    appended, after it was computed. An echo represents a duplicate of earlier contents.
    """

    __slots__ = (
        "bodies",
        "chunk",
        "cost",
        "count",
        "done",
        "first",
        "last",
        "lease",
        "properties",
        "size",
    )

    def __init__(
        self,
        lease: Sender,
        first: int,
        count: int,
        bodies: Sequence[Buffer] = (),
        properties: bytes | None = None,
    ) -> None:
        self.lease = lease
        self.first = first
        self.last = first + count - 1
        self.count = count
        self.bodies = bodies
        self.properties = properties
        self.size = sum(map(len, bodies)) + len(bodies) * len(properties or b"")
        self.cost = self.size + len(bodies) * limits.ARRIVAL_OVERHEAD
        self.done = False
        self.chunk: NewChunk | None = None

    @property
    def reject_number(self) -> int:
        """The number of its first Content, which a Reject names."""
        return self.last if self.properties is None else self.first

    def settle(self) -> None:
        """Mark it as durable, and release its octets."""
        self.done = True
        self.bodies = ()
        self.chunk = None

    def as_chunk(self) -> NewChunk:
        """The chunk of a pack."""
        if self.chunk is None:
            self.chunk = NewChunk(self.count, self.bodies[0], _runs((self,)))
        return self.chunk


class Intake:
    """The intake of one log. `reader` is the view of the log; None while it is being created, or is not open (`shut`).

    `durable` and `failed` are called with the outcome of contents and of their echoes.
    """

    def __init__(
        self,
        outbox: Outbox,
        key: LogKey,
        reader: LogView | None,
        last: dict[int, int],
        inbound: InboundBudget,
        turns: Turns,
        durable: Callable[[Intake, Sequence[AcceptedContents]], None],
        failed: Callable[[Sequence[AcceptedContents]], None],
        share: str = "",
    ) -> None:
        self._outbox = outbox
        self.key = key
        self.reader = reader
        self.numbers = WriterNumbers(last)
        self._stopped: StorageError | None = None
        self._shut: StorageError | None = None
        self._last_error: Exception | None = None
        """The error with which the last group was not stored; None when it was stored."""
        self._inbound = inbound
        self._turns = turns
        self._share = share
        self._durable = durable
        self._failed = failed
        self._pending: deque[AcceptedContents] = deque()
        self._group: list[AcceptedContents] = []
        self._echoes: list[AcceptedContents] = []
        self._afterwards: list[Outcome[None]] = []
        self._busy = False
        self._held = False
        self._holders: deque[Outcome[None]] = deque()

    # --- in -------------------------------------------------------------------------------------------------

    def add(self, accepted: AcceptedContents) -> None:
        """Accept contents; their group starts with the next `start`."""
        self._pending.append(accepted)
        self._inbound.add(accepted.lease.share, accepted.cost)
        if accepted.lease.confirmed_flow:
            self.numbers.accept(accepted.lease.key, accepted.last)
        if self._busy and accepted.properties is None and accepted.size >= broker_limits.PREPARED:
            self._outbox.prepare(accepted.as_chunk())

    def echo(self, accepted: AcceptedContents) -> None:
        """Add a duplicate whose original may not be durable yet. It is done when the original is done (PROTOCOL.md
        5.4).
        """
        if accepted.last <= self.numbers.durable(accepted.lease.key):
            accepted.settle()
        else:
            self._echoes.append(accepted)

    def withdraw(self, key: WriterKey) -> Outcome[None]:
        """Drop the pending contents of a replaced writer. The step ends with its group on the disk, if any."""
        self._drop_lost([x for x in self._pending if x.lease.key == key and x.lease.confirmed_flow])
        done: Outcome[None] = Outcome()
        if any(x.lease.key == key for x in self._group):
            self._afterwards.append(done)
        else:
            done.set(None)
        return done

    def stop(self, error: StorageError) -> None:
        """Stop accepting contents, and drop the pending ones."""
        self._stopped = error
        self._drop_lost(list(self._pending))

    def resume(self) -> None:
        """Accept contents again after a `stop`."""
        self._stopped = None

    def shut(self, error: StorageError) -> None:
        """The log exists and is not open, for this reason. It accepts no contents, and its contents are unknown."""
        self._shut = error

    def opened(self, reader: LogView, last: dict[int, int]) -> None:
        """The log has been opened."""
        self._shut = None
        self.reader = reader
        self.numbers.restore(last)

    @property
    def stopped(self) -> StorageError | None:
        """The error because of which no contents are accepted; None if contents are accepted."""
        return self._stopped or self._shut

    @property
    def trouble(self) -> str | None:
        """The error because of which no contents are accepted or the last group was not stored; None without an
        error.
        """
        error = self.stopped or self._last_error
        return None if error is None else str(error)

    # --- groups ---------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether an action of this log is with the disk."""
        return self._busy

    @property
    def idle(self) -> bool:
        """Whether no contents are pending or with the disk."""
        return not self._busy and not self._pending

    @property
    def held(self) -> bool:
        """Whether an operation holds the log, or waits to."""
        return self._held or bool(self._holders)

    def start(self) -> None:
        """Hand the next group to the disk at this log's turn, unless the log is busy or held."""
        if self._ready:
            self._turns.request(self, self._start_group, self._share)

    @property
    def _ready(self) -> bool:
        return bool(self._pending) and not (
            self._busy or self._held or self.reader is None or self.stopped is not None
        )

    def _start_group(self) -> bool:
        """It is this log's turn: begin a group. Returns False if the log no longer needs its turn."""
        if not self._ready:
            return False
        group = self._group = self._next_group()
        drafts = tuple(_drafts(group))
        wall = self._outbox.now.wall_us
        self._perform(lambda number: Append(number, self.key, drafts, wall), partial(self._appended, group))
        return True

    def submit(self, make: Callable[[int], Answered[T]]) -> Outcome[T]:
        """Request an action of this log. The log must not be busy; it is held unless this is the only step."""
        ended: Outcome[T] = Outcome()
        self._perform(make, ended.follow)
        return ended

    def change(self, make: Callable[[int], Answered[Changes]]) -> Outcome[None]:
        """As `submit`; the action's changes are visible when the step ends."""
        ended: Outcome[None] = Outcome()

        def changed(result: Outcome[Changes]) -> None:
            if result.error is not None:
                ended.fail(result.error)
            else:
                self.apply(result.value)
                ended.set(None)

        self._perform(make, changed)
        return ended

    def _perform(self, make: Callable[[int], Answered[T]], ended: Callable[[Outcome[T]], None]) -> None:
        """Plain calls, because every group comes here."""
        assert not self._busy, "a log does one thing at a time"
        self._busy = True
        result = self._outbox.submit(make)
        result.when_known(partial(self._performed, result, ended))

    def _performed(self, result: Outcome[T], ended: Callable[[Outcome[T]], None]) -> None:
        self._busy = False
        stopped = result.error if isinstance(result.error, LogStopped) else None
        if stopped is not None:
            self._stopped = (
                stopped  # the end of the log is unknown now; set before `ended`, which has to see it
            )
        ended(result)
        if stopped is not None:
            self.stop(stopped)
        self._call_next_holder()
        self.start()

    def apply(self, changes: Iterable[Change]) -> None:
        """Make changes on the disk visible to readers."""
        assert self.reader is not None
        for change in changes:
            self.reader.apply(change)

    def trim(self, earliest: int) -> None:
        """Hide the contents that retention is about to remove."""
        assert self.reader is not None
        self.reader.trim(earliest)

    def hold(self) -> Outcome[None]:
        """Start no further group. The step ends when no group is with the disk and this holder has its turn."""
        turn: Outcome[None] = Outcome()
        self._holders.append(turn)
        self._call_next_holder()
        return turn

    def release(self) -> None:
        """End one `hold`."""
        self._held = False
        self._call_next_holder()
        self.start()

    def _call_next_holder(self) -> None:
        if self._holders and not self._held and not self._busy:
            self._held = True
            self._holders.popleft().set(None)

    def _next_group(self) -> list[AcceptedContents]:
        group: list[AcceptedContents] = []
        cost = 0
        while self._pending and cost < broker_limits.GROUP_OCTETS:
            accepted = self._pending.popleft()
            cost += accepted.cost
            group.append(accepted)
        return group

    def _appended(self, group: list[AcceptedContents], result: Outcome[Changes]) -> None:
        self._group = []
        self._log_trouble(result.error)
        if result.error is not None:
            self._drop_lost(group)
        else:
            self.apply(result.value)
            self._confirm_group(group)
        afterwards, self._afterwards = self._afterwards, []
        for done in afterwards:
            done.set(None)
        self._turns.release()

    def _log_trouble(self, error: Exception | None) -> None:
        """Log an error once when it begins and once when it ends, because writers try again several times a
        second.
        """
        if error is not None and self._last_error is None:
            log.error("%s stores no contents; writers have to send them again: %s", self.key, error)
        elif error is None and self._last_error is not None:
            log.info("%s stores contents again", self.key)
        self._last_error = error

    def _confirm_group(self, group: list[AcceptedContents]) -> None:
        """A group is durable, and with it the echoes of its contents."""
        for accepted in group:
            self._inbound.remove(accepted.lease.share, accepted.cost)
            accepted.settle()
            if accepted.lease.confirmed_flow:
                self.numbers.set_durable(accepted.lease.key, accepted.last)
        echoes = [x for x in self._echoes if x.last <= self.numbers.durable(x.lease.key)]
        for echo in echoes:
            echo.settle()
        self._echoes = [x for x in self._echoes if not x.done]
        self._durable(self, [*group, *echoes])

    def _drop_lost(self, lost: list[AcceptedContents]) -> None:
        """Drop contents that were not stored, and the later pending ones of the same writers: with their higher
        numbers stored, contents that are sent again would count as duplicates. Their echoes are dropped, too.
        """
        keys = {x.lease.key: None for x in lost if x.lease.confirmed_flow}
        given_up = {id(x): x for x in lost}
        for accepted in self._pending:
            if accepted.lease.key in keys and accepted.lease.confirmed_flow:
                given_up[id(accepted)] = accepted
        self._pending = deque(x for x in self._pending if id(x) not in given_up)
        in_flight = {x.lease.key: x.last for x in self._group if x.lease.confirmed_flow}
        for key in keys:
            self.numbers.drop(key, in_flight.get(key, 0))
        for given in given_up.values():
            self._inbound.remove(given.lease.share, given.cost)
        echoes = [x for x in self._echoes if x.last > self.numbers.accepted(x.lease.key)]
        self._echoes = [x for x in self._echoes if x.last <= self.numbers.accepted(x.lease.key)]
        if given_up or echoes:
            self._failed([*given_up.values(), *echoes])


def _drafts(group: Iterable[AcceptedContents]) -> Iterable[Draft | NewChunk]:
    """The chunks of a group: a pack is one chunk, consecutive plain contents share one."""
    plain: list[AcceptedContents] = []
    contents = octets = 0
    for accepted in group:
        pack = accepted.properties is None
        contents += accepted.count
        octets += accepted.size
        if plain and (pack or contents > limits.MAX_PACK_CONTENTS or octets > limits.MAX_PACK):
            yield _plain_draft(plain)
            plain, contents, octets = [], accepted.count, accepted.size
        if pack:
            yield accepted.as_chunk()
            contents = octets = 0
        else:
            plain.append(accepted)
    if plain:
        yield _plain_draft(plain)


def _plain_draft(plain: list[AcceptedContents]) -> Draft:
    bodies = list(chain.from_iterable(x.bodies for x in plain))
    properties = None
    if any(x.properties != EMPTY for x in plain):
        properties = list(chain.from_iterable(repeat(x.properties or EMPTY, x.count) for x in plain))
    return Draft(bodies, properties, _runs(plain))


def _runs(group: Iterable[AcceptedContents]) -> tuple[RunEntry, ...]:
    """The numbers of named writers in a chunk, in order: contiguous numbers of one writer are one run."""
    runs: list[RunEntry] = []
    after: tuple[int, int] | None = None
    for accepted in group:
        writer = accepted.lease.key
        if not isinstance(writer, int) or not accepted.lease.confirmed_flow:
            after = None
            continue
        if after == (writer, accepted.first):
            runs[-1] = RunEntry(writer, runs[-1].first, runs[-1].count + accepted.count)
        else:
            runs.append(RunEntry(writer, accepted.first, accepted.count))
        after = (writer, accepted.last + 1)
    return tuple(runs)
