"""Assembles the core: the dependencies of the parts, and the reactions to events. No logic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mtl import limits
from mtl.broker import actions
from mtl.broker import limits as broker_limits
from mtl.broker.access.accounts import Accounts
from mtl.broker.access.authentication import AuthenticationSettings
from mtl.broker.access.sessions import Sessions
from mtl.broker.commands.authorization import Authorization
from mtl.broker.commands.bookmarks import Bookmarks
from mtl.broker.commands.changes import Changes
from mtl.broker.commands.cursor_requests import CursorRequests
from mtl.broker.commands.granting import Granting, Ports
from mtl.broker.commands.granting_holders import HolderGrants
from mtl.broker.commands.granting_queues import QueueGrants
from mtl.broker.commands.granting_readers import LocalReads, ReaderGrants
from mtl.broker.commands.granting_writers import WriterGrants
from mtl.broker.commands.listing import Listing
from mtl.broker.commands.needed_logs import NeededLogs
from mtl.broker.commands.polls import Polls
from mtl.broker.commands.request_names import RequestNames
from mtl.broker.commands.requests import Handlers, Requests
from mtl.broker.commands.resource_requests import ResourceRequests
from mtl.broker.commands.table import COMMANDS
from mtl.broker.commands.usage import Usage
from mtl.broker.core import Broker, Parts
from mtl.broker.flows import Flows
from mtl.broker.housekeeping import Housekeeping
from mtl.broker.leases.leases import Leases
from mtl.broker.outbox import Outbox
from mtl.broker.queues.consumers import Consumers
from mtl.broker.queues.dead_letters import DeadLetters
from mtl.broker.queues.queue import QueueLease
from mtl.broker.queues.queues import Queues
from mtl.broker.quotas.pools import Pool
from mtl.broker.quotas.quotas import Quota, Quotas, QuotaSettings
from mtl.broker.reading.ahead import Aheads
from mtl.broker.reading.cursors import Cursors
from mtl.broker.reading.fanout import Fanout, FanoutLease
from mtl.broker.reading.holders import HolderLease, Holders
from mtl.broker.reading.readers import HasRoom, ReaderLease, Readers
from mtl.broker.reading.reads import Reads
from mtl.broker.stages.applications import Applications
from mtl.broker.stages.commits import Commits
from mtl.broker.stages.stages import Stages
from mtl.broker.writing.clock import CorrectedClock
from mtl.broker.writing.ends import Ends
from mtl.broker.writing.free_space import FreeSpace
from mtl.broker.writing.intake import InboundBudget
from mtl.broker.writing.intakes import Intakes
from mtl.broker.writing.opening import LogOpening
from mtl.broker.writing.resources import Resources
from mtl.broker.writing.turns import Turns
from mtl.broker.writing.writer_names import WriterNames
from mtl.broker.writing.writers import Packs, Writers
from mtl.net.ports import Port
from mtl.protocol.sasl.server import ANONYMOUS_USER
from mtl.storage import records
from mtl.storage.api import LogOptions, Restored
from mtl.storage.records import of_kind
from mtl.storage.unreadable import Unreadable
from mtl.wire import control

Random = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """The core's part of the configuration. `boot` identifies this run of the broker; `packs_on` is the socket for
    packed leases; the first virtual host is that of a client that does not name one; `auto_create` are patterns of
    the resources that a lease request may make; `low_watermark` is the least free space on the disk, in octets
    (`free_space`). With `local_reads` readers on this machine may get the places of packs. `machine` identifies this
    boot of the machine; it is empty where the system has no such id.
    """

    boot: str
    ports: Ports
    packs_on: Port = Port.PACKED
    virtual_hosts: Sequence[str] = (limits.DEFAULT_VIRTUAL_HOST,)
    auto_create: Sequence[str] = ()
    authentication: AuthenticationSettings = field(default_factory=AuthenticationSettings)
    heartbeat_s: float = limits.HEARTBEAT_S
    lease_unbound_s: float = broker_limits.LEASE_UNBOUND_S
    segment_bytes: int = limits.SEGMENT_BYTES
    low_watermark: int = 0
    quotas: QuotaSettings = field(default_factory=QuotaSettings)
    local_reads: LocalReads | None = None
    machine: str = ""


def assemble(
    settings: CoreSettings,
    restored: Restored,
    random: Random,
    check_pack: Packs,
    now: actions.Now,
    has_room: HasRoom = lambda _peer, _owner, _octets: True,
) -> Broker:
    """A core with the `restored` records and logs. `random` returns the given number of random octets, `check_pack`
    checks a pack before it is stored. `has_room` says whether the sockets take further contents for a peer; one that
    always does is for sockets with full queues as their only bound.
    """
    base = _base(settings, restored, random, now)
    logs = _logs(base)
    reading = _reading(base, logs, has_room)
    commits = Commits(base.out, base.opening, logs.resources, logs.stages, logs.applications)
    sessions = _sessions(base)
    requests = _requests(base, logs, reading, commits, sessions)
    writers = Writers(base.inbound, check_pack, base.intakes)
    parts = Parts(
        outbox=base.out,
        clock=base.clock,
        accounts=base.accounts,
        quotas=base.quotas,
        backlog=Pool(base.quotas, Quota.WAITING_COMMANDS),
        sessions=sessions,
        leases=base.leases,
        free_space=base.free_space,
        inbound=base.inbound,
        intakes=base.intakes,
        opening=base.opening,
        resources=logs.resources,
        writer_names=logs.writer_names,
        writers=writers,
        ends=Ends(base.out),
        stages=logs.stages,
        applications=logs.applications,
        commits=commits,
        readers=reading.readers,
        fanout=reading.fanout,
        cursors=reading.cursors,
        queues=reading.queues,
        consumers=reading.consumers,
        dead_letters=reading.dead_letters,
        flows=_flows(base, reading, writers),
        granting=requests.granting,
        writer_grants=requests.writers,
        changes=requests.changes,
        polls=requests.polls,
        requests=requests.requests,
        housekeeping=_housekeeping(base, logs, reading, commits),
        usage=requests.usage,
    )
    _reactions(parts)
    return Broker(parts, restored.records, settings.heartbeat_s)


def _reactions(parts: Parts) -> None:
    """Set the reactions to each event, in order."""
    p = parts
    p.intakes.durable.leads_to(
        lambda _, group: p.writers.durable(group), lambda log, _: p.resources.durable(log)
    )
    p.intakes.lost.leads_to(p.writers.failed)
    changed = (p.changes.note, p.polls.changed)
    p.resources.created.leads_to(*changed)
    p.resources.deleted.leads_to(*changed)
    p.resources.shrank.leads_to(p.changes.note)
    p.resources.opened.leads_to(p.queues.opened, p.readers.grew, p.consumers.grew, *changed)
    p.resources.grew.leads_to(p.ends.grew, p.readers.grew, p.consumers.grew, *changed)
    p.queues.deliverable.leads_to(p.consumers.wake)
    p.sessions.ended.leads_to(p.cursors.forget_session, p.writer_names.forget_session)


@dataclass(frozen=True)
class _Base:
    """The parts and settings that nearly all other parts need."""

    settings: CoreSettings
    restored: Restored
    random: Random
    out: Outbox
    unreadable: Unreadable
    clock: CorrectedClock
    accounts: Accounts
    quotas: Quotas
    leases: Leases
    free_space: FreeSpace
    inbound: InboundBudget
    intakes: Intakes
    opening: LogOpening


def _base(settings: CoreSettings, restored: Restored, random: Random, now: actions.Now) -> _Base:
    out = Outbox()
    out.now = now
    unlimited = [ANONYMOUS_USER] if settings.authentication.anonymous is True else []
    unreadable = Unreadable(restored.damages)
    accounts = Accounts(settings.authentication.secret, unlimited, unreadable)
    accounts.replace(of_kind(restored.records, records.UserRecord))
    quotas = Quotas(settings.quotas, accounts.is_unlimited)
    noted = next(iter(of_kind(restored.records, records.ClockRecord)), None)
    inbound = InboundBudget()
    return _Base(
        settings,
        restored,
        random,
        out,
        unreadable,
        CorrectedClock(out, noted, settings.machine),
        accounts,
        quotas,
        Leases(out, random, settings.lease_unbound_s, quotas),
        FreeSpace(settings.low_watermark),
        inbound,
        Intakes(out, inbound, Turns(limits.COMMIT_THREADS)),
        LogOpening(out),
    )


@dataclass(frozen=True)
class _Logs:
    resources: Resources
    stages: Stages
    applications: Applications
    writer_names: WriterNames


def _logs(base: _Base) -> _Logs:
    settings, out, random = base.settings, base.out, base.random
    resources = Resources(
        out,
        random,
        settings.segment_bytes,
        settings.auto_create,
        base.intakes,
        base.opening,
        base.unreadable,
        base.quotas,
    )
    stages = Stages(
        out,
        random,
        base.intakes,
        base.opening,
        LogOptions(segment_bytes=settings.segment_bytes),
        base.clock,
        base.leases,
        base.unreadable,
        base.quotas,
    )
    writers = of_kind(base.restored.records, records.WriterRecord)
    writer_names = WriterNames(out, random, writers, base.leases, base.unreadable, base.quotas)
    applications = Applications(out, base.unreadable, base.quotas)
    return _Logs(resources, stages, applications, writer_names)


@dataclass(frozen=True)
class _Reading:
    readers: Readers
    fanout: Fanout
    cursors: Cursors
    queues: Queues
    consumers: Consumers
    dead_letters: DeadLetters
    reads: Reads


def _reading(base: _Base, logs: _Logs, has_room: HasRoom) -> _Reading:
    out, leases, opening = base.out, base.leases, base.opening
    queues = Queues(out, base.random, logs.resources, base.unreadable, base.quotas)
    reads = Reads(out)
    aheads = Aheads(reads)
    return _Reading(
        Readers(out, leases, aheads, has_room),
        Fanout(out, Pool(base.quotas, Quota.FANOUT_BYTES)),
        Cursors(
            out, of_kind(base.restored.records, records.CursorRecord), leases, base.unreadable, base.quotas
        ),
        queues,
        Consumers(out, opening, queues, logs.resources, leases, aheads, has_room),
        DeadLetters(opening, logs.resources, queues, base.inbound, base.free_space, base.intakes, reads),
        reads,
    )


def _sessions(base: _Base) -> Sessions:
    settings = base.settings
    return Sessions(
        base.out,
        base.random,
        settings.virtual_hosts,
        base.accounts,
        base.quotas,
        settings.authentication,
        settings.boot,
        settings.heartbeat_s,
        base.leases,
    )


@dataclass(frozen=True)
class _Requests:
    granting: Granting
    writers: WriterGrants
    changes: Changes
    polls: Polls
    usage: Usage
    requests: Requests


def _requests(base: _Base, logs: _Logs, reading: _Reading, commits: Commits, sessions: Sessions) -> _Requests:
    out, leases, resources, stages = base.out, base.leases, logs.resources, logs.stages
    names = RequestNames(resources, stages, logs.applications)
    authorization = Authorization(base.accounts, names, COMMANDS)
    granting = _granting(base, logs, authorization, sessions)
    usage = Usage(out, base.accounts, base.quotas, leases, resources, stages)
    writers = WriterGrants(granting, leases, base.opening, resources, stages, logs.writer_names, usage)
    bookmarks = Bookmarks(base.settings.authentication.secret, base.random)
    listing = Listing(
        authorization,
        resources,
        reading.cursors,
        reading.queues,
        stages,
        logs.applications,
        reading.reads,
        bookmarks,
    )
    changes = Changes(base.settings.boot)
    polls = Polls(out, resources, listing, changes, authorization, base.quotas)
    handlers: Handlers = {
        control.ConnectionOpen: sessions.open,
        control.ConnectionAuthorize: sessions.authorize,
        control.ConnectionProfile: sessions.select,
        control.ConnectionReader: _reader_grants(base, logs, reading, granting).reader,
        control.ConnectionWriter: writers.writer,
        control.LeaseClose: granting.close,
        control.ResourceDescribe: polls.describe,
        control.ResourceList: listing.list_resources,
        control.QueueDescribe: listing.describe_queues,
        control.StageCommit: commits.commit,
        control.StageAbort: stages.abort,
        control.StageForget: logs.applications.forget,
        control.StageDescribe: listing.describe_stages,
        **_resource_handlers(base, logs, reading, commits),
        **_cursor_handlers(base, logs, reading, listing),
    }
    requests = Requests(
        out,
        sessions,
        authorization,
        NeededLogs(base.opening, listing, resources, stages, COMMANDS),
        listing,
        COMMANDS,
        handlers,
        base.quotas,
    )
    return _Requests(granting, writers, changes, polls, usage, requests)


def _resource_handlers(base: _Base, logs: _Logs, reading: _Reading, commits: Commits) -> Handlers:
    requests = ResourceRequests(
        base.out,
        base.leases,
        logs.resources,
        reading.cursors,
        reading.queues,
        logs.stages,
        commits,
        reading.reads,
    )
    return {
        control.ResourceCreate: requests.create,
        control.ResourceDelete: requests.delete,
        control.ResourceLocate: requests.locate,
        control.QueueDelete: requests.delete_queue,
    }


def _cursor_handlers(base: _Base, logs: _Logs, reading: _Reading, listing: Listing) -> Handlers:
    requests = CursorRequests(base.clock, listing, logs.resources, reading.cursors, reading.reads)
    return {
        control.CursorOpen: requests.open,
        control.CursorDescribe: requests.describe,
        control.CursorReset: requests.reset,
        control.CursorDelete: requests.delete,
    }


def _granting(base: _Base, logs: _Logs, authorization: Authorization, sessions: Sessions) -> Granting:
    settings = base.settings
    return Granting(
        base.out,
        base.accounts,
        authorization,
        base.free_space,
        base.leases,
        logs.stages,
        settings.ports,
        settings.heartbeat_s,
        sessions.principal,
    )


def _reader_grants(base: _Base, logs: _Logs, reading: _Reading, granting: Granting) -> ReaderGrants:
    queue_grants = QueueGrants(granting, logs.resources, reading.queues, reading.consumers, reading.reads)
    return ReaderGrants(
        granting,
        logs.resources,
        reading.readers,
        reading.fanout,
        reading.cursors,
        queue_grants,
        HolderGrants(granting, logs.resources, reading.readers, reading.cursors),
        reading.reads,
        base.settings.local_reads,
    )


def _flows(base: _Base, reading: _Reading, writers: Writers) -> Flows:
    return Flows(
        base.out,
        base.leases,
        writers,
        reading.fanout,
        {
            ReaderLease: reading.readers,
            FanoutLease: reading.fanout,
            QueueLease: reading.consumers,
            HolderLease: Holders(),
        },
        base.settings.heartbeat_s,
        base.settings.packs_on,
    )


def _housekeeping(base: _Base, logs: _Logs, reading: _Reading, commits: Commits) -> Housekeeping:
    return Housekeeping(
        base.out,
        logs.resources,
        reading.cursors,
        reading.readers,
        reading.queues,
        commits,
        logs.writer_names,
        base.clock,
        reading.reads,
    )
