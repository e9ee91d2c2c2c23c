"""Connection.Writer: unnamed, named and staged writers, and the numbers with which they continue.

PROTOCOL.md 5.4. A writer that continues an earlier lease of its own gets the next one only when no contents of the
earlier one are with the disk, because the last numbers in its 202 must be final.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from mtl.broker.access.caller import Caller
from mtl.broker.commands.granting import Granting, check_fixed
from mtl.broker.commands.usage import Usage
from mtl.broker.leases.lease import LeaseTerms
from mtl.broker.leases.leases import Leases
from mtl.broker.stages.stages import Stage, Stages, unknown_stage
from mtl.broker.steps import gather
from mtl.broker.writing.intake import Intake
from mtl.broker.writing.opening import LogOpening
from mtl.broker.writing.resource import Resource
from mtl.broker.writing.resources import Resources
from mtl.broker.writing.writer_names import WriterNames, fenced
from mtl.broker.writing.writers import WriterLease
from mtl.errors import Refused
from mtl.profiles import Profile
from mtl.storage.api import STAGE_WRITER
from mtl.storage.records import WriterRecord
from mtl.wire import control

Route = Callable[[str], Intake | None]


class WriterGrants:
    """Grants writing leases."""

    def __init__(
        self,
        granting: Granting,
        leases: Leases,
        opening: LogOpening,
        resources: Resources,
        stages: Stages,
        writer_names: WriterNames,
        usage: Usage,
    ) -> None:
        self._granting = granting
        self._leases = leases
        self._opening = opening
        self._resources = resources
        self._stages = stages
        self._writer_names = writer_names
        self._usage = usage

    async def writer(self, caller: Caller, request: control.ConnectionWriter) -> control.DataLease:
        """Connection.Writer (MTL-43 to 49)."""
        profile = caller.chosen_profile
        self._granting.admit(caller, profile, request)
        if not profile.durable:
            return self._fanout_writer(caller, profile, request)
        await self._resources.ensure(caller, request.resources)
        targets = self._targets(caller.vhost, request)
        terms = self._granting.terms(caller, profile, request)
        if request.stage is not None:
            self._usage.check_stage(caller.principal)
            return await self._stage_writer(terms, request, request.stage, targets)
        self._usage.check_resources(targets)
        if not targets:
            self._usage.check_any(caller.principal)
        if request.writer is not None:
            return await self._named_writer(terms, request, request.writer)
        lease = WriterLease(terms, terms.token, _only(request), self._route(terms), request.packed)
        return self._grant(lease, log_epochs=_log_epochs(targets))

    def _fanout_writer(
        self, caller: Caller, profile: Profile, request: control.ConnectionWriter
    ) -> control.DataLease:
        check_fixed(profile, request.resources)
        terms = self._granting.terms(caller, profile, request)
        only = request.resources[0] if len(request.resources) == 1 else profile.fixed_resources[0]
        return self._grant(WriterLease(terms, terms.token, only, lambda _: None, packed=False))

    def _targets(self, vhost: str, request: control.ConnectionWriter) -> list[Resource]:
        targets = [self._resources.need(vhost, n) for n in request.resources]
        for resource in targets:
            resource.check((request.incarnations or {}).get(resource.name))
            resource.writable()
        for name, (incarnation, epoch) in (request.log_epochs or {}).items():
            written = self._resources.find(vhost, name)
            if written is not None and written.record.incarnation == incarnation:
                written.check_epoch(epoch)
        return targets

    # --- staged ---------------------------------------------------------------------------------------------

    async def _stage_writer(
        self,
        terms: LeaseTerms,
        request: control.ConnectionWriter,
        spec: control.StageSpec,
        targets: list[Resource],
    ) -> control.DataLease:
        if request.confirm != "full" or not targets:
            raise Refused(
                400,
                control.BAD_ARGUMENTS,
                "a staged writer names its resources and has its contents confirmed",
            )
        stage = await self._stages.open(terms.vhost, terms.principal, spec, targets)
        former = self._leases.find(stage.lease) if stage.lease else None
        if former is not None:
            self._leases.end(former)
        stage.lease = terms.token  # a later request for the stage replaces this one
        await gather([intake.withdraw(STAGE_WRITER) for intake in list(stage.intakes.values())])
        return self._staged(terms, request, stage)

    def _staged(
        self, terms: LeaseTerms, request: control.ConnectionWriter, stage: Stage
    ) -> control.DataLease:
        public = stage.record.stage
        if self._stages.find(terms.vhost, public) is not stage or stage.lease != terms.token:
            raise unknown_stage(public)  # discarded, or granted to another lease, while this one waited
        last = {n: x.numbers.durable(STAGE_WRITER) for n, x in stage.intakes.items()}
        lease = WriterLease(
            terms,
            STAGE_WRITER,
            _only(request),
            lambda name: self._stages.intake(stage, name) if terms.covers(name) else None,
            request.packed,
            public,
            max(last.values(), default=0),
        )
        self._stages.touch(public)
        left = partial(self._stage_left, stage, terms.token)
        return self._grant(lease, left, last=last, stage=public)

    def _stage_left(self, stage: Stage, token: str) -> None:
        if stage.lease == token:
            stage.lease = None
        self._stages.touch(stage.record.stage)

    # --- named ----------------------------------------------------------------------------------------------

    async def _named_writer(
        self, terms: LeaseTerms, request: control.ConnectionWriter, name: str
    ) -> control.DataLease:
        holder = request.holder or terms.session
        record = await self._writer_names.open(
            terms.vhost, name, terms.session, terms.principal, holder, request.epoch
        )
        self._writer_names.fence(record)
        intakes = [r.intake for r in self._resources.of_vhost(terms.vhost)]
        await gather([x.withdraw(record.id) for x in intakes if x.numbers.has_writer(record.id)])
        return self._named(terms, request, record)

    def _named(
        self, terms: LeaseTerms, request: control.ConnectionWriter, record: WriterRecord
    ) -> control.DataLease:
        if not self._writer_names.current(record):
            raise fenced(record.name)
        if request.resources:
            # One may have been deleted while the name was being saved.
            written = [self._resources.need(terms.vhost, name) for name in request.resources]
        else:  # any and all: only the resources that it wrote to
            resources = self._resources.of_vhost(terms.vhost)
            for resource in resources:
                if self._opening.expects(resource.intake) and terms.covers(resource.name):
                    resource.writable()  # it may have the writer's last number; a lower number would lead to duplicates
            written = [r for r in resources if r.intake.numbers.durable(record.id) and terms.covers(r.name)]
        last = {r.name: r.intake.numbers.durable(record.id) for r in written}
        highest = max(last.values(), default=0)
        lease = WriterLease(
            terms, record.id, _only(request), self._route(terms), request.packed, highest=highest
        )
        granted = self._grant(
            lease,
            partial(self._writer_names.lease_ended, record, lease),
            last=last,
            epoch=record.epoch,
            log_epochs=_log_epochs(written),
        )
        self._writer_names.lease_granted(record, lease)
        return granted

    # --- all ------------------------------------------------------------------------------------------------

    def _route(self, terms: LeaseTerms) -> Route:
        """The route of a writing lease: finds resources by name, also those made after the lease (PROTOCOL.md 5.4)."""
        return partial(self._find_intake, terms)

    def _find_intake(self, terms: LeaseTerms, name: str) -> Intake | None:
        intake = self._resources.route(terms.vhost, name) if terms.covers(name) else None
        if intake is not None:
            self._opening.request(intake)
        return intake

    def _grant(
        self,
        lease: WriterLease,
        left: Callable[[], None] = lambda: None,
        **granted: object,
    ) -> control.DataLease:
        self._granting.grant(lease, partial(self._ended, lease, left))
        return self._granting.data_lease(lease.terms, lease.packed, **granted)

    def _ended(self, lease: WriterLease, left: Callable[[], None]) -> None:
        left()
        if isinstance(lease.key, str):
            for intake in lease.intakes.values():
                intake.numbers.forget(lease.key)


def _log_epochs(resources: Iterable[Resource]) -> dict[str, control.WrittenIn]:
    """The epoch of contents that are written now, per resource."""
    return {
        r.name: (r.record.incarnation, epoch) for r in resources if (epoch := r.readable().epoch) is not None
    }


def _only(request: control.ConnectionWriter) -> str | None:
    """The resource that an empty name stands for, if the request named exactly one (MTL-79)."""
    return request.resources[0] if len(request.resources) == 1 else None
