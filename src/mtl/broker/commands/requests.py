"""Control requests: one short method per command of `table`.

Every method answers exactly once, now or when the disk is done (MTL-04); a `Refused` that it raises is the answer.
"""

from __future__ import annotations

from collections.abc import Callable

from mtl.broker.access.caller import Caller
from mtl.broker.access.session import Session
from mtl.broker.access.sessions import Sessions
from mtl.broker.commands.authorization import Authorization
from mtl.broker.commands.command import Command, Commands
from mtl.broker.commands.cursor_requests import CursorRequests
from mtl.broker.commands.granting import Answer, Granting, answering
from mtl.broker.commands.granting_readers import ReaderGrants
from mtl.broker.commands.granting_writers import WriterGrants
from mtl.broker.commands.listing import Listing, continued, describe
from mtl.broker.commands.needed_logs import NeededLogs
from mtl.broker.commands.polls import Polls
from mtl.broker.leases.leases import Leases
from mtl.broker.outbox import Outbox, remove
from mtl.broker.queues.queues import Queues
from mtl.broker.quotas.pools import Pool
from mtl.broker.quotas.quotas import Quota, Quotas
from mtl.broker.reading.cursors import Cursors, key_of
from mtl.broker.reading.reads import Reads
from mtl.broker.stages.committing import Committing
from mtl.broker.stages.stages import Stages
from mtl.broker.writing.ages import Ages
from mtl.broker.writing.resource import Resource, ResourceKey
from mtl.broker.writing.resources import Resources
from mtl.errors import Refused
from mtl.profiles import CommandClass, Profile
from mtl.storage.api import ChunkRef, Range, RangeFrom
from mtl.storage.records import CursorRecord
from mtl.wire import control as w


class Requests:
    """Calls the method for a request, and passes on its answer."""

    def __init__(
        self,
        outbox: Outbox,
        ages: Ages,
        sessions: Sessions,
        authorization: Authorization,
        needed: NeededLogs,
        leases: Leases,
        resources: Resources,
        cursors: Cursors,
        queues: Queues,
        stages: Stages,
        committing: Committing,
        listing: Listing,
        polls: Polls,
        granting: Granting,
        readers: ReaderGrants,
        writers: WriterGrants,
        reads: Reads,
        commands: Commands,
        quotas: Quotas,
    ) -> None:
        self._outbox = outbox
        self._quotas = quotas
        self._under_way = Pool(quotas, Quota.REQUESTS)
        """The requests that are not answered yet."""
        self._commands = commands
        self._sessions = sessions
        self._authorization = authorization
        self._needed = needed
        self._leases = leases
        self._resources = resources
        self._cursors = cursors
        self._queues = queues
        self._stages = stages
        self._committing = committing
        self._listing = listing
        self._polls = polls
        self._granting = granting
        self._readers = readers
        self._writers = writers
        self._reads = reads
        self._groups = CursorRequests(ages, listing, resources, cursors, reads)

    def handle(
        self, session: Session, request: w.Request, reply: Callable[[w.Reply | Refused], None]
    ) -> None:
        """Check the state of the session, carry the request out, and apply the answer to that state.

        The request keeps the principal and the virtual host that the session has now, even while it waits.
        """
        try:
            kind = session.control.check(request)
        except Refused as e:
            reply(self._sessions.challenge(session) if e.status == 401 else e)
            return

        def answer(outcome: w.Reply | Refused) -> None:
            outcome = self._listing.sealed(outcome)
            status = outcome.status if isinstance(outcome, Refused) else outcome.code
            session.control.replied(kind, status)
            reply(outcome)

        caller = session.caller
        owner = self._quotas.owner(caller.principal)

        def audit_and_answer(outcome: w.Reply | Refused) -> None:
            self._outbox.audit.answered(caller, request, outcome)
            answer(outcome)

        def finish(outcome: w.Reply | Refused) -> None:
            self._under_way.remove(owner)
            audit_and_answer(outcome)

        def carry_out() -> None:
            self._authorization.check(caller, request)
            command.method(self, caller, request, finish)

        def waited() -> None:
            answering(finish, carry_out)  # a right may have been revoked meanwhile

        def begin() -> None:
            self._authorization.check(caller, request)
            self._needed.opened(caller, request, waited)

        try:
            command = self._commands[type(request)]
            if command.session:
                command.method(self, session, request, answer)
                return
            _check_profile(caller, request, command)
            request = self._listing.opened(request)
        except Refused as e:
            answer(e)
            return
        try:
            self._under_way.check(caller.principal)
        except Refused as e:
            audit_and_answer(e)
            return
        self._under_way.add(owner)
        answering(finish, carry_out if self._needed.are_open else begin)

    # --- Connection -----------------------------------------------------------------------------------------

    def open(self, session: Session, request: w.ConnectionOpen, answer: Answer) -> None:
        """Connection.Open."""
        answer(self._sessions.open(session, request))

    def authorize(self, session: Session, request: w.ConnectionAuthorize, answer: Answer) -> None:
        """Connection.Authorize."""
        self._sessions.authorize(session, request, answer)

    def select(self, session: Session, request: w.ConnectionProfile, answer: Answer) -> None:
        """Connection.Profile."""
        answer(self._sessions.select(session, request))

    def reader(self, caller: Caller, request: w.ConnectionReader, answer: Answer) -> None:
        """Connection.Reader."""
        self._readers.reader(caller, _profile(caller), request, answer)

    def writer(self, caller: Caller, request: w.ConnectionWriter, answer: Answer) -> None:
        """Connection.Writer."""
        self._writers.writer(caller, _profile(caller), request, answer)

    def close_lease(self, caller: Caller, request: w.LeaseClose, answer: Answer) -> None:
        """Lease.Close."""
        self._granting.close(caller, request, answer)

    # --- Resource -------------------------------------------------------------------------------------------

    def create_resource(self, caller: Caller, request: w.ResourceCreate, answer: Answer) -> None:
        """Resource.Create."""

        def created(outcome: Resource | Refused) -> None:
            if isinstance(outcome, Refused):
                answer(outcome)
            else:
                describe(
                    self._reads,
                    [outcome],
                    lambda found: answer(w.ResourceCreated(resource=found[0])),
                    caller.principal,
                )

        self._resources.create(caller.vhost, request, created, caller)

    def list_resources(self, caller: Caller, request: w.ResourceList, answer: Answer) -> None:
        """Resource.List."""

        def described(entries: list[w.Description], last: ResourceKey | None) -> None:
            answer(w.DescriptionList(resources=entries, continue_=continued(last)))

        self._listing.describe_resources(caller, self._listing.page(caller, request), described)

    def delete_resource(self, caller: Caller, request: w.ResourceDelete, answer: Answer) -> None:
        """Its leases end; then it is deleted with its cursors, queues and stages in one transaction."""
        resource = self._resources.need(caller.vhost, request.resource)
        resource.check(request.incarnation)
        self._committing.part(resource)
        resource.deleting = True
        for lease in self._leases:
            concerned = lease.terms.vhost == caller.vhost and resource.name in lease.terms.resources
            if concerned and not lease.without(resource.name):
                self._leases.end(lease)

        def removed(no: Refused | None) -> None:
            if no is not None and resource.deleting:
                self._resources.doubt(resource, no)
            answer(no or w.Ok())

        def held() -> None:
            keys = [key_of(r) for r in self._cursors.all() if _is_cursor_of(r, caller.vhost, resource.name)]
            deletions = (
                self._resources.prepare_deletion(resource),
                self._committing.prepare_deletion(resource),
                self._cursors.prepare_deletion(keys),
                self._queues.prepare_deletion(list(self._queues.of(resource).values())),
                self._stages.prepare_deletion(self._stages.targeting(resource)),
            )
            remove(self._outbox, deletions, removed)

        resource.intake.hold(held)

    def describe_resources(self, caller: Caller, request: w.ResourceDescribe, answer: Answer) -> None:
        """Resource.Describe."""
        self._polls.describe(caller, request, answer)

    def locate(self, caller: Caller, request: w.ResourceLocate, answer: Answer) -> None:
        """Resource.Locate."""
        resource = self._resources.need(caller.vhost, request.resource)
        resource.check(request.incarnation)
        if request.timestamp is not None:
            self._locate_time(resource, request.timestamp, answer)
        else:
            self._locate_end(resource, request, answer)

    def _locate_time(self, resource: Resource, timestamp: int, answer: Answer) -> None:
        def found(ref: ChunkRef | None) -> None:
            sequence = resource.end if ref is None else max(ref.base, resource.earliest)
            answer(
                w.Located(
                    sequence=sequence,
                    log_epoch=resource.epoch_of(sequence),
                    timestamp=None if ref is None else ref.time_us,
                    match=ref is not None,
                )
            )

        self._reads.at_time(resource, timestamp, answer, found)

    def _locate_end(self, resource: Resource, request: w.ResourceLocate, answer: Answer) -> None:
        start = resource.resolve(request.start or 0, request.log_epoch)
        if start == resource.end:
            answer(w.Located(sequence=start, log_epoch=resource.epoch_of(start), match=False))
            return

        def found(within: Range) -> None:
            answer(
                w.Located(
                    sequence=within.end,
                    log_epoch=resource.epoch_of(within.end),
                    timestamp=within.time_us,
                    bytes=within.octets,
                )
            )

        self._reads.request(resource, RangeFrom(start, request.contents, request.bytes), answer, found)

    # --- Cursor ---------------------------------------------------------------------------------------------

    def open_cursor(self, caller: Caller, request: w.CursorOpen, answer: Answer) -> None:
        """Cursor.Open."""
        self._groups.open(caller, request, answer)

    def describe_cursors(self, caller: Caller, request: w.CursorDescribe, answer: Answer) -> None:
        """Cursor.Describe."""
        self._groups.describe(caller, request, answer)

    def reset_cursor(self, caller: Caller, request: w.CursorReset, answer: Answer) -> None:
        """Cursor.Reset."""
        self._groups.reset(caller, request, answer)

    def delete_cursor(self, caller: Caller, request: w.CursorDelete, answer: Answer) -> None:
        """Cursor.Delete."""
        self._groups.delete(caller, request, answer)

    # --- Queue ----------------------------------------------------------------------------------------------

    def describe_queues(self, caller: Caller, request: w.QueueDescribe, answer: Answer) -> None:
        """Queue.Describe."""
        self._listing.describe_queues(caller, request, answer)

    def delete_queue(self, caller: Caller, request: w.QueueDelete, answer: Answer) -> None:
        """Queue.Delete."""
        resource = self._resources.need(caller.vhost, request.resource)
        resource.check(request.incarnation)
        queue = self._queues.of(resource).get(request.group)
        if queue is None and self._queues.is_unreadable(resource, request.group):
            self._queues.forget(resource, request.group, lambda no: answer(no or w.Ok()))
            return
        if queue is None:
            raise Refused(
                404, w.UNKNOWN_QUEUE, f"resource {request.resource!r} has no queue {request.group!r}"
            )
        if queue.deleting:
            raise Refused(503, w.OVERLOADED, f"queue {queue.name!r} is being deleted; try again")
        if queue.consumers:
            raise Refused(
                409,
                w.IN_USE,
                f"queue {queue.name!r} of {resource.name!r} has {len(queue.consumers)} consumers",
            )
        self._queues.delete([queue], lambda no: answer(no or w.Ok()))

    # --- Stage ----------------------------------------------------------------------------------------------

    def commit(self, caller: Caller, request: w.StageCommit, answer: Answer) -> None:
        """Stage.Commit."""
        self._committing.commit(caller.vhost, caller.principal, request, answer)

    def abort_stages(self, caller: Caller, request: w.StageAbort, answer: Answer) -> None:
        """Stage.Abort."""
        found = [self._stages.find(caller.vhost, name) for name in request.stages]
        self._stages.discard([s for s in found if s is not None], lambda no: answer(no or w.Ok()))

    def describe_stages(self, caller: Caller, request: w.StageDescribe, answer: Answer) -> None:
        """Stage.Describe."""
        self._listing.describe_stages(caller, request, answer)

    def forget_application(self, caller: Caller, request: w.StageForget, answer: Answer) -> None:
        """Stage.Forget."""
        self._committing.forget(caller.vhost, request.application, lambda no: answer(no or w.Ok()))


def _check_profile(caller: Caller, request: w.Request, command: Command) -> None:
    """Raises `Refused` 501 for a command that the profile does not have (MTL-40)."""
    if command.of is not CommandClass.CONNECTION and command.of not in _profile(caller).classes:
        raise Refused(
            501, w.UNKNOWN_COMMAND, f'the profile "{_profile(caller).name}" has no {request.command}'
        )


def _profile(caller: Caller) -> Profile:
    if caller.profile is None:  # the state table of sessions does not admit such requests
        raise Refused(400, w.NO_PROFILE, "send Connection.Profile first")
    return caller.profile


def _is_cursor_of(record: CursorRecord, vhost: str, resource: str) -> bool:
    return record.vhost == vhost and record.resource == resource
