"""Random long polls, while resources are created, grow and are deleted; their answers according to PROTOCOL.md 5.1.

The client knows the last description of each resource, or none, so its knowledge is often outdated in a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mtl.broker.limits import SAVE_RETRY_S
from mtl.errors import Refused
from mtl.limits import REQUEST_TIMEOUT_S
from mtl.wire import control
from tests.support.core import Rig
from tests.support.core_client import Waiting
from tests.support.faulty_store import refuse

NAMES = ("a", "b", "c")
WAIT_S = 20.0

names = st.sampled_from(NAMES)
some = st.lists(names, unique=True, min_size=1)


class Known(NamedTuple):
    """The last known state of a resource."""

    incarnation: str
    next: int


@dataclass(eq=False)
class Poll:
    """A waiting request: for these names (None: all resources), with this known state."""

    waiting: Waiting
    asked: list[str] | None
    is_open: bool
    known: Mapping[str, Known]
    left_s: float = WAIT_S
    doubted: bool = False
    """Whether it was unknown meanwhile whether a resource of the request exists."""
    came_and_went: bool = False
    """Whether a resource of the request was made and deleted after the known state: its name is in `removed`."""

    def covers(self, name: str) -> bool:
        return self.asked is None or name in self.asked

    def is_news(self, there: Mapping[str, Known]) -> bool:
        """Whether the wait ends, in terms close to the document."""
        asks = [name for name in NAMES if self.asked is None or name in self.asked]
        found = {name: there[name] for name in asks if name in there}
        known = {name: self.known[name] for name in asks if name in self.known}
        missing = not self.is_open and len(found) < len(asks)
        return found != known or missing or self.came_and_went


@dataclass
class _State:
    there: dict[str, Known] = field(default_factory=dict)
    described: dict[str, Known] = field(default_factory=dict)
    token: str = ""
    deleted: set[str] = field(default_factory=set)
    """The names that were deleted after the described state."""
    polls: list[Poll] = field(default_factory=list)


class PollsAndModel(RuleBasedStateMachine):
    """One client that changes resources, and asks for news of them."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(heartbeat_s=60.0)
        self.client = self.rig.client()
        self.state = _State()

    @initialize(first=some)
    def begin(self, first: list[str]) -> None:
        for name in first:
            self.create(name)
            self.fill(name, 1)
        self.describe_all()

    @rule(name=names)
    def create(self, name: str) -> None:
        if name not in self.state.there:
            made = self.client.ask(control.ResourceCreate(resource=name), control.ResourceCreated).resource
            self.state.there[name] = Known(made.incarnation, 1)

    @rule(name=names, count=st.integers(1, 3))
    def fill(self, name: str, count: int) -> None:
        before = self.state.there.get(name)
        if before is not None and count:
            self.client.fill(name, [b"x"] * count)
            self.state.there[name] = Known(before.incarnation, before.next + count)

    @rule(name=names)
    def delete(self, name: str) -> None:
        if self.state.there.pop(name, None) is not None:
            self.client.ask(control.ResourceDelete(resource=name), control.Ok)
            self.state.deleted.add(name)

    @rule(name=names, other=names, rarely=st.integers(0, 3))
    def delete_in_doubt(self, name: str, other: str, rarely: int) -> None:
        """A Delete whose outcome is unknown for a while, because the disk is full: nobody is told that the resource is
        gone. In the end it was not deleted. It is rare because it takes much time.
        """
        if name not in self.state.there or rarely:
            return
        for poll in self.state.polls:
            poll.doubted |= poll.covers(name)
        self.rig.store.hook = _full
        deleting = self.client.begin(control.ResourceDelete(resource=name))
        self.rig.sleep(REQUEST_TIMEOUT_S / 2, SAVE_RETRY_S)
        assert deleting.answered
        about: list[control.Request] = [
            control.ResourceList(),
            control.ResourceDescribe(resource=name),
            control.ResourceDescribe(pattern=f"{name}|{other}"),
            control.ResourceDescribe(resources=[name], missing_ok=True, since=self.state.token, wait=1_000),
            control.ResourceDescribe(since=self.state.token, wait=1_000),
        ]
        for request in about:
            assert self.client.refused(request).reason == control.STORAGE, request
        if other != name:
            found = self.client.ask(control.ResourceList(pattern=other), control.DescriptionList).resources
            assert [x.resource for x in found] == [other] * (other in self.state.there)
        self.rig.store.hook = lambda _: None
        passed = REQUEST_TIMEOUT_S / 2 + 2 * SAVE_RETRY_S
        self.rig.sleep(2 * SAVE_RETRY_S, SAVE_RETRY_S)
        for poll in self.state.polls:
            poll.left_s -= passed

    @rule(name=names, count=st.integers(0, 3))
    def make_again(self, name: str, count: int) -> None:
        """Delete and recreate a resource in one step."""
        if name in self.state.there:
            self.delete(name)
            self.create(name)
            self.fill(name, count)

    @rule()
    def describe_all(self) -> None:
        """Describe all resources."""
        answer = self.client.ask(control.ResourceDescribe(), control.DescriptionList)
        self.state.described = {
            resource.resource: Known(resource.incarnation, resource.next) for resource in answer.resources
        }
        self.state.token = answer.state or ""
        self.state.deleted.clear()
        assert self.state.described == self.state.there

    @rule(asked=st.none() | some, by_pattern=st.booleans())
    def ask(self, asked: list[str] | None, by_pattern: bool) -> None:
        """Poll for names, a pattern, or all resources."""
        about: dict[str, Any] = {} if asked is None else {"resources": asked}
        if asked is not None and by_pattern:
            about = {"pattern": "|".join(asked)}
        request = control.ResourceDescribe(**about, since=self.state.token, wait=int(WAIT_S * 1000))
        known = dict(self.state.described)
        poll = Poll(self.client.begin(request), asked, asked is None or by_pattern, known)
        poll.came_and_went = any(map(poll.covers, self.state.deleted - self.state.there.keys()))
        self.state.polls.append(poll)

    @rule(seconds=st.sampled_from((1.0, 7.0)))
    def wait(self, seconds: float) -> None:
        self.rig.sleep(seconds, seconds)
        for poll in self.state.polls:
            poll.left_s -= seconds

    @invariant()
    def a_poll_is_answered_when_there_is_news_or_its_time_is_over(self) -> None:
        for poll in list(self.state.polls):
            due = poll.is_news(self.state.there) or poll.left_s <= 0
            assert poll.waiting.answered is due, (poll.asked, poll.known, self.state.there)
            if due:
                self.state.polls.remove(poll)
                self._check_reply(poll)

    def _check_reply(self, poll: Poll) -> None:
        """The answer has the requested resources, not beyond their present ends, or names a missing resource."""
        try:
            found = poll.waiting.reply(control.DescriptionList).resources
        except Refused as refused:
            in_doubt = poll.doubted and refused.reason == control.STORAGE
            if not in_doubt and (poll.is_open or refused.reason != control.UNKNOWN_RESOURCE):
                raise AssertionError(f"{poll.asked} was refused") from refused
            return
        assert {resource.resource for resource in found} <= set(NAMES if poll.asked is None else poll.asked)
        for resource in found:
            there = self.state.there.get(resource.resource)
            if there is not None and there.incarnation == resource.incarnation:
                assert resource.next <= there.next


def _full(_: str) -> None:
    raise refuse(full=True)
