"""Which right each control request needs, on which resources; and what of a list somebody may see (PROTOCOL.md 2.2).

One row per command. Groups, writer names and applications are names that the users of a virtual host share: what is
done to them needs the right on the resources concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any, ClassVar, Final

from mtl.broker.accounts import ANY_RIGHT, Accounts, Right
from mtl.broker.committing import Committing
from mtl.broker.resources import Resource
from mtl.broker.sessions import Session
from mtl.broker.stages import Stages
from mtl.errors import Refused
from mtl.wire import control as w

READ, WRITE, MANAGE = frozenset({Right.READ}), frozenset({Right.WRITE}), frozenset({Right.MANAGE})

_MOST_NAMED: Final = 10
"""Names in a refusal."""

Need = tuple[frozenset[Right], Callable[["Authorization", Session, Any], Iterable[str]]]
"""Rights of which one is needed, and on which resources."""


class Authorization:
    """Looks requests up in the table below."""

    def __init__(self, accounts: Accounts, stages: Stages, committing: Committing) -> None:
        self._accounts = accounts
        self._stages = stages
        self._committing = committing

    def check(self, session: Session, request: w.Request) -> None:
        """Raises `Refused` 403, with the names in `resources`, whether or not there are such."""
        for rights, names in self.NEEDS[type(request)]:
            self._check(session, rights, names(self, session, request))

    def _check(self, session: Session, rights: frozenset[Right], names: Iterable[str]) -> None:
        asked = list(dict.fromkeys(names))
        allowed = self._accounts.may(session.principal, session.vhost, rights, asked)
        denied = [name for name, yes in zip(asked, allowed, strict=True) if not yes]
        if denied:
            listed = ", ".join(map(repr, denied[:_MOST_NAMED]))
            raise Refused(
                403,
                w.NOT_AUTHORIZED,
                f"user {session.principal!r} may not {' or '.join(sorted(rights))} {listed}; `mtl grant` gives a right",
                resources=denied[:_MOST_NAMED],
            )

    def sees(self, session: Session, names: Sequence[str]) -> list[bool]:
        """For each resource whether this client may know of it."""
        return self._accounts.may(session.principal, session.vhost, ANY_RIGHT, names)

    def seen(self, session: Session, resources: Sequence[Resource]) -> list[Resource]:
        """Those of them that it may know of."""
        return list(compress(resources, self.sees(session, [r.name for r in resources])))

    def sees_all(self, session: Session, names: Iterable[str]) -> bool:
        """Whether it may know of all of these."""
        return all(self.sees(session, list(names)))

    def sees_stage(self, session: Session, name: str) -> bool:
        """Whether it may know of all resources that a stage is for."""
        stage = self._stages.find(session.vhost, name)
        return stage is not None and self.sees_all(session, stage.record.incarnations)

    # --- which resources a request is about -----------------------------------------------------------------

    def _resource(self, _: Session, request: Any) -> Iterable[str]:
        return filter(None, [request.resource])

    def _created(self, _: Session, request: w.ResourceCreate) -> Iterable[str]:
        """Also where its dead letters go: who makes a queue's resource decides what is written there."""
        return filter(None, [request.resource, request.dead_letter])

    def _resources(self, _: Session, request: Any) -> Iterable[str]:
        return request.resources or ()

    def _described(self, _: Session, request: w.ResourceDescribe) -> Iterable[str]:
        return [request.resource] if request.resource is not None else request.resources or ()

    def _staged(self, session: Session, request: Any) -> Iterable[str]:
        for name in request.stages:
            stage = self._stages.find(session.vhost, name)
            if stage is not None:
                yield from stage.record.incarnations

    def _committed(self, session: Session, request: w.StageCommit | w.StageForget) -> Iterable[str]:
        for last in self._committing.of(session.vhost, request.application):
            yield from last.resources

    def _staged_and_committed(self, session: Session, request: w.StageCommit) -> Iterable[str]:
        yield from self._staged(session, request)
        yield from self._committed(session, request)

    def _truncated(self, _: Session, request: w.StageCommit) -> Iterable[str]:
        return request.truncate

    NEEDS: ClassVar[dict[type, tuple[Need, ...]]] = {
        w.Open: (),
        w.Authorize: (),
        w.Profile: (),
        w.LeaseClose: (),  # whoever is its principal
        w.Reader: ((READ, _resources),),  # of "any and all" a lease has what its principal may read
        w.Writer: ((WRITE, _resources),),
        w.ResourceCreate: ((MANAGE, _created),),
        w.ResourceDelete: ((MANAGE, _resource),),
        w.ResourceList: (),  # shows what may be seen
        w.ResourceDescribe: ((ANY_RIGHT, _described),),
        w.ResourceLocate: ((READ, _resource),),
        w.CursorOpen: ((READ, _resource),),
        w.CursorReset: ((READ, _resource),),
        w.CursorDelete: ((READ, _resource),),
        w.CursorDescribe: ((ANY_RIGHT, _resource),),
        w.QueueDelete: ((MANAGE, _resource),),  # what it forgets is not the caller's alone
        w.QueueDescribe: ((ANY_RIGHT, _resource),),
        w.StageCommit: ((WRITE, _staged_and_committed), (MANAGE, _truncated)),  # as Resource.Delete
        w.StageAbort: ((WRITE, _staged),),
        w.StageForget: ((WRITE, _committed),),
        w.StageDescribe: (),  # shows what may be seen
    }
    """What a request needs: of every line one of its rights on each of its names. No line: nothing, or its method sees
    to it.
    """
