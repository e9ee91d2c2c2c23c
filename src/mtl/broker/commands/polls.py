"""Resource.Describe, also as a long poll: with `since` and `wait` it is answered when a resource has changed.

PROTOCOL.md 5.1. Polls are indexed by the resources, or by the pattern, that they ask for, so that a group commit checks
only those for its resource.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import compress, islice
from typing import NamedTuple, TypeVar

from mtl.broker import limits as broker_limits
from mtl.broker.access.caller import Caller
from mtl.broker.access.patterns import check, matches
from mtl.broker.commands.authorization import Authorization
from mtl.broker.commands.changes import Changes
from mtl.broker.commands.listing import Listing, continued
from mtl.broker.outbox import Outbox
from mtl.broker.quotas.pools import Pool
from mtl.broker.quotas.quotas import Quota, Quotas
from mtl.broker.steps import Outcome
from mtl.broker.writing.resource import Resource, ResourceKey
from mtl.broker.writing.resources import Resources
from mtl.wire import control

K = TypeVar("K")


class _Poll:
    """One waiting Describe: of the resources `names`, or (None) of those that match `pattern`, or (None) of all."""

    def __init__(self, caller: Caller, request: control.ResourceDescribe) -> None:
        self.caller = caller
        self.request = request
        self.over: Outcome[None] = Outcome()
        named = [request.resource] if request.resource is not None else request.resources
        self.names = None if named is None else dict.fromkeys(named)
        self.pattern = request.pattern

    @property
    def cost(self) -> int:
        """The names in the request."""
        return len(self.names or ())

    def covers(self, name: str) -> bool:
        """Whether the poll asks for a resource of this name."""
        if self.names is not None:
            return name in self.names
        return self.pattern is None or matches(self.pattern, name)


class _Changed(NamedTuple):
    """The resources of a poll that have changed since its state, with the numbers of their last changes, and the state
    after the last of them. They are not `all` if there are more than a page.
    """

    names: dict[str, int]
    state: str
    all: bool


class Polls:
    """Every waiting poll, each for at most MAX_WAIT_S seconds. A client is not told about a resource that it may not
    see.
    """

    def __init__(
        self,
        outbox: Outbox,
        resources: Resources,
        listing: Listing,
        changes: Changes,
        authorization: Authorization,
        quotas: Quotas,
    ) -> None:
        self._outbox = outbox
        self._resources = resources
        self._listing = listing
        self._changes = changes
        self._authorization = authorization
        self._quotas = quotas
        self._pool, self._names = Pool(quotas, Quota.WAITS), Pool(quotas, Quota.WAITING_NAMES)
        self._polls: dict[int, _Poll] = {}
        self._named: dict[ResourceKey, dict[int, None]] = {}
        self._open: dict[tuple[str, str | None], dict[int, None]] = {}
        """The polls without names, by virtual host and pattern."""
        self._patterns = Pool(quotas, Quota.WAITING_PATTERNS)
        self._patterns_of: Counter[tuple[str, str, str | None]] = Counter()
        """The polls of each (owner, virtual host, pattern)."""
        self._last = 0

    async def describe(self, caller: Caller, request: control.ResourceDescribe) -> control.DescriptionList:
        """Resource.Describe: answered now, or when there is a change. Raises `Refused` 404, 503 for too many polls."""
        if request.pattern is not None:
            check(request.pattern)
        poll = _Poll(caller, request)
        changed = self._changed(poll)
        if changed is not None and changed.all and not changed.names and request.wait:
            self._listing.check(caller, request)
            await self._wait(poll)
            self._authorization.check(caller, request)  # a right may have been revoked meanwhile
            changed = self._changed(poll)
        if changed is None:
            return await self._describe_all(poll)
        return await self._describe_changed(poll, changed)

    def _wait(self, poll: _Poll) -> Outcome[None]:
        self._admit(poll)
        self._last += 1
        number = self._last
        self._polls[number] = poll
        for key in self._keys_of(poll):
            self._named.setdefault(key, {})[number] = None
        if poll.names is None:
            self._open.setdefault((poll.caller.vhost, poll.pattern), {})[number] = None
        seconds = min(poll.request.wait / 1000, broker_limits.MAX_WAIT_S)
        self._outbox.later(seconds, partial(self._answer, number))
        return poll.over

    def _admit(self, poll: _Poll) -> None:
        """Raises `Refused` 503 when there is no room for another poll, 403 above its principal's quota."""
        principal = poll.caller.principal
        self._pool.check(principal)
        self._names.check(principal, poll.cost)
        is_new = poll.names is None and not self._patterns_of[self._pattern_of(poll)]
        self._patterns.check(principal, int(is_new))
        owner = self._quotas.owner(principal)
        self._pool.add(owner)
        self._names.add(owner, poll.cost)
        if poll.names is None:
            self._patterns.add(owner, int(is_new))
            self._patterns_of[self._pattern_of(poll)] += 1

    def changed(self, resource: Resource) -> None:
        """A resource was created or deleted, or its visible end moved: answer the polls that wait for it."""
        vhost, name = resource.key
        waiting = [*self._named.get(resource.key, ())]
        if self._open:
            for (of, pattern), numbers in self._open.items():
                if of == vhost and (pattern is None or matches(pattern, name)):
                    waiting += numbers
        for number in waiting:
            if self._authorization.are_visible(self._polls[number].caller, [name]):
                self._answer(number)

    def users_changed(self, sessions: frozenset[str], principals: frozenset[str]) -> None:
        """Sessions have to authenticate again, and principals have other rights: answer their polls now, with what they
        may see. Their next request gets the 401 or the 403.
        """
        for number, poll in list(self._polls.items()):
            if poll.caller.session in sessions or poll.caller.principal in principals:
                self._answer(number)

    def _pattern_of(self, poll: _Poll) -> tuple[str, str, str | None]:
        return self._quotas.owner(poll.caller.principal), poll.caller.vhost, poll.pattern

    def _keys_of(self, poll: _Poll) -> list[ResourceKey]:
        return [(poll.caller.vhost, name) for name in poll.names or ()]

    def _answer(self, number: int) -> None:
        """End the wait, and forget the poll, unless it was answered before."""
        poll = self._polls.pop(number, None)
        if poll is None:
            return
        owner = self._quotas.owner(poll.caller.principal)
        self._pool.remove(owner)
        self._names.remove(owner, poll.cost)
        for key in self._keys_of(poll):
            _drop(self._named, key, number)
        if poll.names is None:
            _drop(self._open, (poll.caller.vhost, poll.pattern), number)
            pattern = self._pattern_of(poll)
            self._patterns_of[pattern] -= 1
            if not self._patterns_of[pattern]:
                del self._patterns_of[pattern]
                self._patterns.remove(owner)
        poll.over.set(None)

    # --- answers --------------------------------------------------------------------------------------------

    async def _describe_all(self, poll: _Poll) -> control.DescriptionList:
        state = None if poll.request.continue_ else self._changes.state()
        page = self._listing.page(poll.caller, poll.request)
        entries, last = await self._listing.describe_resources(
            poll.caller, page, history=poll.request.history
        )
        return control.DescriptionList(resources=entries, state=state, continue_=continued(last))

    def _changed(self, poll: _Poll) -> _Changed | None:
        """The first page of the changes since the state in the request. None if it has no state, or an unknown one."""
        since = None if poll.request.continue_ else poll.request.since
        changed = None if since is None else self._changes.since(poll.caller.vhost, since)
        if changed is None:
            return None
        covered = list(islice(filter(poll.covers, changed), broker_limits.MAX_PAGE))
        seen = list(compress(covered, self._authorization.visibility(poll.caller, covered)))
        is_all = len(covered) < broker_limits.MAX_PAGE
        state = self._changes.state(None if is_all else changed[covered[-1]])
        return _Changed({name: changed[name] for name in seen}, state, is_all)

    async def _describe_changed(self, poll: _Poll, changed: _Changed) -> control.DescriptionList:
        vhost = poll.caller.vhost
        self._listing.check(poll.caller, poll.request)
        resources = [r for name in changed.names if (r := self._resources.listed(vhost, name)) is not None]
        removed = [name for name in changed.names if not self._resources.is_present(vhost, name)]
        entries, last = await self._listing.describe_resources(
            poll.caller, (resources, None), history=poll.request.history
        )
        state = changed.state if last is None else self._changes.state(changed.names[last[1]])
        return control.DescriptionList(resources=entries, removed=removed, state=state)


def _drop(index: dict[K, dict[int, None]], key: K, number: int) -> None:
    del index[key][number]
    if not index[key]:
        del index[key]
