"""The broker's decisions, as one plain object: frames, disk results and the time in; frames and disk requests out.

The core has no socket, thread, file or clock. The loop in `runtime.server` (or a simulator) calls one of the inputs,
then carries out `pop_actions()`, and so on; the same inputs give the same outputs.

    control(frames)        a message on the control socket        completed(n, result)    an action was carried out
    data(peer, h, b)       a message on a data socket             blocked(...), unsent(...), unreachable(peer)
    burst(peer, ...)       several messages of one peer           users(records)          users or grants have changed
    disconnected(c)        a connection has ended
    tick()                 time has passed                        close()                 stop cleanly

The parts and their subjects:

    sessions        control sessions and their profiles      accounts       users, their credentials and rights
    authentication  log-ins                                  authorization  the rights that each request needs
    requests        control commands, to their handlers      needed_logs    the logs that a request waits for
    granting*       Reader and Writer requests               polls          requests that wait for changes
    leases          tokens, binding, expiry                  flows          commands on the data ports
    resources       named logs and their incarnations        intake         contents on their way into one log
    opening         logs that are not open yet               ends           recording the ends of logs
    writers         contents in                              writer_names   writer names and their holders
    readers         contents out                             cursors        groups, their positions and holders
    stages          staged, invisible contents               commits, commit, applications   their commit, step by step
    queues, queue_state   the state of queues' contents      consumers, dead_letters  their delivery, and failures
    fanout          the `test` profile                       clock, housekeeping      ages; retention and expiry
    reads, ahead    queries of logs, chunks that were read before they are sent
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from mtl import limits
from mtl.broker import actions
from mtl.broker import limits as broker_limits
from mtl.broker.access.accounts import Accounts
from mtl.broker.access.audit import AUDIT_SUMMARY_S
from mtl.broker.access.sessions import Sessions
from mtl.broker.commands.changes import Changes
from mtl.broker.commands.granting import Granting
from mtl.broker.commands.granting_writers import WriterGrants
from mtl.broker.commands.polls import Polls
from mtl.broker.commands.requests import Requests
from mtl.broker.commands.usage import USAGE_CHECK_S, Usage
from mtl.broker.flows import Flows
from mtl.broker.housekeeping import Housekeeping
from mtl.broker.leases.leases import Leases
from mtl.broker.outbox import Outbox
from mtl.broker.queues import limits as queue_limits
from mtl.broker.queues.consumers import Consumers
from mtl.broker.queues.dead_letters import DeadLetters
from mtl.broker.queues.queue import QueueLease
from mtl.broker.queues.queues import Queues
from mtl.broker.quotas.pools import Pool
from mtl.broker.quotas.quotas import Quotas
from mtl.broker.reading.cursors import Cursors
from mtl.broker.reading.fanout import Fanout, FanoutLease
from mtl.broker.reading.readers import ReaderLease, Readers
from mtl.broker.recurring import Recurring
from mtl.broker.stages.applications import Applications
from mtl.broker.stages.commits import Commits
from mtl.broker.stages.stages import Stages
from mtl.broker.steps import run
from mtl.broker.writing.clock import CLOCK_NOTE_S, CorrectedClock
from mtl.broker.writing.ends import Ends
from mtl.broker.writing.free_space import FreeSpace
from mtl.broker.writing.intake import InboundBudget
from mtl.broker.writing.intakes import Intakes
from mtl.broker.writing.opening import LogOpening
from mtl.broker.writing.resources import Resources
from mtl.broker.writing.writer_names import WriterNames
from mtl.broker.writing.writers import WriterLease, Writers
from mtl.errors import Malformed, Refused, StorageError
from mtl.net.origin import NO_ORIGIN, Connection, Origin
from mtl.storage import records
from mtl.storage.api import ChunkRef
from mtl.storage.records import of_kind
from mtl.wire import commands, control
from mtl.wire.fields import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Every part that the inputs and the timers use; the table above gives their jobs. `assembly` makes them."""

    outbox: Outbox
    clock: CorrectedClock
    accounts: Accounts
    quotas: Quotas
    backlog: Pool
    sessions: Sessions
    leases: Leases
    free_space: FreeSpace
    inbound: InboundBudget
    intakes: Intakes
    opening: LogOpening
    resources: Resources
    writer_names: WriterNames
    writers: Writers
    ends: Ends
    stages: Stages
    applications: Applications
    commits: Commits
    readers: Readers
    fanout: Fanout
    cursors: Cursors
    queues: Queues
    consumers: Consumers
    dead_letters: DeadLetters
    flows: Flows
    granting: Granting
    writer_grants: WriterGrants
    changes: Changes
    polls: Polls
    requests: Requests
    housekeeping: Housekeeping
    usage: Usage


class Broker:
    """The core: all parts together. `ready` once every commit that a crash interrupted is in place again."""

    def __init__(self, parts: Parts, stored: Sequence[records.AnyRecord], heartbeat_s: float) -> None:
        self.parts = parts
        self._outbox = parts.outbox
        self.accounts = parts.accounts
        self.audit = parts.outbox.audit
        self.opening = parts.opening
        self.counts = {"malformed": 0}
        self._redoing = 0
        self._restore(stored)
        self.opening.open_all()
        self._recurring = self._schedule(heartbeat_s)
        self._recurring.set_timers()

    # --- inputs ---------------------------------------------------------------------------------------------

    def control(self, frames: Sequence[bytes], now: actions.Now, origin: Origin = NO_ORIGIN) -> None:
        """One message on the control socket: identity, envelope, an empty frame, command, body (PROTOCOL.md 1); and its
        origin, as far as the transport knows it.
        """
        self._outbox.now = now
        try:
            end = frames.index(b"", 1) + 1
        except ValueError:
            self.counts["malformed"] += 1
            return
        envelope = tuple(frames[:end])
        try:
            request = control.decode_request(frames[end:])
        except Malformed:
            self.counts["malformed"] += 1  # dropped in silence (MTL-50, MTL-51)
            return
        except Refused as e:
            self._outbox.reply(envelope, e, "")
            return
        session = self.parts.sessions.find(frames[0], origin, request)

        def answer(reply: control.Reply | Refused) -> None:
            self._outbox.reply(envelope, reply, session.principal)

        self.parts.requests.handle(session, request, answer)

    def data(
        self, peer: actions.Peer, header: bytes, body: Buffer, now: actions.Now, connection: Connection = ""
    ) -> None:
        """One message of two frames on a data socket, and its connection. The loop drops and counts messages with
        another number of frames (MTL-110).
        """
        self._outbox.now = now
        self.parts.flows.received(peer, header, body, connection)

    def burst(
        self,
        peer: actions.Peer,
        headers: Sequence[bytes],
        bodies: Sequence[Buffer],
        now: actions.Now,
        connection: Connection = "",
    ) -> None:
        """Several such messages of one peer and one connection, in order."""
        self._outbox.now = now
        self.parts.flows.burst(peer, headers, bodies, connection)

    def disconnected(self, connection: Connection, now: actions.Now) -> None:
        """A connection has ended, and its data flow with it; its leases wait to be presented on another one."""
        self._outbox.now = now
        self.parts.flows.disconnected(connection)

    def users(self, stored: Sequence[records.UserRecord], now: actions.Now) -> None:
        """The users and their grants from now on. Clients of users with other credentials, or removed ones, have to
        authenticate again; leases end that would not be granted any more.
        """
        self._outbox.now = now
        before = self.accounts.all
        changes = self.accounts.replace(stored)
        self.audit.users(before, self.accounts.all)
        self.parts.granting.revoke(changes)
        suspended = self.parts.sessions.users_changed(changes)
        self.parts.polls.users_changed(suspended, changes.grants)

    def room(self, free: int, total: int, now: actions.Now) -> None:
        """Free and total octets of the data directory's file system. Too little free space ends writing leases."""
        self._outbox.now = now
        self.parts.free_space.measured(free, total)
        if self.parts.free_space.is_low:
            self.parts.granting.end_writers()

    def completed(self, number: int, result: object, now: actions.Now) -> None:
        """An action was carried out, or failed with a `StorageError`."""
        self._outbox.now = now
        self._outbox.completed(number, result)

    def blocked(self, lease: str, sequence: int, now: actions.Now) -> None:
        """The contents of a `Deliver` from `sequence` on were not sent: the peer's queue is full."""
        self._outbox.now = now
        granted = self.parts.leases.find(lease)
        if isinstance(granted, ReaderLease):
            self.parts.readers.blocked(granted, sequence)
        elif isinstance(granted, QueueLease):
            self.parts.consumers.blocked(granted, sequence)

    def unsent(self, lease: str, content: commands.Content, now: actions.Now) -> None:
        """A `Relay` was not sent: the peer's queue is full."""
        self._outbox.now = now
        granted = self.parts.leases.find(lease)
        if isinstance(granted, FanoutLease):
            self.parts.fanout.blocked(granted, content)

    def unreachable(self, peer: actions.Peer, now: actions.Now) -> None:
        """The socket has no such peer any more (EHOSTUNREACH)."""
        self._outbox.now = now
        self.parts.flows.unreachable(peer)

    def unread(self, lease: str, resource: str, ref: ChunkRef, error: StorageError, now: actions.Now) -> None:
        """A chunk of this resource, for this reader, cannot be read or does not verify."""
        self._outbox.now = now
        granted = self.parts.leases.find(lease)
        if isinstance(granted, ReaderLease):
            self.parts.readers.unread(granted, ref.base, ref.end, error)
        elif isinstance(granted, QueueLease):
            self.parts.consumers.unread(granted, resource, ref.base, ref.end, error)

    def tick(self, now: actions.Now) -> None:
        """Time has passed. Timers run only here, after the sockets were drained, so that leases do not all expire when
        a suspended machine resumes (PROTOCOL.md 3).
        """
        self._outbox.now = now
        self.parts.clock.compare_clocks()
        self._outbox.run_due()
        self.parts.readers.retry()
        self.parts.consumers.retry()

    def advance(self) -> None:
        """Start the groups and the deliveries that the inputs since the last call made possible."""
        self.parts.intakes.start()
        self.parts.readers.pump()
        self.parts.consumers.pump()
        self._recurring.set_timers()

    def pop_actions(self) -> list[actions.Action]:
        """The actions to be carried out, in order."""
        return self._outbox.pop_actions()

    # --- for the loop ---------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether every interrupted commit is in place, and clients may be served."""
        return not self._redoing

    @property
    def busy(self) -> bool:
        """Whether `advance` would do something without a further input."""
        return self.parts.intakes.any_waits or self.parts.readers.busy or self.parts.consumers.busy

    @property
    def next_due(self) -> float | None:
        """When the next timer or retry is due, in monotonic seconds; None without any."""
        times = (self._outbox.next_due, self.parts.readers.next_retry, self.parts.consumers.next_retry)
        return min((t for t in times if t is not None), default=None)

    def close(self, now: actions.Now) -> None:
        """Begin to stop: accept no further contents, open no further logs, write the cursors and queues."""
        self._outbox.now = now
        self.parts.intakes.close()
        self.opening.stop()
        self.parts.cursors.flush()
        self.parts.queues.close()
        self.parts.clock.save_clocks()

    @property
    def idle(self) -> bool:
        """Whether no action is with the disk or waits for it."""
        parts = self.parts
        to_write = parts.intakes.any_waits or parts.cursors.dirty or parts.queues.dirty
        return self._outbox.idle and not self._outbox.actions and not to_write

    def statistics(self) -> dict[str, int]:
        """Counts of received and dropped messages, and of sessions, leases and flows: logged when the broker stops."""
        return {
            "malformed-requests": self.counts["malformed"],
            **self.parts.flows.counts,
            **self.parts.writers.counts,
            **{f"readers-{k}": v for k, v in self.parts.readers.counts.items()},
            **{f"queues-{k}": v for k, v in self.parts.consumers.counts.items()},
            **{f"test-{k}": v for k, v in self.parts.fanout.counts.items()},
            "inbound-octets": self.parts.inbound.used,
            "sessions": len(self.parts.sessions),
            "leases": len(self.parts.leases),
            "flows": len(self.parts.flows),
        }

    # --- restoring ------------------------------------------------------------------------------------------

    def _restore(self, stored: Sequence[records.AnyRecord]) -> None:
        publishes = of_kind(stored, records.PublishRecord)
        bases = {(p.vhost, e.resource): e.base for p in publishes for e in p.entries}
        for resource in of_kind(stored, records.ResourceRecord):
            self.parts.resources.restore(resource, bases.get((resource.vhost, resource.name)))
        self.parts.queues.restore(of_kind(stored, records.QueueRecord))
        for stage in of_kind(stored, records.StageRecord):
            self.parts.stages.restore(stage)
        for application in of_kind(stored, records.ApplicationRecord):
            self.parts.applications.remember(application)
        for publish in publishes:
            self._redoing += 1
            run(self._redo(publish))

    async def _redo(self, publish: records.PublishRecord) -> None:
        with suppress(Refused):  # stuck: its resources wait, the others are served
            await self.parts.commits.redo(publish)
        self._redoing -= 1

    # --- wiring ---------------------------------------------------------------------------------------------

    def _schedule(self, heartbeat_s: float) -> Recurring:
        """All periodic work, with its periods."""
        recurring = Recurring(self._outbox)
        recurring.add(
            broker_limits.CURSOR_FLUSH_S, self.parts.cursors.flush, lambda: self.parts.cursors.dirty
        )
        recurring.add(queue_limits.QUEUE_TICK_S, self._advance_queues, lambda: self.parts.queues.has_queues)
        recurring.add(min(broker_limits.HEARTBEAT_CHECK_S, heartbeat_s / 4), self.parts.flows.check)
        recurring.add(broker_limits.EXPIRY_CHECK_S, self._expire)
        recurring.add(limits.MARK_CHECK_S, self.parts.ends.run, lambda: self.parts.ends.any_unrecorded)
        recurring.add(broker_limits.RETENTION_CHECK_S, self.parts.housekeeping.run)
        recurring.add(USAGE_CHECK_S, self.parts.usage.enforce)
        recurring.add(CLOCK_NOTE_S, self.parts.clock.save_clocks)
        recurring.add(broker_limits.NAMES_CHECK_S, self.parts.housekeeping.expire_names)
        recurring.add(AUDIT_SUMMARY_S, self.audit.catch_up, lambda: self.audit.is_behind)
        recurring.add(
            broker_limits.FANOUT_RETRY_S, self.parts.fanout.retry, lambda: self.parts.fanout.has_readers
        )
        return recurring

    def _advance_queues(self) -> None:
        self.parts.consumers.wake_delayed()
        self.parts.dead_letters.move_all()
        self.parts.queues.flush()

    def _expire(self) -> None:
        for lease in self.parts.leases:
            if isinstance(lease, WriterLease) and lease.stage:
                self.parts.stages.touch(lease.stage)
        self.parts.leases.expire()
        self.parts.sessions.expire()
        self.parts.stages.expire()
