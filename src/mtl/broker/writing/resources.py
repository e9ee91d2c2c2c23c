"""Resources: named append-only logs in virtual hosts. A name that is deleted and created again has another
incarnation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import compress

import msgspec

from mtl.broker.access.caller import Caller
from mtl.broker.access.patterns import matching, names_at_once
from mtl.broker.events import Event
from mtl.broker.outbox import Deletion, Outbox
from mtl.broker.queues import limits as queue_limits
from mtl.broker.quotas.pools import Pool
from mtl.broker.quotas.quotas import Quota, Quotas
from mtl.broker.sorted_keys import Page, SortedKeys
from mtl.broker.steps import Outcome, gather, run
from mtl.broker.writing.intake import Intake
from mtl.broker.writing.intakes import Intakes
from mtl.broker.writing.opening import LogOpening, Unopened
from mtl.broker.writing.resource import DEAD_LETTERS, Resource, ResourceKey, dead_letters_of
from mtl.errors import Refused, StorageError
from mtl.storage.api import CreateLog, DropLogs, LogKey, LogOptions, LogView
from mtl.storage.keys import log_key
from mtl.storage.records import ResourceRecord, encode_owner, record_key
from mtl.storage.unreadable import Unreadable
from mtl.wire import control


class Resources:
    """Every resource by virtual host and name. `auto_create`: patterns (`*`, `?`, `[...]`) of missing resources that a
    lease request creates.
    """

    def __init__(
        self,
        outbox: Outbox,
        random: Callable[[int], bytes],
        segment_bytes: int,
        auto_create: Sequence[str],
        intakes: Intakes,
        opening: LogOpening,
        unreadable: Unreadable,
        quotas: Quotas,
    ) -> None:
        self._outbox = outbox
        self._unreadable = unreadable
        self._quotas = quotas
        self._pool = Pool(quotas, Quota.RESOURCES)
        """The resources, and those whose creation has not ended."""
        self._random = random
        self._segment_bytes = segment_bytes
        self._auto_create = auto_create
        self._intakes = intakes
        self._opening = opening
        self.created: Event[[Resource]] = Event()
        self.deleted: Event[[Resource]] = Event()
        self.opened: Event[[Resource]] = Event()
        """The log of a resource was opened: its contents can be read."""
        self.grew: Event[[Resource]] = Event()
        """The visible end of a resource moved."""
        self.shrank: Event[[Resource]] = Event()
        """Retention, or a commit, has removed the oldest contents of a resource."""
        self._by_key: dict[ResourceKey, Resource] = {}
        self._keys: SortedKeys[ResourceKey] = SortedKeys()
        self._by_log: dict[LogKey, Resource] = {}
        self._creating: dict[ResourceKey, Outcome[Resource]] = {}
        self._undecided: dict[ResourceKey, Refused] = {}
        """The refusals of requests for resources whose creation or deletion has an unknown outcome."""

    # --- finding --------------------------------------------------------------------------------------------

    def find(self, vhost: str, name: str) -> Resource | None:
        """The resource of this name."""
        resource = self._by_key.get((vhost, name))
        return resource if resource is not None and not resource.deleting else None

    def need(self, vhost: str, name: str) -> Resource:
        """The resource of this name; raises `Refused` 404, and 503 while it is being deleted."""
        return self.need_all(vhost, (name,))[0]

    def need_all(self, vhost: str, names: Sequence[str]) -> list[Resource]:
        """The resources of these names. Raises `Refused` 404 with the unknown names, 503 while it is uncertain whether
        they exist.
        """
        resources = [self._by_key.get((vhost, name)) for name in names]
        for name, resource in zip(names, resources, strict=True):
            if (no := self._undecided.get((vhost, name))) is not None:
                raise no
            if resource is not None and resource.deleting:
                raise _being_deleted(resource)
        missing = [name for name, resource in zip(names, resources, strict=True) if resource is None]
        for name in missing:
            self._check_readable(vhost, name)
        if missing:
            raise unknown(*missing)
        return [resource for resource in resources if resource is not None]

    def is_present(self, vhost: str, name: str) -> bool:
        """Whether there is a resource of this name, or it is uncertain whether there is one."""
        key = (vhost, name)
        return key in self._by_key or key in self._undecided or self.is_unreadable(vhost, name)

    def listed(self, vhost: str, name: str) -> Resource | None:
        """The resource of this name for a list, where it stays until its deletion is durable."""
        return self._by_key.get((vhost, name))

    def undecided(self, vhost: str) -> dict[str, Refused]:
        """The names for which it is unknown whether there is a resource, with the refusals of requests for them."""
        return {name: no for (of, name), no in self._undecided.items() if of == vhost}

    def doubt(self, resource: Resource, no: Refused) -> None:
        """It is unknown for now whether a resource that is being deleted still exists: refuse requests for it."""
        self._undecided[resource.key] = no

    def route(self, vhost: str, name: str) -> Intake | None:
        """The intake of the resource of this name. During a deletion contents wait there for the outcome."""
        resource = self._by_key.get((vhost, name))
        return resource.intake if resource is not None else None

    def is_unreadable(self, vhost: str, name: str) -> bool:
        """Whether there may be a resource of this name whose record cannot be read."""
        gone = (vhost, name) not in self._by_key
        return gone and self._unreadable.reason(ResourceRecord, record_key(vhost, name)) is not None

    def _check_readable(self, vhost: str, name: str) -> None:
        if (vhost, name) not in self._by_key:
            self._unreadable.check(ResourceRecord, record_key(vhost, name), f"resource {name!r}")

    def durable(self, intake: Intake) -> None:
        """Contents of a log are durable. Those of a stage are not visible."""
        resource = self._by_log.get(intake.key)
        if resource is not None:
            self.grew(resource)

    def of_log(self, key: LogKey) -> Resource | None:
        """The resource with this log."""
        return self._by_log.get(key)

    def of_vhost(self, vhost: str) -> list[Resource]:
        """All resources of a virtual host, sorted by name."""
        resources = (r for (v, _), r in self._by_key.items() if v == vhost and not r.deleting)
        return sorted(resources, key=lambda r: r.name)

    def page(
        self,
        vhost: str,
        pattern: str | None,
        after: Sequence[str] | None,
        visible: Callable[[list[str]], Iterable[bool]],
        beginnings: Sequence[str],
    ) -> Page[ResourceKey]:
        """A page of the resources whose whole name matches the pattern, or of all without one, sorted by name, that
        have one of the `beginnings` and are `visible`. Raises `Refused` 400 (`patterns`).
        """

        def wanted(keys: list[ResourceKey]) -> list[bool]:
            names = [name for _, name in keys]
            matches = [True] * len(names) if pattern is None else matching(pattern, names)
            present = [
                match and self.listed(*key) is not None for key, match in zip(keys, matches, strict=True)
            ]
            shown = iter(list(visible(list(compress(names, present)))))
            return [there and next(shown) for there in present]

        return self._keys.page((vhost,), after, wanted, names_at_once(pattern), beginnings)

    def __iter__(self) -> Iterator[Resource]:
        return iter([r for r in self._by_key.values() if not r.deleting])

    async def ensure(self, caller: Caller, names: Iterable[str]) -> None:
        """Create the missing ones of these resources if `auto_create` matches. Raises `Refused` 404 if it does not."""
        vhost = caller.vhost
        missing = [n for n in dict.fromkeys(names) if self.find(vhost, n) is None]
        if not missing:
            return
        for name in missing:
            self._check_readable(vhost, name)
        barred = [n for n in missing if not any(fnmatchcase(n, glob) for glob in self._auto_create)]
        self.need_all(vhost, barred)
        await gather(
            self.create(vhost, control.ResourceCreate(resource=name, exist_ok=True), caller)
            for name in missing
        )

    # --- life -----------------------------------------------------------------------------------------------

    def restore(self, record: ResourceRecord, base: int | None = None) -> None:
        """Restore a resource from its record. Its log is opened later: up to `base`, if a commit to it was
        interrupted.
        """
        self._pool.add(record.owner)
        resource = self._add(record, self._intakes.create(log_key(record), None, {}, record.owner))
        self._opening.expect(
            Unopened(
                resource.intake,
                log_options(record, self._segment_bytes),
                earliest=record.earliest,
                base=base,
                owner=encode_owner(record),
                is_wanted=lambda: not resource.deleting,
                opened=lambda: self.opened(resource),
            )
        )

    async def create(
        self,
        vhost: str,
        request: control.ResourceCreate,
        caller: Caller | None = None,
        owner: str = "",
    ) -> Resource:
        """Create a resource, for a client or (None) for the broker itself: first its log, then, as the last durable
        step, its record. `owner` is the user that one of the broker's own counts for.

        A creation of the same resource that is in progress is joined. While its outcome is unknown for longer than a
        client waits, `Refused` 503 is raised.
        """
        key = (vhost, request.resource)
        present = self._by_key.get(key)
        if present is not None and present.deleting:
            raise self._undecided.get(key) or _being_deleted(present)
        if present is not None and request.exist_ok:
            return present
        if present is not None:
            raise _exists(request.resource)
        self._check_readable(*key)
        if request.dead_letter is not None:
            self._check_dead_letters(vhost, request.resource, request.dead_letter)
        joined = self._creating.get(key)
        if joined is None:
            return await self._begin(key, request, caller, owner)
        if key in self._undecided:
            raise self._undecided[key]
        resource = await joined
        if not request.exist_ok:
            raise _exists(request.resource)
        return resource

    def _begin(
        self, key: ResourceKey, request: control.ResourceCreate, caller: Caller | None, owner: str
    ) -> Outcome[Resource]:
        self._pool.check("" if caller is None else caller.principal)  # one of the broker's own has no quota
        owner = owner if caller is None else self._quotas.owner(caller.principal)
        self._pool.add(owner)
        incarnation = self._random(16).hex()
        record = ResourceRecord(
            *key,
            incarnation,
            incarnation,
            request.durability,
            request.retention,
            dead_letter=request.dead_letter,
            max_deliveries=request.max_deliveries,
            owner=owner,
        )
        answered = self._creating[key] = Outcome()
        run(self._create(key, record, caller, answered))
        return answered

    async def _create(
        self, key: ResourceKey, record: ResourceRecord, caller: Caller | None, answered: Outcome[Resource]
    ) -> None:
        """Create the log, and then the record. `answered` ends before if the outcome is unknown for long."""

        def unsure(error: StorageError) -> None:
            message = f"it is not known yet whether resource {key[1]!r} was made: {error}"
            self._undecided[key] = Refused(503, control.STORAGE, message)
            answered.fail(self._undecided[key])

        try:
            reader = await self._create_log(record)
            try:
                await self._outbox.save_surely((record,), (), (), unsure)
            except StorageError:
                reader.close()
                raise
        except StorageError as error:
            self._outbox.actions.append(DropLogs((log_key(record),)))
            self._pool.remove(record.owner)
            self._decided(key)
            if not answered.is_known:
                answered.fail(error)
            return
        resource = self._add(record, self._intakes.create(log_key(record), reader, {}, record.owner))
        self._outbox.audit.created(caller, record.vhost, record.name)
        self._decided(key)
        if not answered.is_known:
            answered.set(resource)
        self.created(resource)

    def _create_log(self, record: ResourceRecord) -> Outcome[LogView]:
        options = log_options(record, self._segment_bytes)
        return self._outbox.submit(
            lambda number: CreateLog(number, log_key(record), options, encode_owner(record), record.owner)
        )

    def _decided(self, key: ResourceKey) -> None:
        del self._creating[key]
        self._undecided.pop(key, None)

    def _check_dead_letters(self, vhost: str, resource: str, target: str) -> None:
        """Refused 400 if the dead letters of `target`, and of those in turn, would come back to `resource`."""
        path = [resource]
        while target not in path and len(path) <= queue_limits.DEAD_LETTER_CHAIN:
            path.append(target)
            letters = self.find(vhost, target)
            if letters is None and dead_letters_of(target) == DEAD_LETTERS:
                return
            target = dead_letters_of(target) if letters is None else letters.dead_letter
        if target == resource:
            raise Refused(
                400,
                control.BAD_ARGUMENTS,
                f"the dead letters of {resource!r} would come back to it, without end: "
                f"{' -> '.join([*path, target])}; choose another dead-letter resource",
            )

    def _add(self, record: ResourceRecord, intake: Intake) -> Resource:
        resource = Resource(record, intake)
        self._by_key[(record.vhost, record.name)] = resource
        self._keys.add(resource.key)
        self._by_log[intake.key] = resource
        return resource

    def prepare_deletion(self, resource: Resource) -> Deletion:
        """Prepare the deletion of a resource that is `deleting` and held: first its record, then its log."""

        def over(gone: bool) -> None:
            resource.deleting = gone
            self._undecided.pop(resource.key, None)
            if gone:
                self._remove(resource)
            resource.intake.release()

        return Deletion((resource.record,), over)

    def _remove(self, resource: Resource) -> None:
        intake = resource.intake
        if self._by_key.pop(resource.key, None) is not None:
            self._keys.discard(resource.key)
        self._by_log.pop(intake.key, None)
        self._pool.remove(resource.record.owner)
        self._opening.forget(intake)
        intake.stop(StorageError(f"resource {resource.name!r} was deleted"))
        if intake.reader is not None:
            intake.reader.close()
        self._outbox.actions.append(DropLogs((intake.key,)))
        self.deleted(resource)

    async def trimmed(self, resource: Resource, earliest: int) -> None:
        """Move `earliest` in the record, durably, so that files may be unlinked."""
        record = msgspec.structs.replace(resource.record, earliest=earliest)
        await self._outbox.save((record,))
        resource.record = record
        self.shrank(resource)


def log_options(record: ResourceRecord, segment_bytes: int) -> LogOptions:
    """The options of a resource's log."""
    age = record.retention.age if record.retention else None
    # An active segment has to roll before it can age out; a quarter of the age keeps the error at that.
    return LogOptions(
        segment_bytes=segment_bytes, segment_age_s=age / 4 if age else None, durability=record.durability
    )


def _exists(name: str) -> Refused:
    return Refused(409, control.EXISTS, f"resource {name!r} already exists", resource=name)


def _being_deleted(resource: Resource) -> Refused:
    return Refused(503, control.OVERLOADED, f"resource {resource.name!r} is being deleted; try again")


def unknown(*names: str) -> Refused:
    """The 404 for resources that do not exist."""
    listed = ", ".join(repr(n) for n in names)
    return Refused(
        404,
        control.UNKNOWN_RESOURCE,
        f"no such resource: {listed}; make it with Resource.Create (mtl resource create)",
        missing=list(names),
    )
