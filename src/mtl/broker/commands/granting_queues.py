"""Connection.Reader of a profile with competing readers: a consumer's queues and its window.

PROTOCOL.md 6.1. The queues of the resources in the request are durable before the 202 is sent, so that a queue that
begins at "latest" gets all contents from then on. Without resources the first Summon of each resource creates its
queue.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

from mtl.broker.access.caller import Caller
from mtl.broker.commands.granting import Granting, granted_window
from mtl.broker.leases.lease import LeaseTerms
from mtl.broker.queues import limits as queue_limits
from mtl.broker.queues.consumers import Consumers
from mtl.broker.queues.queue import Queue, QueueLease
from mtl.broker.queues.queues import Queues
from mtl.broker.reading.reads import Reads
from mtl.broker.steps import Outcome, gather
from mtl.broker.writing.resources import Resources, unknown
from mtl.errors import Refused
from mtl.profiles import Profile
from mtl.wire import control


class QueueGrants:
    """Grants reading leases on queues."""

    def __init__(
        self,
        granting: Granting,
        resources: Resources,
        queues: Queues,
        consumers: Consumers,
        reads: Reads,
    ) -> None:
        self._granting = granting
        self._resources = resources
        self._queues = queues
        self._consumers = consumers
        self._reads = reads

    async def consumer(
        self, caller: Caller, profile: Profile, request: control.ConnectionReader
    ) -> control.DataLease:
        """Grant a lease to consume; its resources exist. `from` is the start of new queues."""
        start = request.from_ if request.from_ is not None else "earliest"
        if start == "group":
            raise Refused(
                400,
                control.BAD_ARGUMENTS,
                "the queue exists and continues at its position; from is for a new queue only",
            )
        name = request.group or queue_limits.DEFAULT_QUEUE
        queues = [self._open(caller, x, name, start, request) for x in dict.fromkeys(request.resources)]
        terms = self._granting.terms(caller, profile, request)
        steps: list[Coroutine[Any, Any, None] | Outcome[None]] = [
            self._queues.save(q) for q in queues if not q.ahead
        ]
        steps += [self._reads.check(q.resource, at, terms.principal) for q in queues for at in _unread(q)]
        await gather(steps)
        return self._grant(terms, name, start, request, queues)

    def _open(
        self, caller: Caller, resource: str, name: str, start: int | str, request: control.ConnectionReader
    ) -> Queue:
        target = self._resources.need(caller.vhost, resource)
        if len(request.resources) == 1:
            target.check(request.incarnation)
        target.readable()
        queue = self._queues.of(target).get(name)
        if queue is None or queue.deleting:
            queue = self._queues.open(target, name, target.resolve(start), caller.principal)
        return queue

    def _grant(
        self,
        terms: LeaseTerms,
        name: str,
        start: int | str,
        request: control.ConnectionReader,
        queues: list[Queue],
    ) -> control.DataLease:
        for queue in queues:
            if self._resources.need(terms.vhost, queue.resource.name) is not queue.resource:
                raise unknown(queue.resource.name)  # deleted while its queue was being saved
        window = granted_window(request.window, queue_limits.MAX_QUEUE_WINDOW_CONTENTS)
        lease = QueueLease(terms, name, start, window)
        self._granting.grant(lease, lambda: None, partial(self._consumers.unbound, lease))
        return self._granting.data_lease(
            terms,
            packed=False,
            group=name,
            window=control.Window(contents=window[0], bytes=window[1]) if lease.full else None,
            incarnations={q.resource.name: q.resource.record.incarnation for q in queues},
        )


def _unread(queue: Queue) -> list[int]:
    """Contents of a queue that could not be read before, one of each range: they are tried again."""
    low = queue.state.settled.low
    return [max(first, low) for first, end in queue.resource.unread.places if end > low]
