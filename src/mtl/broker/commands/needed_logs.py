"""The logs that each control request needs open; a request waits for those that are not (`opening`).

`table` says for each command which method finds them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mtl.broker.access.caller import Caller
from mtl.broker.commands.command import Commands
from mtl.broker.commands.listing import Listing
from mtl.broker.stages.stages import Stage, Stages
from mtl.broker.steps import Outcome
from mtl.broker.writing.intake import Intake
from mtl.broker.writing.opening import LogOpening
from mtl.broker.writing.resource import Resource
from mtl.broker.writing.resources import Resources
from mtl.wire import control


class NeededLogs:
    """A method per kind of request."""

    def __init__(
        self,
        opening: LogOpening,
        listing: Listing,
        resources: Resources,
        stages: Stages,
        commands: Commands,
    ) -> None:
        self._opening = opening
        self._listing = listing
        self._resources = resources
        self._stages = stages
        self._commands = commands

    @property
    def are_open(self) -> bool:
        """Whether all logs are open, so that no request has to wait."""
        return self._opening.is_over

    def opened(self, caller: Caller, request: control.Request) -> Outcome[None]:
        """Wait for the logs that a request needs. Raises as `of`."""
        return self._opening.opened(self.of(caller, request))

    def of(self, caller: Caller, request: control.Request) -> Iterable[Intake]:
        """The intakes of the logs that a request needs. Unknown names need none. Raises `Refused` 400 for a pattern."""
        return self._commands[type(request)].logs(self, caller, request)

    def no_logs(self, _: Caller, _request: control.Request) -> Iterable[Intake]:
        """No logs."""
        return ()

    def resource(self, caller: Caller, request: Any) -> Iterable[Intake]:
        """The log of the resource in the request."""
        return self._named(caller, [request.resource])

    def read(self, caller: Caller, request: control.ConnectionReader) -> Iterable[Intake]:
        """The logs of the resources to read."""
        return self._named(caller, request.resources)

    def written(self, caller: Caller, request: control.ConnectionWriter) -> Iterable[Intake]:
        """The logs to write to; all logs for a named writer of "any and all", since any may have its last number."""
        if request.writer is not None and not request.resources:
            return _intakes_of(self._resources.of_vhost(caller.vhost))
        stages = [request.stage.id] if request.stage is not None and request.stage.id is not None else []
        names = [*request.resources, *(request.log_epochs or {})]
        return [*self._named(caller, names), *self._staged(caller, stages)]

    def listed(
        self, caller: Caller, request: control.ResourceList | control.ResourceDescribe
    ) -> Iterable[Intake]:
        """The logs of the resources on the page."""
        return _intakes_of(self._listing.page(caller, request)[0])

    def described(self, caller: Caller, request: control.ResourceDescribe) -> Iterable[Intake]:
        """The logs of the resources shown. Unknown names need none."""
        if request.resource is not None:
            return self._named(caller, [request.resource])
        if request.resources is not None:
            return self._named(caller, request.resources)
        return self.listed(caller, request)

    def with_cursors(self, caller: Caller, request: control.CursorDescribe) -> Iterable[Intake]:
        """The logs of the resources of the cursors on the page."""
        page = self._listing.cursors_page(caller, request)
        return self._named(caller, [resource for _, _, resource in page.keys])

    def with_queues(self, caller: Caller, request: control.QueueDescribe) -> Iterable[Intake]:
        """The logs of the resources of the queues on the page."""
        page = self._listing.queues_page(caller, request)
        return self._named(caller, [resource for _, resource, _ in page.keys])

    def committed(self, caller: Caller, request: control.StageCommit) -> Iterable[Intake]:
        """The logs of the stages, and those that they are published to."""
        stages = self._known_stages(caller, request.stages)
        targets = [n for s in stages for n in s.record.incarnations]
        return [*self._staged(caller, request.stages), *self._named(caller, [*targets, *request.truncate])]

    def with_stages(self, caller: Caller, request: control.StageDescribe) -> Iterable[Intake]:
        """The logs of the stages on the page."""
        return self._staged(caller, [key[-1] for key in self._listing.stages_page(caller, request).keys])

    def _named(self, caller: Caller, names: Iterable[str]) -> list[Intake]:
        resources = (self._resources.find(caller.vhost, name) for name in dict.fromkeys(names))
        return _intakes_of(r for r in resources if r is not None)

    def _staged(self, caller: Caller, names: Iterable[str]) -> list[Intake]:
        return [intake for stage in self._known_stages(caller, names) for intake in stage.intakes.values()]

    def _known_stages(self, caller: Caller, names: Iterable[str]) -> list[Stage]:
        stages = (self._stages.find(caller.vhost, name) for name in names)
        return [s for s in stages if s is not None]


def _intakes_of(resources: Iterable[Resource]) -> list[Intake]:
    return [r.intake for r in resources]
