"""The names in each control request: resources, and names that the users of a virtual host share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mtl.broker.access.caller import Caller
from mtl.broker.queues import limits as queue_limits
from mtl.broker.stages.applications import Applications
from mtl.broker.stages.stages import Stage, Stages
from mtl.broker.writing.resource import dead_letters_of
from mtl.broker.writing.resources import Resources
from mtl.wire import control


class RequestNames:
    """A method per kind of name; `table` says which of them a command needs rights on."""

    def __init__(self, resources: Resources, stages: Stages, applications: Applications) -> None:
        self._resources = resources
        self._stages = stages
        self._applications = applications

    def resource(self, _: Caller, request: Any) -> Iterable[str]:
        """The resource of the request."""
        return filter(None, [request.resource])

    def created(self, _: Caller, request: control.ResourceCreate) -> Iterable[str]:
        """The resource, and that of its dead letters, which the creator chooses."""
        return filter(None, [request.resource, request.dead_letter])

    def resources(self, _: Caller, request: Any) -> Iterable[str]:
        """The resources of the request."""
        return request.resources or ()

    def described(self, _: Caller, request: control.ResourceDescribe) -> Iterable[str]:
        """The resources that the request asks about."""
        return [request.resource] if request.resource is not None else request.resources or ()

    def buried(self, caller: Caller, request: control.ConnectionReader) -> Iterable[str]:
        """The resources to which a consumer's rejected contents are copied."""
        if not buries(caller, request):
            return ()
        return [self.dead_letter(caller.vhost, name) for name in request.resources]

    def dead_letter(self, vhost: str, name: str) -> str:
        """The resource for the dead letters of a resource."""
        resource = self._resources.find(vhost, name)
        return dead_letters_of(name) if resource is None else resource.dead_letter

    def written(self, caller: Caller, request: control.ConnectionWriter) -> Iterable[str]:
        """The resources of the request and of a stage that it continues, whose contents become this writer's."""
        yield from request.resources
        if request.stage is not None and request.stage.id is not None:
            yield from self._staged_in(caller, [request.stage.id])

    def staged(self, caller: Caller, request: control.StageAbort | control.StageCommit) -> Iterable[str]:
        """The resources of the stages in the request."""
        return self._staged_in(caller, request.stages)

    def _staged_in(self, caller: Caller, stages: Iterable[str]) -> Iterable[str]:
        for stage in self._known_stages(caller, stages):
            yield from stage.record.incarnations

    def _known_stages(self, caller: Caller, stages: Iterable[str]) -> list[Stage]:
        known = (self._stages.find(caller.vhost, name) for name in stages)
        return [stage for stage in known if stage is not None]

    def committed(self, caller: Caller, request: control.StageCommit | control.StageForget) -> Iterable[str]:
        """The resources of the last commit of the request's application."""
        query = request.query if isinstance(request, control.StageCommit) else None
        last = self._applications.last_of(caller.vhost, request.application, query)
        return () if last is None else last.published

    def staged_and_committed(self, caller: Caller, request: control.StageCommit) -> Iterable[str]:
        """The resources of the stages and of the last commit."""
        yield from self.staged(caller, request)
        yield from self.committed(caller, request)

    def truncated(self, _: Caller, request: control.StageCommit) -> Iterable[str]:
        """The resources whose former contents the commit replaces."""
        return request.truncate

    def read_group(self, caller: Caller, request: control.ConnectionReader) -> Iterable[str]:
        """The group that a reader holds or is a member of."""
        return () if _competes(caller) else filter(None, [request.group])

    def read_queue(self, caller: Caller, request: control.ConnectionReader) -> Iterable[str]:
        """The queue that a consumer consumes from."""
        return [request.group or queue_limits.DEFAULT_QUEUE] if _competes(caller) else ()

    def group(self, _: Caller, request: Any) -> Iterable[str]:
        """The group of the request."""
        return [request.group]

    def writer(self, _: Caller, request: control.ConnectionWriter) -> Iterable[str]:
        """The writer name of the request."""
        return filter(None, [request.writer])

    def writer_application(self, _: Caller, request: control.ConnectionWriter) -> Iterable[str]:
        """The application that a writer stages for."""
        return () if request.stage is None else [request.stage.application]

    def application(self, _: Caller, request: control.StageCommit | control.StageForget) -> Iterable[str]:
        """The application of the request."""
        return [request.application]

    def aborted_applications(self, caller: Caller, request: control.StageAbort) -> Iterable[str]:
        """The applications of the stages in the request."""
        return [stage.record.application for stage in self._known_stages(caller, request.stages)]


def _competes(caller: Caller) -> bool:
    return caller.profile is not None and caller.profile.competing


def buries(caller: Caller, request: control.ConnectionReader) -> bool:
    """Whether this reader's rejected contents become dead letters; without confirmation nothing is rejected."""
    return _competes(caller) and request.confirm == "full"
