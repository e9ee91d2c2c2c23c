"""Which rights each control request needs, on which names; and what of a list somebody may see (PROTOCOL.md 2.2).

One row per command. Rights are on resources, and on names that the users of a virtual host share: groups, queues,
writer names and applications.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any, ClassVar, Final

from mtl import limits
from mtl.broker.access.accounts import ON_RESOURCES, Accounts, Need, Right
from mtl.broker.access.caller import Caller
from mtl.broker.queues import limits as queue_limits
from mtl.broker.stages.committing import Committing
from mtl.broker.stages.stages import Stage, Stages
from mtl.broker.writing.resource import Resource, dead_letters_of
from mtl.broker.writing.resources import Resources
from mtl.errors import Refused
from mtl.wire import control as w

READ, WRITE, MANAGE = frozenset({Right.READ}), frozenset({Right.WRITE}), frozenset({Right.MANAGE})
GROUP, QUEUE = frozenset({Right.GROUP}), frozenset({Right.QUEUE})
WRITER, APPLICATION = frozenset({Right.WRITER}), frozenset({Right.APPLICATION})

_MOST_NAMED: Final = 10
"""Names in a refusal."""

_SPECIAL: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")
"""What means something in a regular expression."""

Row = tuple[frozenset[Right], Callable[["Authorization", Caller, Any], Iterable[str]]]
"""Rights of which one is needed, and on which names."""


class Authorization:
    """Looks requests up in the table below."""

    def __init__(
        self, accounts: Accounts, resources: Resources, stages: Stages, committing: Committing
    ) -> None:
        self._accounts = accounts
        self._resources = resources
        self._stages = stages
        self._committing = committing

    def needs(self, caller: Caller, request: w.Request) -> tuple[Need, ...]:
        """What a request needs now."""
        rows = self.NEEDS[type(request)]
        return tuple((rights, tuple(dict.fromkeys(names(self, caller, request)))) for rights, names in rows)

    def check(self, caller: Caller, request: w.Request) -> None:
        """Raises `Refused` 403, with the names that lack the right, whether or not there are such."""
        self.check_needs(caller.principal, caller.vhost, self.needs(caller, request))

    def check_needs(self, principal: str, vhost: str, needs: Iterable[Need]) -> None:
        """The same for what a request needed when it came."""
        for rights, names in needs:
            allowed = self._accounts.may(principal, vhost, rights, names)
            denied = [name for name, yes in zip(names, allowed, strict=True) if not yes]
            if denied:
                raise _denied(principal, vhost, rights, denied)

    def extent(self, caller: Caller, request: w.Reader | w.Writer) -> Callable[[str], bool]:
        """Which resources a lease of "any and all" has: tells for one name, as the grants are when it is asked."""
        principal, vhost = caller.principal, caller.vhost

        def may(rights: frozenset[Right], name: str) -> bool:
            return self._accounts.may(principal, vhost, rights, [name])[0]

        if isinstance(request, w.Writer):
            return lambda name: may(WRITE, name)
        if not _buries(caller, request):
            return lambda name: may(READ, name)
        return lambda name: may(READ, name) and may(WRITE, self._dead_letter(vhost, name))

    def sees(self, caller: Caller, names: Sequence[str]) -> list[bool]:
        """For each resource whether this client may know of it."""
        return self._accounts.may(caller.principal, caller.vhost, ON_RESOURCES, names)

    def seen(self, caller: Caller, resources: Sequence[Resource]) -> list[Resource]:
        """Those of them that it may know of."""
        return list(compress(resources, self.sees(caller, [r.name for r in resources])))

    def sees_all(self, caller: Caller, names: Iterable[str]) -> bool:
        """Whether it may know of all of these."""
        return all(self.sees(caller, list(names)))

    def sees_stage(self, caller: Caller, name: str) -> bool:
        """Whether it may know of all resources that a stage is for."""
        stage = self._stages.find(caller.vhost, name)
        return stage is not None and self.sees_all(caller, stage.record.incarnations)

    # --- which resources a request is about -----------------------------------------------------------------

    def _resource(self, _: Caller, request: Any) -> Iterable[str]:
        return filter(None, [request.resource])

    def _created(self, _: Caller, request: w.ResourceCreate) -> Iterable[str]:
        """Also where its dead letters go: who makes a queue's resource decides what is written there."""
        return filter(None, [request.resource, request.dead_letter])

    def _resources_of(self, _: Caller, request: Any) -> Iterable[str]:
        return request.resources or ()

    def _described(self, _: Caller, request: w.ResourceDescribe) -> Iterable[str]:
        return [request.resource] if request.resource is not None else request.resources or ()

    def _buried(self, caller: Caller, request: w.Reader) -> Iterable[str]:
        """Where a consumer's rejected contents are copied to."""
        if not _buries(caller, request):
            return ()
        return [self._dead_letter(caller.vhost, name) for name in request.resources]

    def _dead_letter(self, vhost: str, name: str) -> str:
        resource = self._resources.find(vhost, name)
        return dead_letters_of(name) if resource is None else resource.dead_letter

    def _written(self, caller: Caller, request: w.Writer) -> Iterable[str]:
        """Those of a stage that goes on, too: its contents become this writer's."""
        yield from request.resources
        if request.stage is not None and request.stage.id is not None:
            yield from self._staged_in(caller, [request.stage.id])

    def _staged(self, caller: Caller, request: w.StageAbort | w.StageCommit) -> Iterable[str]:
        return self._staged_in(caller, request.stages)

    def _staged_in(self, caller: Caller, stages: Iterable[str]) -> Iterable[str]:
        for stage in self._found(caller, stages):
            yield from stage.record.incarnations

    def _found(self, caller: Caller, stages: Iterable[str]) -> list[Stage]:
        found = (self._stages.find(caller.vhost, name) for name in stages)
        return [stage for stage in found if stage is not None]

    def _committed(self, caller: Caller, request: w.StageCommit | w.StageForget) -> Iterable[str]:
        query = request.query if isinstance(request, w.StageCommit) else None
        last = self._committing.last_of(caller.vhost, request.application, query)
        return () if last is None else last.digest

    def _staged_and_committed(self, caller: Caller, request: w.StageCommit) -> Iterable[str]:
        yield from self._staged(caller, request)
        yield from self._committed(caller, request)

    def _truncated(self, _: Caller, request: w.StageCommit) -> Iterable[str]:
        return request.truncate

    # --- which other names --------------------------------------------------------------------------------

    def _read_group(self, caller: Caller, request: w.Reader) -> Iterable[str]:
        return () if _competes(caller) else filter(None, [request.group])

    def _read_queue(self, caller: Caller, request: w.Reader) -> Iterable[str]:
        return [request.group or queue_limits.DEFAULT_QUEUE] if _competes(caller) else ()

    def _group(self, _: Caller, request: Any) -> Iterable[str]:
        return [request.group]

    def _writer(self, _: Caller, request: w.Writer) -> Iterable[str]:
        return filter(None, [request.writer])

    def _writer_application(self, _: Caller, request: w.Writer) -> Iterable[str]:
        return () if request.stage is None else [request.stage.application]

    def _application(self, _: Caller, request: w.StageCommit | w.StageForget) -> Iterable[str]:
        return [request.application]

    def _aborted_applications(self, caller: Caller, request: w.StageAbort) -> Iterable[str]:
        return [stage.record.application for stage in self._found(caller, request.stages)]

    NEEDS: ClassVar[dict[type, tuple[Row, ...]]] = {
        w.Open: (),
        w.Authorize: (),
        w.Profile: (),
        w.LeaseClose: (),  # whoever is its principal
        # Of "any and all" a lease has what its principal may read, or write.
        w.Reader: ((READ, _resources_of), (GROUP, _read_group), (QUEUE, _read_queue), (WRITE, _buried)),
        w.Writer: ((WRITE, _written), (WRITER, _writer), (APPLICATION, _writer_application)),
        w.ResourceCreate: ((MANAGE, _created),),
        w.ResourceDelete: ((MANAGE, _resource),),
        w.ResourceList: (),  # shows what may be seen
        w.ResourceDescribe: ((ON_RESOURCES, _described),),
        w.ResourceLocate: ((READ, _resource),),
        w.CursorOpen: ((READ, _resource), (GROUP, _group)),
        w.CursorReset: ((READ, _resource), (GROUP, _group)),
        w.CursorDelete: ((READ, _resource), (GROUP, _group)),
        w.CursorDescribe: ((ON_RESOURCES, _resource),),
        w.QueueDelete: ((READ, _resource), (QUEUE, _group)),
        w.QueueDescribe: ((ON_RESOURCES, _resource),),
        w.StageCommit: (
            (WRITE, _staged_and_committed),
            (MANAGE, _truncated),  # as Resource.Delete
            (APPLICATION, _application),
        ),
        w.StageAbort: ((WRITE, _staged), (APPLICATION, _aborted_applications)),
        w.StageForget: ((WRITE, _committed), (APPLICATION, _application)),
        w.StageDescribe: (),  # shows what may be seen
    }
    """What a request needs: of every line one of its rights on each of its names. No line: nothing, or its method sees
    to it.
    """


def _competes(caller: Caller) -> bool:
    return caller.profile is not None and caller.profile.competing


def _buries(caller: Caller, request: w.Reader) -> bool:
    """Whether what this reader rejects is copied to the dead letters; without confirmation nothing is rejected."""
    return _competes(caller) and request.confirm == "full"


_NOUNS: Final = {
    Right.GROUP: "the group",
    Right.QUEUE: "the queue",
    Right.WRITER: "the writer name",
    Right.APPLICATION: "the application",
}


def _denied(principal: str, vhost: str, rights: frozenset[Right], names: Sequence[str]) -> Refused:
    """The 403 that says which right is missing on which names, and how one of them is granted."""
    right = min(rights, key=list(Right).index)
    listed = ", ".join(map(repr, names[:_MOST_NAMED]))
    pattern = shlex.quote(_SPECIAL.sub(r"\\\g<0>", names[0]))
    command = f"mtl grant {shlex.quote(principal)} --{right} {pattern}"
    if vhost != limits.DEFAULT_VIRTUAL_HOST:
        command += f" --virtual-host {shlex.quote(vhost)}"
    if right in ON_RESOURCES:
        what = f"may not {' or '.join(sorted(rights))} {listed}"
        members = {"resources": list(names[:_MOST_NAMED])}
    else:
        what = f"may not use {_NOUNS[right]} {listed}; its own begin with {principal + '.'!r}"
        members = {"names": list(names[:_MOST_NAMED])}
    return Refused(
        403,
        w.NOT_AUTHORIZED,
        f"user {principal!r} {what}; `{command}` gives the right",
        right=right.value,
        **members,
    )
