"""Contents on their way into one log: duplicates, the waiting line, group commit.

One intake per resource and per staged log. At most one group of a log is with the disk at any time; what arrives
meanwhile is the next group. That is all there is to group commit: under load groups grow, idle they are one content.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from mtl import limits
from mtl.broker import actions as a
from mtl.broker.outbox import Outbox, Result
from mtl.errors import LogStopped, StorageError
from mtl.log import Change, LogOptions, LogReader, RunEntry
from mtl.wire.commands import Buffer

if TYPE_CHECKING:
    from mtl.broker.writers import WriterLease

WriterKey = int | str
"""Who numbers contents: a named writer's id, `STAGE_WRITER` in a staged log, or an unnamed lease's token."""


class Arrival:
    """One Content that was taken in: a pack, or one plain content."""

    __slots__ = ("body", "count", "done", "first", "intake", "last", "lease", "pack", "properties", "size")

    def __init__(
        self,
        lease: WriterLease,
        intake: Intake,
        first: int,
        count: int,
        body: Buffer,
        size: int,
        properties: bytes | None,
    ) -> None:
        self.lease = lease
        self.intake = intake
        self.first = first
        self.last = first + count - 1
        self.count = count
        self.body = body
        self.size = size
        self.properties = properties  # None: `body` is a pack
        self.done = False


class Intake:
    """The way into one log. `arrived` is told of every durable group: (arrivals, change)."""

    def __init__(
        self,
        outbox: Outbox,
        key: a.LogKey,
        reader: LogReader | None,
        last: dict[int, int],
        durable: Callable[[Intake, list[Arrival]], None],
        refused: Callable[[list[Arrival]], None],
    ) -> None:
        self._outbox = outbox
        self.key = key
        self.reader = reader
        self.last: dict[WriterKey, int] = dict(last.items())
        self.taken: dict[WriterKey, int] = self.last.copy()
        self.pending: deque[Arrival] = deque()
        self.octets = 0
        self.stopped: StorageError | None = None
        self.options: LogOptions | None = None
        """How to make the log, while there is none."""
        self._writing: list[Arrival] = []
        self._echoes: list[Arrival] = []
        self._durable = durable
        self._refused = refused
        self._busy = False
        self._held = False
        self._holders: deque[Callable[[], None]] = deque()

    # --- in -------------------------------------------------------------------------------------------------

    def add(self, arrival: Arrival) -> None:
        """Take a content in; its group starts with the next `start`."""
        self.pending.append(arrival)
        self.octets += arrival.size
        if arrival.lease.confirmed_flow:
            self.taken[arrival.lease.key] = arrival.last

    def echo(self, arrival: Arrival) -> None:
        """A duplicate whose original may not be durable yet: done when the original is (profiles.md "Writers")."""
        if arrival.last <= self.last.get(arrival.lease.key, 0):
            arrival.done = True
        else:
            self._echoes.append(arrival)

    def cancel(self, lease: WriterLease, first: int) -> None:
        """Forget the waiting contents of a lease from number `first` on: they will be sent again."""
        kept = deque(x for x in self.pending if x.lease is not lease or x.first < first)
        if len(kept) != len(self.pending):
            self.octets -= sum(x.size for x in self.pending) - sum(x.size for x in kept)
            self.pending = kept
        self._recount(lease.key)

    def _recount(self, key: WriterKey) -> None:
        coming = [x.last for x in (*self._writing, *self.pending) if x.lease.key == key]
        self.taken[key] = max([self.last.get(key, 0), *coming])

    def forget(self, key: WriterKey) -> None:
        """An unnamed lease ended: its numbers mean nothing any more."""
        self.last.pop(key, None)
        self.taken.pop(key, None)

    # --- groups ---------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether something of this log is with the disk."""
        return self._busy

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is with the disk."""
        return not self._busy and not self.pending

    def start(self) -> None:
        """Hand the next group to the disk if none is there and nobody holds the log."""
        if self._busy or self.held or not self.pending or self.stopped is not None:
            return
        if self.reader is None:
            self._create()
            return
        group = self._writing = self._next_group()
        drafts = tuple(_drafts(group))
        wall = self._outbox.now.wall_us
        self.submit(
            lambda number: a.Append(number, self.key, drafts, wall),
            lambda result: self._appended(group, result),
        )

    def submit(self, make: Callable[[int], a.Action], then: Callable[[Result], None]) -> None:
        """Give this log something to do; only while it is not busy."""
        self._busy = True

        def answered(result: Result) -> None:
            self._busy = False
            if isinstance(result, LogStopped):
                self.stopped = result
            then(result)
            if self.stopped is not None:
                self._give_back(self._all_pending())
            self._next_holder()
            self.start()

        self._outbox.submit(make, answered)

    def apply(self, change: Change) -> None:
        """What the disk did becomes what readers see."""
        assert self.reader is not None
        self.reader.apply(change)

    def hold(self, then: Callable[[], None]) -> None:
        """Start no further group, and call `then` when nothing is with the disk; `release` ends it.

        One at a time, in the order of the calls: what a holder finds is true until it lets go.
        """
        self._holders.append(then)
        self._next_holder()

    def release(self) -> None:
        """End one `hold`."""
        self._held = False
        self._next_holder()
        self.start()

    @property
    def held(self) -> bool:
        """Whether somebody holds the log, or is about to."""
        return self._held or bool(self._holders)

    def _next_holder(self) -> None:
        if self._holders and not (self._held or self._busy):
            self._held = True
            self._holders.popleft()()

    def _next_group(self) -> list[Arrival]:
        group: list[Arrival] = []
        octets = 0
        while self.pending and octets < limits.GROUP_OCTETS:
            arrival = self.pending.popleft()
            octets += arrival.size
            group.append(arrival)
        self.octets -= sum(x.size for x in group)
        return group

    def _appended(self, group: list[Arrival], result: Result) -> None:
        self._writing = []
        if isinstance(result, StorageError):
            self._give_back(group)
            return
        self.apply(result)
        for arrival in group:
            arrival.done = True
            if arrival.lease.confirmed_flow:
                self.last[arrival.lease.key] = arrival.last
        if self._echoes:
            for echo in self._echoes:
                echo.done = echo.last <= self.last.get(echo.lease.key, 0)
            group = group + [x for x in self._echoes if x.done]
            self._echoes = [x for x in self._echoes if not x.done]
        self._durable(self, group)

    def _create(self) -> None:
        """The log of a stage is made with its first content; when that fails, with the next attempt to send it."""
        options = self.options
        if options is None:
            return

        def created(result: Result) -> None:
            if isinstance(result, StorageError):
                self._give_back(self._all_pending())
            else:
                self.reader = result

        self.submit(lambda number: a.CreateLog(number, self.key, options), created)

    def _all_pending(self) -> list[Arrival]:
        pending = list(self.pending)
        self.pending.clear()
        self.octets = 0
        return pending

    def _give_back(self, group: list[Arrival]) -> None:
        """Nothing of this was kept: its writers are to send it again, and what was to be confirmed with it."""
        for key in {x.lease.key: None for x in group}:
            self._recount(key)
        self._refused(group)
        echoes, self._echoes = self._echoes, []
        if echoes:
            self._refused(echoes)


def _drafts(group: Iterable[Arrival]) -> Iterable[a.Draft]:
    """Chunks out of arrivals: a pack stays what it is, neighbouring plain contents share a chunk."""
    plain: list[Arrival] = []
    octets = 0
    for arrival in group:
        if arrival.properties is None:
            if plain:
                yield _plain_draft(plain)
                plain, octets = [], 0
            yield a.Draft(arrival.count, arrival.body, (), _runs((arrival,)))
            continue
        if len(plain) == limits.MAX_PACK_CONTENTS or (plain and octets + arrival.size > limits.MAX_PACK):
            yield _plain_draft(plain)
            plain, octets = [], 0
        plain.append(arrival)
        octets += arrival.size
    if plain:
        yield _plain_draft(plain)


def _plain_draft(plain: list[Arrival]) -> a.Draft:
    contents = tuple((x.properties or b"", x.body) for x in plain)
    return a.Draft(len(plain), None, contents, _runs(plain))


def _runs(arrivals: Iterable[Arrival]) -> tuple[RunEntry, ...]:
    """Which writer's numbers a chunk holds, in order: contiguous numbers of one writer are one run."""
    runs: list[RunEntry] = []
    after: tuple[int, int] | None = None
    for arrival in arrivals:
        writer = arrival.lease.key
        if not isinstance(writer, int) or not arrival.lease.confirmed_flow:
            after = None
            continue
        if after == (writer, arrival.first):
            runs[-1] = RunEntry(writer, runs[-1].first, runs[-1].count + arrival.count)
        else:
            runs.append(RunEntry(writer, arrival.first, arrival.count))
        after = (writer, arrival.last + 1)
    return tuple(runs)
