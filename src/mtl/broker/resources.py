"""Resources: named append-only logs in virtual hosts, each life of a name with an incarnation of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import compress
from typing import TYPE_CHECKING

import msgspec

from mtl import limits
from mtl.broker import actions as a
from mtl.broker.intake import Intake
from mtl.broker.outbox import Outbox, Result, refusal
from mtl.broker.patterns import matching
from mtl.broker.records import AnyRecord, ResourceRecord
from mtl.errors import Damaged, DataLoss, Refused, StorageError
from mtl.log import LogOptions, LogReader
from mtl.wire import control as w

if TYPE_CHECKING:
    from mtl.broker.queues import Queue
    from mtl.broker.readers import ReaderLease

ResourceKey = tuple[str, str]
"""(virtual host, name)."""

DEAD_SUFFIX = ".dead"
"""The dead letters of a resource go to one of its name with this behind it, unless it says otherwise."""

DEAD_LETTERS = "dead-letters"
"""Where they go when that name would be too long."""


class Resource:
    """One resource at work: its record, the way in (`intake`), who reads, and its queues by name.

    `damages` are the contents that turned out not to verify, by the first of them. Once `deleting` it is not found any
    more, though its record may still be there.
    """

    def __init__(self, record: ResourceRecord, intake: Intake) -> None:
        self.record = record
        self.intake = intake
        self.readers: dict[str, ReaderLease] = {}
        self.queues: dict[str, Queue] = {}
        self.damages: dict[int, Damaged] = {}
        self.deleting = False

    @property
    def name(self) -> str:
        """Its name within the virtual host."""
        return self.record.name

    @property
    def key(self) -> ResourceKey:
        """Its virtual host and its name."""
        return self.record.vhost, self.record.name

    @property
    def log(self) -> LogReader | None:
        """What can be read; None while it is stopped."""
        return self.intake.reader

    @property
    def end(self) -> int:
        """The end (exclusive) of what is synced, and so visible (PROTOCOL.md 5.2)."""
        return self.intake.reader.next if self.intake.reader is not None else self.record.earliest

    @property
    def earliest(self) -> int:
        """The first content that retention has left."""
        return self.intake.reader.earliest if self.intake.reader is not None else self.record.earliest

    @property
    def stopped(self) -> bool:
        """Whether it takes no contents: its log did not open, or must be opened again."""
        return self.log is None or self.intake.stopped is not None

    def readable(self, start: int | None = None) -> LogReader:
        """Its log; raises `Refused` 503 with the reason while it cannot be read, or not from `start`."""
        if self.log is None:
            raise Refused(503, w.STORAGE, f"resource {self.name!r} is stopped: {self.intake.stopped}")
        for first, damage in self.damages.items():
            if start is not None and first <= start < (damage.end or self.end):
                raise Refused(503, w.STORAGE, f"resource {self.name!r} cannot be read from {start}: {damage}")
        return self.log

    def writable(self) -> None:
        """Raises `Refused` 503 with the reason while it takes no contents."""
        if self.stopped:
            raise Refused(503, w.STORAGE, f"resource {self.name!r} is stopped: {self.intake.stopped}")

    def check(self, incarnation: str | None) -> None:
        """Raises `Refused` 409 when the caller means another life of this name."""
        if incarnation is not None and incarnation != self.record.incarnation:
            raise Refused(
                409,
                w.INCARNATION,
                f"resource {self.name!r} was deleted and made again: it is "
                f"{self.record.incarnation} now, not {incarnation}",
                resource=self.name,
                incarnation=self.record.incarnation,
                earliest=self.earliest,
                next=self.end,
            )

    def resolve(self, start: int | str) -> int:
        """A start as a sequence. Raises `DataLoss` for what is gone or was never there, `Refused` 400 below 1."""
        if start == "earliest":
            return self.earliest
        if start == "latest":
            return self.end
        sequence = int(start)
        if sequence < 1:
            raise Refused(400, w.BAD_ARGUMENTS, "sequences begin at 1")
        if sequence < self.earliest:
            raise DataLoss(self.name, sequence, self.earliest)
        if sequence > self.end:
            raise DataLoss(
                self.name,
                self.end,
                sequence,
                f"resource {self.name!r} ends before {self.end}; {sequence} was asked for: contents were lost, or the "
                "position belongs to another resource",
            )
        return sequence

    @property
    def dead_letter(self) -> str:
        """Where the dead letters of its queues go."""
        default = f"{self.name}{DEAD_SUFFIX}"
        fits = len(default.encode()) <= limits.MAX_SHORT_STRING
        return self.record.dead_letter or (default if fits else DEAD_LETTERS)

    @property
    def max_deliveries(self) -> int:
        """After how many deliveries its queues give a content up."""
        return self.record.max_deliveries or limits.QUEUE_DELIVERIES

    def describe(self) -> w.Description:
        """What Resource.Describe tells."""
        log = self.log
        return w.Description(
            resource=self.name,
            incarnation=self.record.incarnation,
            earliest=self.earliest,
            next=self.end,
            bytes=log.bytes if log else 0,
            contents=self.end - self.earliest,
            oldest_time=_oldest_time(log) if log else None,
            newest_time=log.last_time if log and self.end > self.earliest else None,
            durability=self.record.durability,
            retention=self.record.retention,
            state="stopped" if self.stopped else "serving",
            trouble=self.intake.trouble,
            dead_letter=self.record.dead_letter,
            max_deliveries=self.record.max_deliveries,
        )


def _oldest_time(log: LogReader) -> int | None:
    try:
        return log.oldest_time()
    except StorageError:
        return None  # whoever reads it is told; a description goes without


Opener = Callable[[a.LogKey, "LogReader | None", dict[int, int]], Intake]


class Resources:
    """Every resource by virtual host and name. `auto_create`: patterns (`*`, `?`, `[...]`) of names that a lease
    request makes when they are not there.
    """

    def __init__(
        self,
        outbox: Outbox,
        random: Callable[[int], bytes],
        segment_bytes: int,
        auto_create: Sequence[str],
        opener: Opener,
        came: Callable[[Resource], None],
        went: Callable[[Resource], None],
    ) -> None:
        self._outbox = outbox
        self._random = random
        self._segment_bytes = segment_bytes
        self._auto_create = auto_create
        self._opener = opener
        self._came = came
        self._went = went
        self._by_key: dict[ResourceKey, Resource] = {}
        self._by_log: dict[a.LogKey, Resource] = {}
        self._creating: dict[ResourceKey, list[Callable[[Resource | Refused], None]]] = {}

    # --- finding --------------------------------------------------------------------------------------------

    def find(self, vhost: str, name: str) -> Resource | None:
        """The resource of this name."""
        found = self._by_key.get((vhost, name))
        return found if found is not None and not found.deleting else None

    def need(self, vhost: str, name: str) -> Resource:
        """The resource of this name; raises `Refused` 404."""
        found = self.find(vhost, name)
        if found is None:
            raise unknown(name)
        return found

    def of_log(self, key: a.LogKey) -> Resource | None:
        """The resource whose log this is."""
        return self._by_log.get(key)

    def of_vhost(self, vhost: str) -> list[Resource]:
        """All of a virtual host, by name."""
        found = (r for (v, _), r in self._by_key.items() if v == vhost and not r.deleting)
        return sorted(found, key=lambda r: r.name)

    def matching(self, vhost: str, pattern: str | None) -> list[Resource]:
        """Those whose whole name matches the regular expression; all without one. Raises `Refused` 400 (`patterns`)."""
        found = self.of_vhost(vhost)
        if pattern is None:
            return found
        return list(compress(found, matching(pattern, [r.name for r in found])))

    def __iter__(self) -> Iterator[Resource]:
        return iter([r for r in self._by_key.values() if not r.deleting])

    def ensure(self, vhost: str, names: Iterable[str], then: Callable[[Refused | None], None]) -> None:
        """Call `then` when all of these are there, made by pattern where that is configured. Raises `Refused` 404."""
        missing = [n for n in dict.fromkeys(names) if self.find(vhost, n) is None]
        barred = [n for n in missing if not any(fnmatchcase(n, glob) for glob in self._auto_create)]
        if barred:
            raise unknown(*barred)
        outcomes: list[Resource | Refused] = []

        def made(outcome: Resource | Refused) -> None:
            outcomes.append(outcome)
            if len(outcomes) == len(missing):
                then(next((x for x in outcomes if isinstance(x, Refused)), None))

        if not missing:
            then(None)
        for name in missing:
            try:
                self.create(vhost, w.ResourceCreate(resource=name, exist_ok=True), made)
            except Refused as e:
                made(e)

    # --- life -----------------------------------------------------------------------------------------------

    def restore(
        self, record: ResourceRecord, opened: tuple[LogReader, dict[int, int]] | StorageError
    ) -> Resource:
        """A resource that was there when the broker started; a log that did not open makes it a stopped one."""
        key = log_key(record)
        if isinstance(opened, StorageError):
            intake = self._opener(key, None, {})
            intake.stopped = opened
        else:
            intake = self._opener(key, *opened)
        return self._keep(record, intake)

    def create(
        self, vhost: str, request: w.ResourceCreate, then: Callable[[Resource | Refused], None]
    ) -> None:
        """Make a resource: its log first, then, as the last durable step, its record."""
        key = (vhost, request.resource)
        present = self._by_key.get(key)
        if present is not None and present.deleting:
            raise Refused(503, w.OVERLOADED, f"resource {request.resource!r} is being deleted; try again")
        if present is not None and request.exist_ok:
            then(present)
            return
        if present is not None:
            raise _exists(request.resource)
        if key in self._creating:
            self._join(key, request, then)
            return
        if len(self._by_key) + len(self._creating) >= limits.MAX_RESOURCES:
            raise Refused(
                503, w.OVERLOADED, f"there are {limits.MAX_RESOURCES} resources, which is the limit"
            )
        self._creating[key] = [then]
        incarnation = self._random(16).hex()
        record = ResourceRecord(
            vhost,
            request.resource,
            incarnation,
            incarnation,
            request.durability,
            request.retention,
            dead_letter=request.dead_letter,
            max_deliveries=request.max_deliveries,
        )

        def created(reader: Result) -> None:
            if isinstance(reader, StorageError):
                self._not_created(key, record, reader)
            else:
                self._outbox.save_surely(
                    (record,), (), (), lambda saved: self._saved(key, record, reader, saved)
                )

        self._outbox.submit(
            lambda number: a.CreateLog(number, log_key(record), log_options(record, self._segment_bytes)),
            created,
        )

    def _join(
        self, key: ResourceKey, request: w.ResourceCreate, then: Callable[[Resource | Refused], None]
    ) -> None:
        """Somebody else is making it."""

        def made(outcome: Resource | Refused) -> None:
            there = isinstance(outcome, Resource) and not request.exist_ok
            then(_exists(request.resource) if there else outcome)

        self._creating[key].append(made)

    def _saved(self, key: ResourceKey, record: ResourceRecord, reader: LogReader, result: Result) -> None:
        if isinstance(result, StorageError):
            reader.close()
            self._not_created(key, record, result)
            return
        resource = self._keep(record, self._opener(log_key(record), reader, {}))
        self._created(key, resource)
        self._came(resource)

    def _not_created(self, key: ResourceKey, record: ResourceRecord, error: StorageError) -> None:
        self._outbox.actions.append(a.DropLogs((log_key(record),)))
        self._created(key, Refused(503, w.STORAGE, str(error)))

    def _created(self, key: ResourceKey, outcome: Resource | Refused) -> None:
        for then in self._creating.pop(key):
            then(outcome)

    def _keep(self, record: ResourceRecord, intake: Intake) -> Resource:
        resource = Resource(record, intake)
        self._by_key[(record.vhost, record.name)] = resource
        self._by_log[intake.key] = resource
        return resource

    def remove(
        self,
        resource: Resource,
        change: tuple[AnyRecord, AnyRecord] | None,
        then: Callable[[Refused | None], None],
    ) -> None:
        """Forget a resource that is `deleting`, durably, and then its log. Its leases and cursors are gone already.

        `change` is a record that names it, before and after; it changes in the same transaction.
        """
        before, put = ((), ()) if change is None else (change[:1], change[1:])

        def saved(result: Result) -> None:
            if not isinstance(result, StorageError):
                self._gone(resource)
            resource.intake.release()
            then(refusal(result))

        def held() -> None:
            record = resource.record  # as it is now: retention may have moved it on while this waited
            self._outbox.save_surely(put, (record,), (record, *before), saved)

        resource.intake.hold(held)

    def _gone(self, resource: Resource) -> None:
        intake = resource.intake
        self._by_key.pop(resource.key, None)
        self._by_log.pop(intake.key, None)
        intake.stop(StorageError(f"resource {resource.name!r} was deleted"))
        if intake.reader is not None:
            intake.reader.close()
        self._outbox.actions.append(a.DropLogs((intake.key,)))
        self._went(resource)

    def trimmed(self, resource: Resource, earliest: int, then: Callable[[bool], None]) -> None:
        """Move `earliest` in the record, durably; `then` is told whether it is, and may unlink."""
        record = msgspec.structs.replace(resource.record, earliest=earliest)

        def saved(result: Result) -> None:
            durable = not isinstance(result, StorageError)
            if durable:
                resource.record = record
            then(durable)

        self._outbox.save((record,), (), saved)


def log_key(record: ResourceRecord) -> a.LogKey:
    """Where the log of a resource lives: by an id of its own, so that a new life never meets an old one's files."""
    return f"resources/{record.log}"


def log_options(record: ResourceRecord, segment_bytes: int) -> LogOptions:
    """How the log of a resource is kept."""
    age = record.retention.age if record.retention else None
    # An active segment has to roll before it can age out; a quarter of the age keeps the error at that.
    return LogOptions(
        segment_bytes=segment_bytes, segment_age_s=age / 4 if age else None, durability=record.durability
    )


def _exists(name: str) -> Refused:
    return Refused(409, w.EXISTS, f"resource {name!r} is there already", resource=name)


def unknown(*names: str) -> Refused:
    """The 404 for resources that do not exist."""
    listed = ", ".join(repr(n) for n in names)
    return Refused(
        404,
        w.UNKNOWN_RESOURCE,
        f"no such resource: {listed}; make it with Resource.Create (mtl resource create)",
        missing=list(names),
    )
