"""Connection.Reader, Connection.Writer and Lease.Close: what is asked for, what is granted, what every 202 echoes.

profiles.md "Defaults", "Readers", "Writers", "Cursors". A grant that needs the disk (a cursor, a writer's name, a
stage) is answered when that is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from mtl import limits
from mtl.broker.cursors import Cursors, Holding
from mtl.broker.fanout import Fanout, FanoutLease
from mtl.broker.intake import Intake, WriterKey
from mtl.broker.leases import Leases, LeaseTerms
from mtl.broker.outbox import Outbox, Result, refusal
from mtl.broker.readers import ReaderLease, Readers
from mtl.broker.records import CursorRecord, WriterRecord
from mtl.broker.resources import Resource, Resources, unknown
from mtl.broker.sessions import Session
from mtl.broker.stages import Stage, Stages
from mtl.broker.writers import WriterLease
from mtl.errors import DataLoss, Fenced, Refused
from mtl.log import STAGE_WRITER
from mtl.profiles import Profile
from mtl.wire import control as w

Answer = Callable[[w.Reply | Refused], None]


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the data sockets are: TCP ports, and endpoints where there is no port (ipc, inproc)."""

    packed: int
    plain: int
    packed_endpoint: str | None = None
    plain_endpoint: str | None = None


class Granting:
    """Grants leases and ends them."""

    def __init__(
        self,
        outbox: Outbox,
        leases: Leases,
        resources: Resources,
        readers: Readers,
        fanout: Fanout,
        cursors: Cursors,
        stages: Stages,
        ports: Ports,
        heartbeat_s: float,
        names: Iterable[WriterRecord],
    ) -> None:
        self._outbox = outbox
        self._leases = leases
        self._resources = resources
        self._readers = readers
        self._fanout = fanout
        self._cursors = cursors
        self._stages = stages
        self._ports = ports
        self._heartbeat_s = heartbeat_s
        self._names = {(n.vhost, n.name): n for n in names}
        self._last_writer_id = max((n.id for n in self._names.values()), default=0)
        self._named_leases: dict[tuple[str, str], WriterLease] = {}
        self._fenced_names: dict[str, set[tuple[str, str]]] = {}

    # --- readers --------------------------------------------------------------------------------------------

    def reader(self, session: Session, profile: Profile, request: w.Reader, answer: Answer) -> None:
        """Connection.Reader (MTL-42 to 49)."""
        self._admit(session, profile, request.confirm)
        if not profile.durable:
            answer(self._fanout_reader(session, profile, request))
            return
        if len(request.resources) != 1:
            raise Refused(
                400,
                w.BAD_ARGUMENTS,
                "a reader of the log profile names exactly one resource, since its sequences are that "
                "resource's positions",
            )
        resource = self._resources.need(session.vhost, request.resources[0])
        resource.check(request.incarnation)
        resource.serving()
        terms = self._terms(session, profile, (resource.name,), request.confirm)
        self._hold(
            session, resource, request, lambda held: self._reader_held(terms, resource, request, held, answer)
        )

    def _hold(
        self,
        session: Session,
        resource: Resource,
        request: w.Reader,
        then: Callable[[Holding | Refused | None], None],
    ) -> None:
        """The holding that a reader of a group belongs to; None for members and for readers without a group."""
        if request.group is None:
            if request.holder is None:
                then(None)
                return
            start = self._start(resource, request, None)
            then(Holding(self._cursors, None, request.holder, 0, start, resource.record.incarnation))
            return
        key = (session.vhost, request.group, resource.name)
        # A holder that comes back names its epoch too: after a restart of the broker nothing else tells an older one.
        self._cursors.check(key, session.token, request.epoch)
        if request.epoch is not None and request.holder is None:
            then(None)
            return
        record = self._cursors.get(key)
        start = self._start(resource, request, record)
        holder = request.holder or session.token

        def opened(cursor: CursorRecord | Refused) -> None:
            if isinstance(cursor, Refused):
                then(cursor)
                return
            try:
                self._cursors.hold(key, session.token, holder, then)
            except Refused as e:  # fenced while the cursor was being made
                then(e)

        self._cursors.open(key, resource.record.incarnation, start, opened)

    def _reader_held(
        self,
        terms: LeaseTerms,
        resource: Resource,
        request: w.Reader,
        held: Holding | Refused | None,
        answer: Answer,
    ) -> None:
        if isinstance(held, Refused):
            answer(held)
            return
        try:
            record = self._cursors.get((terms.vhost, request.group, resource.name)) if request.group else None
            start = self._start(resource, request, record)
        except Refused as e:
            answer(e)
            return
        window = request.window or w.Window()
        granted = (
            min(window.contents or limits.WINDOW_CONTENTS, limits.MAX_WINDOW_CONTENTS),
            min(window.bytes or limits.WINDOW_OCTETS, limits.MAX_WINDOW_OCTETS),
        )
        lease = ReaderLease(terms, resource, start, request.until, granted, request.packed, held)
        resource.readers[terms.token] = lease
        if held is not None:
            held.join(lease)

        def ended() -> None:
            resource.readers.pop(terms.token, None)
            self._readers.ended(lease)
            if held is not None:
                held.leave(lease)

        self._leases.grant(lease, ended)
        answer(
            self._data_lease(
                terms,
                request.packed,
                from_=start,
                until=request.until,
                window=w.Window(contents=granted[0], bytes=granted[1]) if lease.full else None,
                incarnation=resource.record.incarnation,
                earliest=resource.earliest,
                next=resource.end,
                epoch=held.epoch if held is not None and held.key is not None else request.epoch,
                position=held.position if held is not None else None,
            )
        )

    def _start(self, resource: Resource, request: w.Reader, record: CursorRecord | None) -> int:
        """Resolve `from`, now and not at Summon. Raises `DataLoss` for what is gone, or was never there."""
        start = request.from_ if request.from_ is not None else ("group" if request.group else "latest")
        if start == "group":
            if request.group is None:
                raise Refused(400, w.BAD_ARGUMENTS, 'from "group" needs a group')
            if record is None or record.incarnation != resource.record.incarnation:
                return resource.earliest
            start = record.position
        if start == "earliest":
            return resource.earliest
        if start == "latest":
            return resource.end
        sequence = int(start)
        if sequence < resource.earliest:
            raise DataLoss(resource.name, sequence, resource.earliest)
        if sequence > resource.end:
            raise DataLoss(
                resource.name,
                resource.end,
                sequence,
                f"resource {resource.name!r} ends before {resource.end}; {sequence} was asked for: "
                "contents were lost, or the position belongs to another resource",
            )
        return sequence

    def _fanout_reader(self, session: Session, profile: Profile, request: w.Reader) -> w.Reply:
        self._fixed(profile, request.resources)
        lease = FanoutLease(self._terms(session, profile, tuple(request.resources), request.confirm))
        self._fanout.joined(lease)
        self._leases.grant(lease, lambda: self._fanout.left(lease))
        return self._data_lease(lease.terms, packed=False)

    # --- writers --------------------------------------------------------------------------------------------

    def writer(self, session: Session, profile: Profile, request: w.Writer, answer: Answer) -> None:
        """Connection.Writer (MTL-43 to 49)."""
        self._admit(session, profile, request.confirm)
        if not profile.durable:
            self._fixed(profile, request.resources)
            terms = self._terms(session, profile, tuple(request.resources), request.confirm)
            only = request.resources[0] if len(request.resources) == 1 else profile.fixed_resources[0]
            answer(self._grant_writer(terms, terms.token, only, lambda _: None, request, {}))
            return
        targets = self._targets(session, request)
        if request.stage is not None:
            self._stage_writer(session, profile, request, targets, answer)
        elif request.writer is not None:
            self._named_writer(session, profile, request, targets, answer)
        else:
            terms = self._terms(session, profile, tuple(request.resources), request.confirm)
            route = self._route(session.vhost, terms)
            answer(self._grant_writer(terms, terms.token, _only(targets), route, request, {}))

    def _targets(self, session: Session, request: w.Writer) -> list[Resource]:
        missing = [n for n in request.resources if self._resources.find(session.vhost, n) is None]
        if missing:
            raise unknown(*missing)
        targets = [self._resources.need(session.vhost, n) for n in request.resources]
        for resource in targets:
            resource.check((request.incarnations or {}).get(resource.name))
            resource.serving()
        return targets

    def _stage_writer(
        self, session: Session, profile: Profile, request: w.Writer, targets: list[Resource], answer: Answer
    ) -> None:
        assert request.stage is not None
        if request.confirm != "full" or not targets:
            raise Refused(
                400, w.BAD_ARGUMENTS, "a staged writer names its resources and has its contents confirmed"
            )

        def opened(stage: Stage | Refused) -> None:
            if isinstance(stage, Refused):
                answer(stage)
                return
            former = self._leases.find(stage.lease) if stage.lease else None
            if former is not None:
                self._leases.end(former)
            terms = self._terms(session, profile, tuple(request.resources), request.confirm)
            stage.lease = terms.token
            self._stages.touch(stage.record.stage)
            last = {n: x.last.get(STAGE_WRITER, 0) for n, x in stage.intakes.items()}
            answer(
                self._grant_writer(
                    terms,
                    STAGE_WRITER,
                    _only(targets),
                    lambda name: self._stages.intake(stage, name),
                    request,
                    last,
                    stage=stage,
                )
            )

        self._stages.open(session.vhost, request.stage, targets, opened)

    def _named_writer(
        self, session: Session, profile: Profile, request: w.Writer, targets: list[Resource], answer: Answer
    ) -> None:
        assert request.writer is not None
        key = (session.vhost, request.writer)
        if key in self._fenced_names.get(session.token, ()):
            raise Fenced(f"a newer holder took over the writer name {request.writer!r}")
        known = self._names.get(key)
        if known is None and len(self._names) >= limits.MAX_WRITER_NAMES:
            raise Refused(
                503,
                w.OVERLOADED,
                f"{limits.MAX_WRITER_NAMES} writer names are remembered, which is the limit",
            )
        if known is None:
            self._last_writer_id += 1
        record = WriterRecord(
            session.vhost,
            request.writer,
            known.id if known else self._last_writer_id,
            known.epoch + 1 if known else 1,
            self._outbox.now.wall_us,
        )
        self._names[key] = record

        def saved(result: Result) -> None:
            no = refusal(result)
            if no is not None:
                answer(no)
                return
            former = self._named_leases.get(key)
            if former is not None:
                if former.terms.session != session.token:
                    self._fenced_names.setdefault(former.terms.session, set()).add(key)
                self._leases.end(former)
            terms = self._terms(session, profile, tuple(request.resources), request.confirm)
            last = {r.name: r.intake.last.get(record.id, 0) for r in targets}
            route = self._route(session.vhost, terms)
            answer(
                self._grant_writer(
                    terms, record.id, _only(targets), route, request, last, name=key, epoch=record.epoch
                )
            )

        self._outbox.save((record,), (), saved)

    def _grant_writer(
        self,
        terms: LeaseTerms,
        key: WriterKey,
        only: str | None,
        route: Callable[[str], Intake | None],
        request: w.Writer,
        last: dict[str, int],
        *,
        stage: Stage | None = None,
        name: tuple[str, str] | None = None,
        epoch: int | None = None,
    ) -> w.DataLease:
        highest = max(last.values(), default=0)
        packed = request.packed and terms.profile.durable
        public = stage.record.stage if stage is not None else None
        lease = WriterLease(terms, key, only, route, packed, public, highest)
        if name is not None:
            self._named_leases[name] = lease

        def ended() -> None:
            if name is not None and self._named_leases.get(name) is lease:
                del self._named_leases[name]
            if stage is not None and stage.lease == terms.token:
                stage.lease = None
                self._stages.touch(stage.record.stage)
            for intake in lease.intakes.values():
                if isinstance(key, str):
                    intake.forget(key)

        self._leases.grant(lease, ended)
        numbered = name is not None or stage is not None
        return self._data_lease(terms, packed, last=last if numbered else None, epoch=epoch, stage=public)

    def _route(self, vhost: str, terms: LeaseTerms) -> Callable[[str], Intake | None]:
        """How a writing lease finds a resource: by name, also one that was made after the lease (decisions.md G15)."""

        def route(name: str) -> Intake | None:
            resource = self._resources.find(vhost, name) if terms.covers(name) else None
            return resource.intake if resource is not None else None

        return route

    # --- both -----------------------------------------------------------------------------------------------

    def close(self, session: Session, request: w.LeaseClose, answer: Answer) -> None:
        """Lease.Close: ends a lease; a stage is sealed."""
        lease = self._leases.find(request.lease)
        if lease is None or lease.terms.session != session.token:
            raise Refused(
                404, w.UNKNOWN_LEASE, "no such lease: it was closed, expired or belongs to another session"
            )
        stage = (
            self._stages.find(session.vhost, lease.stage)
            if isinstance(lease, WriterLease) and lease.stage
            else None
        )
        if stage is None:
            self._leases.end(lease)
            answer(w.LeaseClosed())
            return

        def sealed(outcome: w.Sealed | Refused) -> None:
            if isinstance(outcome, Refused):
                answer(outcome)
                return
            self._leases.end(lease)
            answer(w.LeaseClosed(stage=outcome))

        self._stages.seal(stage, sealed)

    def forget_session(self, token: str) -> None:
        """A control session is gone; so is what it lost."""
        self._fenced_names.pop(token, None)

    def expire_names(self, then: Callable[[list[int]], None]) -> None:
        """Forget writer names that nobody used for long; `then` gets their ids, for the logs to leave out."""
        horizon = self._outbox.now.wall_us - int(limits.WRITER_NAME_IDLE_S * 1e6)
        idle = [n for k, n in self._names.items() if n.used_us < horizon and k not in self._named_leases]
        if not idle:
            return

        def saved(result: Result) -> None:
            if refusal(result) is None:
                for record in idle:
                    self._names.pop((record.vhost, record.name), None)
                then([r.id for r in idle])

        self._outbox.save((), idle, saved)

    def refresh_names(self) -> None:
        """Names with a live lease are in use."""
        for key in self._named_leases:
            self._names[key] = msgspec.structs.replace(self._names[key], used_us=self._outbox.now.wall_us)

    def _admit(self, session: Session, profile: Profile, confirm: str) -> None:
        if confirm not in profile.confirms:
            supported = " and ".join(sorted(profile.confirms))
            raise Refused(
                501, w.UNSUPPORTED, f'profile "{profile.name}" supports confirm {supported}, not {confirm!r}'
            )
        self._leases.admit(session.token)

    def _fixed(self, profile: Profile, names: list[str]) -> None:
        missing = [n for n in names if n not in profile.fixed_resources]
        if missing:
            raise unknown(*missing)

    def _terms(
        self, session: Session, profile: Profile, resources: tuple[str, ...], confirm: str
    ) -> LeaseTerms:
        return LeaseTerms(
            self._leases.token(),
            session.token,
            session.principal,
            session.vhost,
            profile,
            resources,
            confirm,
            self._outbox.now.mono,
        )

    def _data_lease(self, terms: LeaseTerms, packed: bool, **granted: object) -> w.DataLease:
        ports = self._ports
        port, endpoint = (
            (ports.packed, ports.packed_endpoint) if packed else (ports.plain, ports.plain_endpoint)
        )
        echo = {name: value for name, value in granted.items() if value is not None}
        return w.DataLease(
            port=port,
            endpoint=endpoint,
            lease=terms.token,
            packed=packed,
            max_content=limits.MAX_CONTENT,
            max_pack=limits.MAX_PACK,
            heartbeat=self._heartbeat_s,
            **echo,  # type: ignore[arg-type]  # members of DataLease, by name
        )


def _only(targets: list[Resource]) -> str | None:
    """The resource that an empty name stands for: there is one only when the request named one (MTL-79)."""
    return targets[0].name if len(targets) == 1 else None
