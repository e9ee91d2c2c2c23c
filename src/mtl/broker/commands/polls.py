"""Long polls: Resource.Describe with `after` and `wait`, answered when a resource has changed (PROTOCOL.md 5.1).

Polls are indexed by the resources that they ask for, so that a group commit checks only those for its resource. The
matches of a pattern change only when resources are created or deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from mtl.broker import limits as broker_limits
from mtl.broker.access.caller import Caller
from mtl.broker.access.patterns import matching
from mtl.broker.access.quotas import Quota, Quotas
from mtl.broker.commands.authorization import Authorization
from mtl.broker.commands.describing import describe
from mtl.broker.outbox import Outbox
from mtl.broker.reading.reads import Reads
from mtl.broker.writing.resource import Resource, ResourceKey
from mtl.broker.writing.resources import Resources
from mtl.errors import Refused
from mtl.wire import control as w

Answer = Callable[[w.Reply | Refused], None]
K = TypeVar("K")


class _Poll:
    """One waiting Describe, and the resources that it asks for at present."""

    def __init__(self, caller: Caller, request: w.ResourceDescribe, answer: Answer, found: int) -> None:
        self.caller = caller
        self.vhost = caller.vhost
        self.request = request
        self.answer = answer
        self.resources: dict[str, None] = {}
        named = (request.after, request.incarnations, request.resources)
        self.cost = sum(len(names or ()) for names in named) + found
        """The names in the request and the resources found."""

    @property
    def is_open(self) -> bool:
        """Whether the poll names no resources, so that new ones may belong to it."""
        return self.request.resource is None and self.request.resources is None

    def matches(self, resource: Resource) -> bool:
        """Whether an open poll asks for this resource, too."""
        pattern = self.request.pattern
        return pattern is None or matching(pattern, [resource.name])[0]

    def is_changed(self, resource: Resource) -> bool:
        """Whether the resource is a change for the client: its end has moved since the last answer, it was created
        again, or the client does not know it. An unknown end is not a change: the client would ask again at once.
        """
        known = (self.request.incarnations or {}).get(resource.name, resource.record.incarnation)
        log, after = resource.log, (self.request.after or {}).get(resource.name, 0)
        return known != resource.record.incarnation or (log is not None and log.next > after)

    def misses(self, found: Sequence[Resource]) -> bool:
        """Whether a resource that the client knows and asks for is not among those found."""
        names = {resource.name for resource in found}
        gone = [name for name in self.request.after or () if name not in names]
        pattern = self.request.pattern
        return self.is_open and any(gone if pattern is None else matching(pattern, gone))


class Polls:
    """All waiting polls: at most `MAX_WAITERS`, for `MAX_WAITING_NAMES` together, each for at most `MAX_WAIT_S`
    seconds. A client is not told about a resource that it may not see.
    """

    def __init__(
        self,
        outbox: Outbox,
        resources: Resources,
        reads: Reads,
        authorization: Authorization,
        quotas: Quotas,
    ) -> None:
        self._outbox = outbox
        self._reads = reads
        self._resources = resources
        self._authorization = authorization
        self._quotas = quotas
        self._of_principal: Counter[str] = Counter()
        self._polls: dict[int, _Poll] = {}
        self._by_resource: dict[ResourceKey, dict[int, None]] = {}
        self._open: dict[str, dict[int, None]] = {}
        """The open polls, by virtual host."""
        self._last = 0
        self._names = 0

    def describe(self, caller: Caller, request: w.ResourceDescribe, answer: Answer) -> None:
        """Resource.Describe: answered now, or when there is a change. Raises `Refused` 404, 413 for too many
        resources, 503 for too many polls.
        """
        found = self._found(caller, request)
        poll = _Poll(caller, request, answer, len(found))
        if (
            request.after is None
            or not request.wait
            or poll.misses(found)
            or any(map(poll.is_changed, found))
        ):
            self._describe(found, request, answer)
            return
        self._admit(poll)
        self._last += 1
        number = self._last
        self._polls[number] = poll
        for resource in found:
            self._register(number, poll, resource)
        if poll.is_open:
            self._open.setdefault(poll.vhost, {})[number] = None
        self._outbox.later(min(request.wait / 1000, broker_limits.MAX_WAIT_S), lambda: self._answer(number))

    def _admit(self, poll: _Poll) -> None:
        """Raises `Refused` 503 when there is no room for another poll, 403 above its principal's quota."""
        principal = poll.caller.principal
        self._quotas.check(principal, Quota.WAITS, self._of_principal[principal])
        if len(self._polls) >= broker_limits.MAX_WAITERS:
            raise Refused(
                503, w.OVERLOADED, f"{broker_limits.MAX_WAITERS} requests wait already; ask without wait"
            )
        if self._names + poll.cost > broker_limits.MAX_WAITING_NAMES:
            raise Refused(
                503, w.OVERLOADED, "too many names are in waiting requests already; ask without wait"
            )
        self._names += poll.cost
        self._of_principal[principal] += 1

    def grew(self, resource: Resource) -> None:
        """The visible end of a resource moved: answer the polls that wait for it."""
        for number in list(self._by_resource.get((resource.record.vhost, resource.name), ())):
            if self._is_visible_change(self._polls[number], resource):
                self._answer(number)

    def created(self, resource: Resource) -> None:
        """A resource was created: answer the open polls that ask for it."""
        for number in list(self._open.get(resource.record.vhost, ())):
            poll = self._polls[number]
            if poll.matches(resource) and self._is_visible_change(poll, resource):
                self._answer(number)

    def deleted(self, resource: Resource) -> None:
        """A resource was deleted: answer the polls that ask for it."""
        for number in list(self._by_resource.get((resource.record.vhost, resource.name), ())):
            self._answer(number)

    def _is_visible_change(self, poll: _Poll, resource: Resource) -> bool:
        return poll.is_changed(resource) and self._authorization.are_visible(poll.caller, [resource.name])

    def _found(self, caller: Caller, request: w.ResourceDescribe) -> list[Resource]:
        vhost = caller.vhost
        names = [request.resource] if request.resource is not None else request.resources
        if names is None:
            return self._authorization.visible_resources(
                caller, self._resources.matching(vhost, request.pattern)
            )
        return self._resources.need_all(vhost, names)

    def _register(self, number: int, poll: _Poll, resource: Resource) -> None:
        poll.resources[resource.name] = None
        self._by_resource.setdefault((poll.vhost, resource.name), {})[number] = None

    def _unregister(self, number: int, poll: _Poll, name: str) -> None:
        del poll.resources[name]
        _drop(self._by_resource, (poll.vhost, name), number)

    def _answer(self, number: int) -> None:
        """Answer with the present state, and forget the poll, unless it was answered before."""
        poll = self._polls.pop(number, None)
        if poll is None:
            return
        self._names -= poll.cost
        self._of_principal[poll.caller.principal] -= 1
        for name in list(poll.resources):
            self._unregister(number, poll, name)
        if poll.is_open:
            _drop(self._open, poll.vhost, number)
        try:
            self._authorization.check(poll.caller, poll.request)  # a right may have been revoked meanwhile
            self._describe(self._found(poll.caller, poll.request), poll.request, poll.answer)
        except Refused as e:
            poll.answer(e)

    def _describe(self, found: Sequence[Resource], request: w.ResourceDescribe, answer: Answer) -> None:
        describe(
            self._reads,
            found,
            lambda found: answer(w.DescriptionList(resources=found)),
            history=request.history,
        )


def _drop(index: dict[K, dict[int, None]], key: K, number: int) -> None:
    del index[key][number]
    if not index[key]:
        del index[key]
