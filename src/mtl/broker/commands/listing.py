"""Lists in pages (PROTOCOL.md 2.4): a page has a bounded number of entries and octets, and its cost is bounded, too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import compress
from typing import TypeVar

import msgspec

from mtl.broker import limits as broker_limits
from mtl.broker.access.accounts import ON_RESOURCES
from mtl.broker.access.caller import Caller
from mtl.broker.access.patterns import matching
from mtl.broker.commands.authorization import APPLICATION, Authorization
from mtl.broker.commands.bookmarks import Bookmarks
from mtl.broker.queues.queues import QueueKey, Queues
from mtl.broker.reading.cursors import CursorKey, Cursors
from mtl.broker.reading.reads import Reads
from mtl.broker.sorted_keys import Key, Page
from mtl.broker.stages.applications import Applications
from mtl.broker.stages.stages import StageKey, Stages
from mtl.broker.writing.resource import Resource, ResourceKey
from mtl.broker.writing.resources import Resources
from mtl.storage.api import RangeFrom
from mtl.wire import control

B = TypeVar("B", bound=control.Body)
K = TypeVar("K", bound=Key)

_STAGES, _APPLICATIONS = "stages", "applications"
"""The first member of `continue` while Stage.Describe lists stages, and while it lists applications, which follow."""


def fitting(
    entries: Iterable[B], keys: Sequence[K], last: K | None, used: int = 0
) -> tuple[list[B], K | None]:
    """The first entries that fit one reply of which `used` octets are used (at least one entry, if none), and the key
    after which the next page begins. `last` is the latter if all entries fit.
    """
    taken: list[B] = []
    for entry in entries:
        octets = _octets(entry)
        if used and used + octets > broker_limits.PAGE_OCTETS:
            return taken, keys[len(taken) - 1] if taken else None
        used += octets
        taken.append(entry)
    return taken, last


def _octets(*entries: control.Body) -> int:
    return sum(len(msgspec.json.encode(entry)) + 1 for entry in entries)


def continued(last: Key | None, *before: str) -> list[str] | None:
    """The member `continue` of an answer; a key begins with the virtual host, which is left out."""
    return None if last is None else [*before, *last[1:]]


def _named(request: control.ResourceList | control.ResourceDescribe) -> Sequence[str] | None:
    if isinstance(request, control.ResourceList):
        return None
    return [request.resource] if request.resource is not None else request.resources


async def describe(
    reads: Reads, resources: Sequence[Resource], principal: str, *, history: bool = False
) -> list[control.Description]:
    """Describe resources to a principal, with the epochs of their logs if asked for.

    The time of the oldest content may have to be read. An error is left out here; readers get it.
    """
    filled = [r for r in resources if r.log is not None and r.log.contents]
    oldest = await reads.ask_all([(r, RangeFrom(r.earliest, contents=1)) for r in filled], principal)
    times = {r: x.time_us for r, x in zip(filled, oldest, strict=True) if x is not None}
    return [r.describe(times.get(r), history=history) for r in resources]


class Listing:
    """The pages of resources, cursors, queues, stages and applications. A client sees the resources on which it has any
    right, and the stages and applications on which it has the right `application`, too.
    """

    def __init__(
        self,
        authorization: Authorization,
        resources: Resources,
        cursors: Cursors,
        queues: Queues,
        stages: Stages,
        applications: Applications,
        reads: Reads,
        bookmarks: Bookmarks,
    ) -> None:
        self._bookmarks = bookmarks
        self._authorization = authorization
        self._resources = resources
        self._cursors = cursors
        self._queues = queues
        self._stages = stages
        self._applications = applications
        self._reads = reads

    def opened(self, request: control.Request) -> control.Request:
        """The request with the place where its page begins. Raises `Refused` 400 for a `continue` of another broker."""
        if isinstance(request, control.ListRequest) and request.continue_ is not None:
            return msgspec.structs.replace(request, continue_=self._bookmarks.open(request.continue_))
        return request

    def sealed(self, reply: control.Reply) -> control.Reply:
        """The answer without the name where its page ends."""
        if isinstance(reply, control.Listed) and reply.continue_ is not None:
            return msgspec.structs.replace(reply, continue_=self._bookmarks.seal(reply.continue_))
        return reply

    def page(
        self, caller: Caller, request: control.ResourceList | control.ResourceDescribe
    ) -> tuple[list[Resource], ResourceKey | None]:
        """The resources of one page, and the last key if there may be more. Raises `Refused` 404 for missing names, 503
        while it is unknown whether one of the resources exists.
        """
        names = _named(request)
        if names is not None:
            return self._present(caller, request, names), None
        self._check_decided(caller, request.pattern)
        visible = partial(self._authorization.visibility, caller)
        page = self._resources.page(
            caller.vhost,
            request.pattern,
            request.continue_,
            visible,
            self._authorization.beginnings(caller, ON_RESOURCES),
        )
        resources = (self._resources.listed(*key) for key in page.keys)
        return [r for r in resources if r is not None], page.last

    def _present(
        self, caller: Caller, request: control.ResourceList | control.ResourceDescribe, names: Sequence[str]
    ) -> list[Resource]:
        after = request.continue_[0] if request.continue_ else ""
        wanted = sorted({name for name in names if name > after})
        if isinstance(request, control.ResourceDescribe) and request.missing_ok:
            wanted = [name for name in wanted if self._resources.is_present(caller.vhost, name)]
        return self._resources.need_all(caller.vhost, wanted)

    def check(self, caller: Caller, request: control.ResourceDescribe) -> None:
        """Raises `Refused` 404 if a resource that the request names does not exist, unless `missing-ok`; 503 while it
        is unknown whether a resource of the request exists.
        """
        names = _named(request)
        if names is None:
            self._check_decided(caller, request.pattern)
        elif not request.missing_ok:
            self._resources.need_all(caller.vhost, names)
        else:
            self._check_decided(caller, None, names)

    def _check_decided(self, caller: Caller, pattern: str | None, names: Iterable[str] | None = None) -> None:
        """Raises `Refused` 503 while it is unknown whether a resource exists that is among `names`, matches the pattern
        and is visible; None are all.
        """
        undecided = self._resources.undecided(caller.vhost)
        asked = [name for name in undecided if names is None or name in names]
        if pattern is not None:
            asked = list(compress(asked, matching(pattern, asked)))
        for name in compress(asked, self._authorization.visibility(caller, asked)):
            raise undecided[name]

    async def list_resources(self, caller: Caller, request: control.ResourceList) -> control.DescriptionList:
        """Resource.List."""
        entries, last = await self.describe_resources(caller, self.page(caller, request))
        return control.DescriptionList(resources=entries, continue_=continued(last))

    async def describe_resources(
        self, caller: Caller, page: tuple[Sequence[Resource], ResourceKey | None], *, history: bool = False
    ) -> tuple[list[control.Description], ResourceKey | None]:
        """The descriptions of a page, as far as they fit a reply."""
        resources, last = page
        entries = await describe(self._reads, resources, caller.principal, history=history)
        return fitting(entries, [r.key for r in resources], last)

    async def describe_queues(self, caller: Caller, request: control.QueueDescribe) -> control.QueueList:
        """Queue.Describe. Raises `Refused` 503 while it is unknown whether a resource of the request exists."""
        self._check_decided(caller, None, None if request.resource is None else [request.resource])
        page = self.queues_page(caller, request)
        entries, last = fitting(self._queues.describe(page.keys), page.keys, page.last)
        return control.QueueList(queues=entries, continue_=continued(last))

    def cursors_page(self, caller: Caller, request: control.CursorDescribe) -> Page[CursorKey]:
        """The cursors of one page."""
        visible = partial(self._authorization.visibility, caller)
        return self._cursors.page(caller.vhost, request.group, request.resource, request.continue_, visible)

    def queues_page(self, caller: Caller, request: control.QueueDescribe) -> Page[QueueKey]:
        """The queues of one page."""
        visible = partial(self._authorization.visibility, caller)
        return self._queues.page(
            caller.vhost,
            request.resource,
            request.group,
            request.continue_,
            visible,
            self._authorization.beginnings(caller, ON_RESOURCES),
        )

    async def describe_stages(self, caller: Caller, request: control.StageDescribe) -> control.StageList:
        """Stage.Describe: the pages of stages, then those of applications, which begin on the last page of stages."""
        stage_page = self.stages_page(caller, request)
        described = self._stages.describe(key[-1] for key in stage_page.keys)
        stages, last_stage = fitting(described, stage_page.keys, stage_page.last)
        if last_stage is not None or request.stage is not None:
            return control.StageList(stages=stages, applications=[], continue_=continued(last_stage, _STAGES))
        after = _after(request, _APPLICATIONS)
        page = self._applications.page(
            caller.vhost,
            request.application,
            after or None,
            partial(self._authorization.visible_applications, caller),
            self._authorization.beginnings(caller, APPLICATION),
        )
        entries, last = fitting(
            self._applications.describe(page.keys), page.keys, page.last, _octets(*stages)
        )
        none_fits = bool(page.keys) and not entries
        next_ = [_APPLICATIONS] if none_fits else continued(last, _APPLICATIONS)
        return control.StageList(stages=stages, applications=entries, continue_=next_)

    def stages_page(self, caller: Caller, request: control.StageDescribe) -> Page[StageKey]:
        """The stages of one page; none on the pages of applications."""
        visible = partial(self._authorization.visible_applications, caller)
        if request.stage is not None:
            stage = self._stages.find(caller.vhost, request.stage)
            if stage is None or not all(visible([(stage.record.application, stage.record.incarnations)])):
                return Page([], None)
            return Page([stage.key], None)
        if _after(request, _APPLICATIONS) is not None:
            return Page([], None)
        return self._stages.page(
            caller.vhost,
            request.application,
            _after(request, _STAGES),
            visible,
            self._authorization.beginnings(caller, APPLICATION),
        )


def _after(request: control.StageDescribe, kind: str) -> list[str] | None:
    """The key after which the page begins, empty for the first one, if it is a page of this kind."""
    after = request.continue_
    return after[1:] if after and after[0] == kind else None
