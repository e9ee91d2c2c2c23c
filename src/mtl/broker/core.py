"""The broker's decisions, as one plain object: frames, disk results and the time in; frames and disk requests out.

There is no socket, thread, file or clock below this line. The loop in `runtime.server` (or a simulator) calls one of
the inputs, then carries out `take()`, and so on; the same inputs give the same outputs.

    control(frames)        a message on the control socket        completed(n, result)    an action was carried out
    data(peer, h, b)       a message on a data socket             blocked(...), unsent(...), unreachable(peer)
    burst(peer, ...)       several of one peer                    users(records)          who may do what has changed
    disconnected(c)        a connection has ended
    tick()                 time has passed                        close()                 stop cleanly

What belongs to whom:

    sessions   who is talking, under which profile        resources  named logs and their incarnations
    authentication, accounts   who that is, and may do    authorization  which right each request needs
    requests   one method per control command             intake     contents on their way into one log
    opening, needed_logs   logs that are not open yet, and which of them a request waits for
    polls      who waits for news of which resource       publishing a commit under way, step by step
    granting*  what a Reader or Writer request gets       stages, committing   invisible contents, made visible
    leases     tokens, binding, expiry                    cursors, names       who holds a group, a writer's name
    ages       how old things are, whatever the clock does
    flows      what a data command means to a lease       housekeeping         retention, names that are not used
    idle       recording where logs end that are idle
    writers / readers / fanout   contents in / contents out / the `test` profile
    queues, consumers            who has which content of a queue (`queue_state`), `dead_letters` what nobody took
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from mtl import limits
from mtl.broker import actions as a
from mtl.broker.access.accounts import Accounts
from mtl.broker.access.audit import AUDIT_SUMMARY_S
from mtl.broker.access.quotas import Quotas
from mtl.broker.access.sessions import Sessions
from mtl.broker.ages import CLOCK_NOTE_S, Ages
from mtl.broker.commands.authorization import Authorization
from mtl.broker.commands.granting import Granting
from mtl.broker.commands.granting_queues import QueueGrants
from mtl.broker.commands.granting_readers import ReaderGrants
from mtl.broker.commands.granting_writers import WriterGrants
from mtl.broker.commands.needed_logs import NeededLogs
from mtl.broker.commands.polls import Polls
from mtl.broker.commands.requests import Requests
from mtl.broker.flows import Flows, Readings
from mtl.broker.housekeeping import Housekeeping
from mtl.broker.leases.leases import Leases
from mtl.broker.outbox import Outbox, Result
from mtl.broker.queues import limits as queue_limits
from mtl.broker.queues.consumers import Consumers
from mtl.broker.queues.dead_letters import DeadLetters
from mtl.broker.queues.queue import QueueLease
from mtl.broker.queues.queues import Queues
from mtl.broker.reading.cursors import Cursors
from mtl.broker.reading.fanout import Fanout, FanoutLease
from mtl.broker.reading.readers import ReaderLease, Readers
from mtl.broker.recurring import Recurring
from mtl.broker.settings import Settings
from mtl.broker.stages.committing import Committing
from mtl.broker.stages.stages import Stages
from mtl.broker.usage import USAGE_CHECK_S, Usage
from mtl.broker.writing.idle import Idle
from mtl.broker.writing.intake import Arrival, Inbound, Intake
from mtl.broker.writing.names import Names
from mtl.broker.writing.opening import Opening
from mtl.broker.writing.resource import Resource
from mtl.broker.writing.resources import Resources
from mtl.broker.writing.space import Space
from mtl.broker.writing.turns import Turns
from mtl.broker.writing.writers import Packs, WriterLease, Writers
from mtl.errors import Malformed, Refused, StorageError
from mtl.net.origin import NOBODY, Connection, Origin
from mtl.protocol.sasl.server import ANONYMOUS_USER
from mtl.storage import records as kept
from mtl.storage.api import ChunkRef, LogKey, LogOptions, LogView, Restored
from mtl.storage.unreadable import Unreadable
from mtl.wire import commands as c
from mtl.wire import control as w

T = TypeVar("T")


class Broker:
    """All of the above, put together. `ready` once every commit that a crash interrupted is in place again."""

    def __init__(
        self,
        settings: Settings,
        restored: Restored,
        random: Callable[[int], bytes],
        check_pack: Packs,
        now: a.Now,
    ) -> None:
        self._outbox = out = Outbox()
        out.now = now
        self.audit = out.audit
        self._dirty: dict[str, Intake] = {}
        self._inbound = Inbound()
        self._space = Space(settings.low_watermark)
        self._turns = Turns(limits.COMMIT_THREADS)
        options = LogOptions(segment_bytes=settings.segment_bytes)
        records = restored.records
        unlimited = [ANONYMOUS_USER] if settings.authentication.anonymous is True else []
        unreadable = Unreadable(restored.damages)
        self.accounts = Accounts(settings.authentication.secret, unlimited, unreadable)
        self.accounts.replace(_of(records, kept.UserRecord))
        quotas = Quotas(settings.quotas, self.accounts.is_unlimited)
        self.opening = opening = Opening(out)
        self.leases = leases = Leases(out, random, settings.lease_unbound_s, quotas)
        self.writers = Writers(self._inbound, check_pack, self._mark_dirty)
        self.readers = Readers(out, leases.fail)
        self.fanout = Fanout(self._relay)
        self.resources = resources = Resources(
            out,
            random,
            settings.segment_bytes,
            settings.auto_create,
            self._open_intake,
            opening,
            self._opened,
            lambda resource: self.polls.came(resource),  # noqa: PLW0108 there are no polls yet
            lambda resource: self.polls.went(resource),  # noqa: PLW0108
            unreadable,
            quotas,
        )
        self.cursors = Cursors(out, _of(records, kept.CursorRecord), leases.end, unreadable)
        self.queues = Queues(out, random, resources, unreadable)
        self.consumers = Consumers(out, opening, self.queues, resources, leases.fail)
        self.dead_letters = DeadLetters(
            opening, resources, self.queues, self._inbound, self._space, self._mark_dirty
        )
        noted = next(iter(_of(records, kept.ClockRecord)), None)
        self._ages = ages = Ages(out, noted, settings.machine)
        self.stages = Stages(
            out, random, self._open_intake, opening, options, ages, self._end_lease, unreadable, quotas
        )
        self.names = Names(out, random, _of(records, kept.WriterRecord), leases.end, unreadable, quotas)
        self.committing = Committing(out, resources, self.stages, opening, self._grew, unreadable)
        self.sessions = Sessions(
            out,
            random,
            settings.virtual_hosts,
            self.accounts,
            quotas,
            settings.authentication,
            settings.boot,
            settings.heartbeat_s,
            leases.in_use,
            self._session_ended,
            leases.end_session,
        )
        authorization = Authorization(self.accounts, resources, self.stages, self.committing)
        self.granting = granting = Granting(
            out,
            self.accounts,
            authorization,
            self._space,
            leases,
            self.stages,
            settings.ports,
            settings.heartbeat_s,
            self.sessions.principal,
        )
        self._usage = Usage(out, self.accounts, quotas, leases, resources, self.stages)
        self.writer_grants = WriterGrants(
            granting, leases, opening, resources, self.stages, self.names, self._usage, settings.local_writes
        )
        self.polls = Polls(out, resources, authorization, quotas)
        self.requests = Requests(
            out,
            ages,
            self.sessions,
            authorization,
            opening,
            NeededLogs(authorization, resources, self.cursors, self.queues, self.stages),
            leases,
            resources,
            self.cursors,
            self.queues,
            self.stages,
            self.committing,
            self.polls,
            granting,
            ReaderGrants(
                granting,
                resources,
                self.readers,
                self.fanout,
                self.cursors,
                QueueGrants(granting, resources, self.queues, self.consumers),
                settings.local_reads,
            ),
            self.writer_grants,
        )
        readings: dict[type, Readings] = {
            ReaderLease: self.readers,
            FanoutLease: self.fanout,
            QueueLease: self.consumers,
        }
        self.flows = Flows(
            out, leases, self.writers, self.fanout, readings, settings.heartbeat_s, settings.packs_on
        )
        self.idle_logs = Idle(out)
        self.housekeeping = Housekeeping(
            out, resources, self.cursors, self.readers, self.queues, self.committing, self.names, ages
        )
        self.counts = {"malformed": 0}
        self._redoing = 0
        self._closing = False
        self._restore(restored.records)
        opening.begin()
        self._recurring = self._schedule(settings.heartbeat_s)
        self._recurring.look()

    # --- inputs ---------------------------------------------------------------------------------------------

    def control(self, frames: Sequence[bytes], now: a.Now, origin: Origin = NOBODY) -> None:
        """One message on the control socket: identity, envelope, an empty frame, command, body (PROTOCOL.md 1); and who
        it came from, as far as the transport knows.
        """
        self._outbox.now = now
        try:
            end = frames.index(b"", 1) + 1
        except ValueError:
            self.counts["malformed"] += 1
            return
        envelope = tuple(frames[:end])
        try:
            request = w.decode_request(frames[end:])
        except Malformed:
            self.counts["malformed"] += 1  # dropped in silence (MTL-50, MTL-51)
            return
        except Refused as e:
            self._outbox.reply(envelope, e)
            return
        session = self.sessions.find(frames[0], origin, request)
        self.requests.handle(session, request, lambda reply: self._outbox.reply(envelope, reply))

    def data(
        self, peer: a.Peer, header: bytes, body: c.Buffer, now: a.Now, connection: Connection = ""
    ) -> None:
        """One message of two frames on a data socket, and the connection that it came on. Messages of other frames are
        dropped by the loop, and counted there (MTL-110).
        """
        self._outbox.now = now
        self.flows.received(peer, header, body, connection)

    def burst(
        self,
        peer: a.Peer,
        headers: Sequence[bytes],
        bodies: Sequence[c.Buffer],
        now: a.Now,
        connection: Connection = "",
    ) -> None:
        """Several such messages of one peer and one connection, in their order."""
        self._outbox.now = now
        self.flows.burst(peer, headers, bodies, connection)

    def disconnected(self, connection: Connection, now: a.Now) -> None:
        """A connection has ended, and with it its data flow; its leases wait for another one."""
        self._outbox.now = now
        self.flows.disconnected(connection)

    def users(self, records: Sequence[kept.UserRecord], now: a.Now) -> None:
        """The users and their grants as they are from now on. Whoever has another password, or is gone, has to
        authenticate again; leases that would not be granted any more end.
        """
        self._outbox.now = now
        before = self.accounts.all
        changes = self.accounts.replace(records)
        self.audit.users(before, self.accounts.all)
        self.sessions.users_changed(changes)
        self.granting.revoke(changes)

    def room(self, free: int, total: int, now: a.Now) -> None:
        """What the file system of the data directory has free, in octets. Too little ends writing leases."""
        self._outbox.now = now
        self._space.measured(free, total)
        if self._space.is_low:
            self.granting.end_writers()

    def completed(self, number: int, result: Result, now: a.Now) -> None:
        """An action was carried out, or failed with a `StorageError`."""
        self._outbox.now = now
        self._outbox.completed(number, result)

    def blocked(self, lease: str, sequence: int, now: a.Now) -> None:
        """A `Deliver` got no further than before `sequence`: the peer's queue is full."""
        self._outbox.now = now
        found = self.leases.find(lease)
        if isinstance(found, ReaderLease):
            self.readers.blocked(found, sequence)
        elif isinstance(found, QueueLease):
            self.consumers.blocked(found, sequence)

    def unsent(self, lease: str, content: c.Content, now: a.Now) -> None:
        """A `Relay` did not leave: the peer's queue is full."""
        self._outbox.now = now
        found = self.leases.find(lease)
        if isinstance(found, FanoutLease):
            self.fanout.blocked(found, content)

    def unreachable(self, peer: a.Peer, now: a.Now) -> None:
        """The socket knows no such peer any more (EHOSTUNREACH)."""
        self._outbox.now = now
        self.flows.unreachable(peer)

    def unread(self, lease: str, resource: str, ref: ChunkRef, error: StorageError, now: a.Now) -> None:
        """A chunk of this resource, for this reader, cannot be read or does not verify."""
        self._outbox.now = now
        found = self.leases.find(lease)
        if isinstance(found, ReaderLease):
            self.readers.unread(found, ref.base, ref.end, error)
        elif isinstance(found, QueueLease):
            self.consumers.unread(found, resource, ref.base, ref.end, error)

    def tick(self, now: a.Now) -> None:
        """Time has passed. Timers run only here, after the sockets were drained, so that a suspended machine does not
        expire everybody (PROTOCOL.md 3).
        """
        self._outbox.now = now
        self._ages.look()
        self._outbox.run_due()
        self.readers.retry()
        self.consumers.retry()

    def advance(self) -> None:
        """Start the groups and the deliveries that the inputs since the last call made possible."""
        dirty, self._dirty = self._dirty, {}
        for intake in dirty.values():
            intake.start()
        self.readers.pump()
        self.consumers.pump()
        self._recurring.look()

    def take(self) -> list[a.Action]:
        """What is to be carried out, in order."""
        return self._outbox.take()

    # --- for the loop ---------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether every interrupted commit is in place, and clients may be served."""
        return not self._redoing

    @property
    def busy(self) -> bool:
        """Whether `advance` would do something without a further input."""
        return bool(self._dirty) or self.readers.busy or self.consumers.busy

    @property
    def next_due(self) -> float | None:
        """When `tick` has something to do, in monotonic seconds."""
        times = (self._outbox.next_due, self.readers.next_retry, self.consumers.next_retry)
        return min((t for t in times if t is not None), default=None)

    def close(self, now: a.Now) -> None:
        """Begin to stop: take nothing in any more, open nothing more, write the cursors and queues."""
        self._outbox.now = now
        self._closing = True
        self.opening.stop()
        self.cursors.flush()
        self.queues.close()
        self._ages.note()

    @property
    def idle(self) -> bool:
        """Whether nothing is with the disk and nothing waits to be."""
        decided = self._dirty or self._outbox.actions or self.cursors.dirty or self.queues.dirty
        return self._outbox.idle and not decided

    def statistics(self) -> dict[str, int]:
        """What came, what was dropped and why, and what there is: told when the broker stops."""
        return {
            "malformed-requests": self.counts["malformed"],
            **self.flows.counts,
            **self.writers.counts,
            **{f"readers-{k}": v for k, v in self.readers.counts.items()},
            **{f"queues-{k}": v for k, v in self.consumers.counts.items()},
            **{f"test-{k}": v for k, v in self.fanout.counts.items()},
            "inbound-octets": self._inbound.octets,
            "sessions": len(self.sessions),
            "leases": len(self.leases),
            "flows": len(self.flows),
        }

    # --- restoring ------------------------------------------------------------------------------------------

    def _restore(self, records: Sequence[kept.AnyRecord]) -> None:
        publishes = _of(records, kept.PublishRecord)
        bases = {(p.vhost, e.resource): e.base for p in publishes for e in p.entries}
        for resource in _of(records, kept.ResourceRecord):
            self.resources.restore(resource, bases.get((resource.vhost, resource.name)))
        self.queues.restore(_of(records, kept.QueueRecord))
        for stage in _of(records, kept.StageRecord):
            self.stages.restore(stage)
        for application in _of(records, kept.ApplicationRecord):
            self.committing.remember(application)
        for publish in publishes:
            self._redoing += 1
            self.committing.redo(publish, self._redone)

    def _redone(self) -> None:
        self._redoing -= 1

    # --- wiring ---------------------------------------------------------------------------------------------

    def _schedule(self, heartbeat_s: float) -> Recurring:
        """Everything that recurs, by its own period."""
        recurring = Recurring(self._outbox)
        recurring.add(limits.CURSOR_FLUSH_S, self.cursors.flush, lambda: self.cursors.dirty)
        recurring.add(queue_limits.QUEUE_TICK_S, self._look_at_queues, lambda: self.queues.any)
        recurring.add(min(limits.HEARTBEAT_CHECK_S, heartbeat_s / 4), self.flows.check)
        recurring.add(limits.EXPIRY_CHECK_S, self._expire)
        recurring.add(limits.MARK_CHECK_S, self.idle_logs.run, lambda: self.idle_logs.any)
        recurring.add(limits.RETENTION_CHECK_S, self.housekeeping.run)
        recurring.add(USAGE_CHECK_S, self._usage.look)
        recurring.add(CLOCK_NOTE_S, self._ages.note)
        recurring.add(limits.NAMES_CHECK_S, self.housekeeping.expire_names)
        recurring.add(AUDIT_SUMMARY_S, self.audit.catch_up, lambda: self.audit.is_behind)
        recurring.add(limits.FANOUT_RETRY_S, self.fanout.retry, lambda: self.fanout.any)
        return recurring

    def _look_at_queues(self) -> None:
        self.consumers.look()
        self.dead_letters.look()
        self.queues.flush()

    def _expire(self) -> None:
        for lease in self.leases:
            if isinstance(lease, WriterLease) and lease.stage:
                self.stages.touch(lease.stage)
        self.leases.expire()
        self.writer_grants.take_back()
        self.sessions.expire()
        self.stages.expire()

    def _session_ended(self, token: str) -> None:
        self.cursors.forget_session(token)
        self.names.forget_session(token)

    def _end_lease(self, token: str) -> None:
        lease = self.leases.find(token)
        if lease is not None:
            self.leases.end(lease)

    def _mark_dirty(self, intake: Intake) -> None:
        if not self._closing:
            self._dirty[intake.key] = intake

    def _open_intake(self, key: LogKey, reader: LogView | None, last: dict[int, int]) -> Intake:
        return Intake(
            self._outbox, key, reader, last, self._inbound, self._turns, self._durable, self.writers.failed
        )

    def _durable(self, intake: Intake, group: Sequence[Arrival]) -> None:
        self.writers.durable(group)
        resource = self.resources.of_log(intake.key)
        if resource is not None:  # a stage may be committed at any time, and the disk be asked for its log
            self.idle_logs.grew(intake)
            self._show(resource)

    def _opened(self, resource: Resource) -> None:
        """The log of a resource is open: what it holds is news."""
        self.queues.opened(resource)
        self._show(resource)

    def _grew(self, resource: Resource) -> None:
        """A commit moved the visible end of a resource."""
        self.idle_logs.grew(resource.intake)
        self._show(resource)

    def _show(self, resource: Resource) -> None:
        """The visible end of a resource moved: wake its readers and the clients that wait for it."""
        self.readers.grew(resource)
        self.consumers.grew(resource)
        self.polls.grew(resource)

    def _relay(self, lease: FanoutLease, content: c.Content) -> None:
        if lease.flow is not None:
            self._outbox.actions.append(a.Relay(lease.flow.peer, lease.terms.token, content))


def _of(records: Sequence[kept.AnyRecord], kind: type[T]) -> list[T]:
    return [r for r in records if isinstance(r, kind)]
