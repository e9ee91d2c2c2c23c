"""The broker's decisions, as one plain object: frames, disk results and the time in; frames and disk requests out.

There is no socket, thread, file or clock below this line. The loop in `server` (or a simulator) calls one of the
inputs, then carries out `take()`, and so on; the same inputs give the same outputs.

    control(frames)        a message on the control socket        completed(n, result)    an action was carried out
    data(peer, h, b)       a message on a data socket             blocked(...), unsent(...), unreachable(peer)
    burst(peer, ...)       several of one peer                    users(records)          who may do what has changed
    tick()                 time has passed                        close()                 stop cleanly

What belongs to whom:

    sessions   who is talking, under which profile        resources  named logs and their incarnations
    authentication, accounts   who that is, and may do    authorization  which right each request needs
    requests   one method per control command             intake     contents on their way into one log
    polls      who waits for news of which resource       publishing a commit under way, step by step
    granting*  what a Reader or Writer request gets       stages, committing   invisible contents, made visible
    leases     tokens, binding, expiry                    cursors, names       who holds a group, a writer's name
    flows      what a data command means to a lease       housekeeping         retention, names that are not used
    writers / readers / fanout   contents in / contents out / the `test` profile
    queues, consumers            who has which content of a queue (`queue_state`), `dead_letters` what nobody took
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from mtl import limits
from mtl.broker import actions as a
from mtl.broker.accounts import Accounts
from mtl.broker.authentication import AuthenticationSettings
from mtl.broker.authorization import Authorization
from mtl.broker.committing import Committing
from mtl.broker.consumers import Consumers, QueueLease
from mtl.broker.cursors import Cursors
from mtl.broker.dead_letters import DeadLetters
from mtl.broker.fanout import Fanout, FanoutLease
from mtl.broker.flows import Flows, Readings
from mtl.broker.granting import Granting, Ports
from mtl.broker.granting_queues import QueueGrants
from mtl.broker.granting_readers import LocalReads, ReaderGrants
from mtl.broker.granting_writers import LocalWrites, WriterGrants
from mtl.broker.housekeeping import Housekeeping
from mtl.broker.intake import Arrival, Inbound, Intake
from mtl.broker.leases import Leases
from mtl.broker.names import Names
from mtl.broker.outbox import Outbox, Result
from mtl.broker.polls import Polls
from mtl.broker.queues import Queues
from mtl.broker.readers import ReaderLease, Readers
from mtl.broker.records import (
    AnyRecord,
    ApplicationRecord,
    CursorRecord,
    PublishRecord,
    QueueRecord,
    ResourceRecord,
    StageRecord,
    UserRecord,
    WriterRecord,
)
from mtl.broker.recurring import Recurring
from mtl.broker.requests import Requests
from mtl.broker.resources import Resource, Resources, log_key
from mtl.broker.sessions import Sessions
from mtl.broker.stages import Stage, Stages
from mtl.broker.turns import Turns
from mtl.broker.writers import Packs, WriterLease, Writers
from mtl.errors import Damaged, Malformed, Refused, StorageError
from mtl.log import LogOptions, LogReader
from mtl.net.origin import NOBODY, Origin
from mtl.net.ports import Port
from mtl.protocol.sasl.server import ANONYMOUS_USER
from mtl.wire import commands as c
from mtl.wire import control as w

T = TypeVar("T")

OpenedLog = tuple[LogReader, dict[int, int]]
"""A log as it was opened: its reading half and its table of publishing numbers."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the core has to know of the configuration. `boot` names this run of the broker; `packs_on` is the socket
    that packed leases bind on; the first virtual host is where a client is that names none; `auto_create` are patterns
    of resources that a lease request makes. With `local_reads` readers on this machine may be told where packs lie,
    with `local_writes` writers may put them into memory.
    """

    boot: str
    ports: Ports
    packs_on: Port = Port.PACKED
    virtual_hosts: Sequence[str] = (limits.DEFAULT_VIRTUAL_HOST,)
    auto_create: Sequence[str] = ()
    authentication: AuthenticationSettings = field(default_factory=AuthenticationSettings)
    heartbeat_s: float = limits.HEARTBEAT_S
    lease_unbound_s: float = limits.LEASE_UNBOUND_S
    segment_bytes: int = limits.SEGMENT_BYTES
    local_reads: LocalReads | None = None
    local_writes: LocalWrites | None = None


@dataclass(frozen=True, slots=True)
class Restored:
    """What was on disk: every record, and every log that a resource or stage record names (or why it did not open)."""

    records: Sequence[AnyRecord] = ()
    logs: Mapping[a.LogKey, OpenedLog | StorageError] = field(default_factory=dict)


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
        self._dirty: dict[str, Intake] = {}
        self._inbound = Inbound()
        self._turns = Turns(limits.COMMIT_THREADS)
        options = LogOptions(segment_bytes=settings.segment_bytes)
        records = restored.records
        unlimited = [ANONYMOUS_USER] if settings.authentication.anonymous is True else []
        self.accounts = Accounts(settings.authentication.secret, unlimited)
        self.accounts.replace(_of(records, UserRecord))
        self.leases = leases = Leases(out, random, settings.lease_unbound_s)
        self.writers = Writers(self._inbound, check_pack, self._mark_dirty)
        self.readers = Readers(out, leases.end)
        self.fanout = Fanout(self._relay)
        self.resources = resources = Resources(
            out,
            random,
            settings.segment_bytes,
            settings.auto_create,
            self._open_intake,
            self._came,
            self._went,
        )
        self.cursors = Cursors(out, _of(records, CursorRecord), leases.end)
        self.queues = Queues(out, random, resources)
        self.consumers = Consumers(out, self.queues, resources, leases.end)
        self.dead_letters = DeadLetters(resources, self.queues, self._inbound, self._mark_dirty)
        self.stages = Stages(out, random, self._open_intake, options, self._end_lease)
        self.names = Names(out, random, _of(records, WriterRecord), leases.end)
        self.committing = Committing(out, resources, self.stages, self._grew)
        self.sessions = Sessions(
            out,
            random,
            settings.virtual_hosts,
            self.accounts,
            settings.authentication,
            settings.boot,
            settings.heartbeat_s,
            leases.in_use,
            self._session_ended,
            leases.end_session,
        )
        self.granting = granting = Granting(
            out, self.accounts, leases, self.stages, settings.ports, settings.heartbeat_s
        )
        self.writer_grants = WriterGrants(
            granting, leases, resources, self.stages, self.names, settings.local_writes
        )
        authorization = Authorization(self.accounts, self.stages, self.committing)
        self.polls = Polls(out, resources, authorization)
        self.requests = Requests(
            out,
            self.sessions,
            authorization,
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
                leases,
                resources,
                self.readers,
                self.fanout,
                self.cursors,
                QueueGrants(granting, leases, resources, self.queues, self.consumers),
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
        self.housekeeping = Housekeeping(out, resources, self.cursors, self.committing, self.names)
        self.counts = {"malformed": 0}
        self._redoing = 0
        self._closing = False
        self._restore(restored)
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

    def data(self, peer: a.Peer, header: bytes, body: c.Buffer, now: a.Now, key: str = "") -> None:
        """One message of two frames on a data socket; a Lease with the CURVE key of who presents it. Messages of other
        frames are dropped by the loop, and counted there (MTL-110).
        """
        self._outbox.now = now
        self.flows.received(peer, header, body, key)

    def burst(
        self,
        peer: a.Peer,
        headers: Sequence[bytes],
        bodies: Sequence[c.Buffer],
        now: a.Now,
        key: str = "",
    ) -> None:
        """Several such messages of one peer, in their order."""
        self._outbox.now = now
        self.flows.burst(peer, headers, bodies, key)

    def users(self, records: Sequence[UserRecord], now: a.Now) -> None:
        """The users and their grants as they are from now on. Whoever has another password, or is gone, has to
        authenticate again; leases that would not be granted any more end.
        """
        self._outbox.now = now
        changes = self.accounts.replace(records)
        self.sessions.suspend(
            lambda s: (
                s.principal in changes.proof or self.accounts.owner(s.origin.key) not in {None, s.principal}
            )
        )
        self.granting.revoke(changes)

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

    def damaged(self, lease: str, resource: str, error: Damaged, now: a.Now) -> None:
        """A chunk of this resource, for this reader, does not verify."""
        self._outbox.now = now
        found = self.leases.find(lease)
        if isinstance(found, ReaderLease):
            self.readers.damaged(found, error)
        elif isinstance(found, QueueLease):
            self.consumers.damaged(found, resource, error)

    def tick(self, now: a.Now) -> None:
        """Time has passed. Timers run only here, after the sockets were drained, so that a suspended machine does not
        expire everybody (PROTOCOL.md 3).
        """
        self._outbox.now = now
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
        """Begin to stop: take nothing in any more, write the cursors and queues."""
        self._outbox.now = now
        self._closing = True
        self.cursors.flush()
        self.queues.close()

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

    def _restore(self, restored: Restored) -> None:
        records = restored.records
        for resource in _of(records, ResourceRecord):
            self.resources.restore(resource, restored.logs[log_key(resource)])
        self.queues.restore(_of(records, QueueRecord))
        for stage in _of(records, StageRecord):
            keys = {n: Stage(stage, 0.0).log_key(n) for n in stage.incarnations}
            self.stages.restore(stage, {n: restored.logs[k] for n, k in keys.items() if k in restored.logs})
        for application in _of(records, ApplicationRecord):
            self.committing.remember(application)
        for publish in _of(records, PublishRecord):
            self._redoing += 1
            self.committing.redo(publish, self._redone)

    def _redone(self) -> None:
        self._redoing -= 1

    # --- wiring ---------------------------------------------------------------------------------------------

    def _schedule(self, heartbeat_s: float) -> Recurring:
        """Everything that recurs, by its own period."""
        recurring = Recurring(self._outbox)
        recurring.add(limits.CURSOR_FLUSH_S, self.cursors.flush, lambda: self.cursors.dirty)
        recurring.add(limits.QUEUE_TICK_S, self._look_at_queues, lambda: self.queues.any)
        recurring.add(min(limits.HEARTBEAT_CHECK_S, heartbeat_s / 4), self.flows.check)
        recurring.add(limits.EXPIRY_CHECK_S, self._expire)
        recurring.add(limits.RETENTION_CHECK_S, self.housekeeping.run)
        recurring.add(limits.NAMES_CHECK_S, self.housekeeping.expire_names)
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

    def _open_intake(self, key: a.LogKey, reader: LogReader | None, last: dict[int, int]) -> Intake:
        return Intake(
            self._outbox, key, reader, last, self._inbound, self._turns, self._durable, self.writers.failed
        )

    def _durable(self, intake: Intake, group: Sequence[Arrival]) -> None:
        self.writers.durable(group)
        resource = self.resources.of_log(intake.key)
        if resource is not None:
            self._grew(resource)

    def _came(self, resource: Resource) -> None:
        self.polls.came(resource)

    def _went(self, resource: Resource) -> None:
        self.polls.went(resource)

    def _grew(self, resource: Resource) -> None:
        """The visible end of a resource moved: its readers and whoever waits for it."""
        for lease in resource.readers.values():
            self.readers.wake(lease)
        for queue in resource.queues.values():
            self.consumers.wake(queue)
        self.polls.grew(resource)

    def _relay(self, lease: FanoutLease, content: c.Content) -> None:
        if lease.flow is not None:
            self._outbox.actions.append(a.Relay(lease.flow.peer, lease.terms.token, content))


def _of(records: Sequence[AnyRecord], kind: type[T]) -> list[T]:
    return [r for r in records if isinstance(r, kind)]
