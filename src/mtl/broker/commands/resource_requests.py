"""Requests of the classes Resource and Queue, except the lists and descriptions of `listing` and `polls`.

PROTOCOL.md 5.1, 6.
"""

from __future__ import annotations

from mtl.broker.access.caller import Caller
from mtl.broker.commands.listing import describe
from mtl.broker.leases.leases import Leases
from mtl.broker.outbox import Outbox, remove
from mtl.broker.queues.queues import Queues
from mtl.broker.reading.cursors import Cursors, key_of
from mtl.broker.reading.reads import Reads
from mtl.broker.stages.commits import Commits
from mtl.broker.stages.stages import Stages
from mtl.broker.writing.resource import Resource
from mtl.broker.writing.resources import Resources
from mtl.errors import Refused
from mtl.storage.api import RangeFrom
from mtl.storage.records import CursorRecord
from mtl.wire import control


class ResourceRequests:
    """A method per request."""

    def __init__(
        self,
        outbox: Outbox,
        leases: Leases,
        resources: Resources,
        cursors: Cursors,
        queues: Queues,
        stages: Stages,
        commits: Commits,
        reads: Reads,
    ) -> None:
        self._outbox = outbox
        self._leases = leases
        self._resources = resources
        self._cursors = cursors
        self._queues = queues
        self._stages = stages
        self._commits = commits
        self._reads = reads

    async def create(self, caller: Caller, request: control.ResourceCreate) -> control.ResourceCreated:
        """Resource.Create: a resource that exists already may be described instead."""
        created = await self._resources.create(caller.vhost, request, caller)
        (described,) = await describe(self._reads, [created], caller.principal)
        return control.ResourceCreated(resource=described)

    async def delete(self, caller: Caller, request: control.ResourceDelete) -> control.Ok:
        """Resource.Delete. Its leases end; then it, its cursors, queues and stages are deleted in one transaction."""
        resource = self._resources.need(caller.vhost, request.resource)
        resource.check(request.incarnation)
        self._commits.part(resource)
        resource.deleting = True
        for lease in self._leases:
            concerned = lease.terms.vhost == caller.vhost and resource.name in lease.terms.resources
            if concerned and not lease.without(resource.name):
                self._leases.end(lease)
        await resource.intake.hold()
        keys = [key_of(r) for r in self._cursors.all() if _is_cursor_of(r, caller.vhost, resource.name)]
        deletions = (
            self._resources.prepare_deletion(resource),
            self._commits.prepare_deletion(resource),
            self._cursors.prepare_deletion(keys),
            self._queues.prepare_deletion(list(self._queues.of(resource).values())),
            self._stages.prepare_deletion(self._stages.targeting(resource)),
        )
        try:
            await remove(self._outbox, deletions)
        except Refused as unknown:  # the outcome
            self._resources.doubt(resource, unknown)
            raise
        return control.Ok()

    async def locate(self, caller: Caller, request: control.ResourceLocate) -> control.Located:
        """Resource.Locate: the sequence at a time, or after contents or octets."""
        resource = self._resources.need(caller.vhost, request.resource)
        resource.check(request.incarnation)
        if request.timestamp is not None:
            return await self._locate_time(resource, request.timestamp, caller.principal)
        return await self._locate_end(resource, request, caller.principal)

    async def _locate_time(self, resource: Resource, timestamp: int, principal: str) -> control.Located:
        ref = await self._reads.at_time(resource, timestamp, principal)
        sequence = resource.end if ref is None else max(ref.base, resource.earliest)
        return control.Located(
            sequence=sequence,
            log_epoch=resource.epoch_of(sequence),
            timestamp=None if ref is None else ref.time_us,
            match=ref is not None,
        )

    async def _locate_end(
        self, resource: Resource, request: control.ResourceLocate, principal: str
    ) -> control.Located:
        start = resource.resolve(request.start or 0, request.log_epoch)
        if start == resource.end:
            return control.Located(sequence=start, log_epoch=resource.epoch_of(start), match=False)
        within = await self._reads.ask(resource, RangeFrom(start, request.contents, request.bytes), principal)
        return control.Located(
            sequence=within.end,
            log_epoch=resource.epoch_of(within.end),
            timestamp=within.time_us,
            bytes=within.octets,
        )

    async def delete_queue(self, caller: Caller, request: control.QueueDelete) -> control.Ok:
        """Queue.Delete: of a queue without consumers."""
        resource = self._resources.need(caller.vhost, request.resource)
        resource.check(request.incarnation)
        queue = self._queues.of(resource).get(request.group)
        if queue is None and self._queues.is_unreadable(resource, request.group):
            await self._queues.forget(resource, request.group)
            return control.Ok()
        if queue is None:
            raise Refused(
                404, control.UNKNOWN_QUEUE, f"resource {request.resource!r} has no queue {request.group!r}"
            )
        if queue.deleting:
            raise Refused(503, control.OVERLOADED, f"queue {queue.name!r} is being deleted; try again")
        if queue.consumers:
            raise Refused(
                409,
                control.IN_USE,
                f"queue {queue.name!r} of {resource.name!r} has {len(queue.consumers)} consumers",
            )
        await self._queues.delete([queue])
        return control.Ok()


def _is_cursor_of(record: CursorRecord, vhost: str, resource: str) -> bool:
    return record.vhost == vhost and record.resource == resource
