"""Random long polls, while resources are created, grow and are deleted; their answers according to PROTOCOL.md 5.1.

The client knows the last description of each resource, or none, so its knowledge is often outdated in a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mtl.errors import Refused
from mtl.wire import control as w
from tests.support.core import Rig
from tests.support.core_client import Waiting

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

    def is_news(self, there: Mapping[str, Known]) -> bool:
        """Whether the wait ends, in terms close to the document."""
        asks = [name for name in NAMES if self.asked is None or name in self.asked]
        found = {name: there[name] for name in asks if name in there}
        known = {name: self.known[name] for name in asks if name in self.known}
        missing = not self.is_open and len(found) < len(asks)
        return found != known or missing


@dataclass
class _State:
    there: dict[str, Known] = field(default_factory=dict)
    described: dict[str, Known] = field(default_factory=dict)
    token: str = ""
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
            made = self.client.ask(w.ResourceCreate(resource=name), w.ResourceCreated).resource
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
            self.client.ask(w.ResourceDelete(resource=name), w.Ok)

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
        answer = self.client.ask(w.ResourceDescribe(), w.DescriptionList)
        self.state.described = {
            resource.resource: Known(resource.incarnation, resource.next) for resource in answer.resources
        }
        self.state.token = answer.state or ""
        assert self.state.described == self.state.there

    @rule(asked=st.none() | some, by_pattern=st.booleans())
    def ask(self, asked: list[str] | None, by_pattern: bool) -> None:
        """Poll for names, a pattern, or all resources."""
        about: dict[str, Any] = {} if asked is None else {"resources": asked}
        if asked is not None and by_pattern:
            about = {"pattern": "|".join(asked)}
        request = w.ResourceDescribe(**about, since=self.state.token, wait=int(WAIT_S * 1000))
        known = dict(self.state.described)
        poll = Poll(self.client.begin(request), asked, asked is None or by_pattern, known)
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
            found = poll.waiting.reply(w.DescriptionList).resources
        except Refused as refused:
            if poll.is_open or refused.reason != w.UNKNOWN_RESOURCE:
                raise AssertionError(f"{poll.asked} was refused") from refused
            return
        assert {resource.resource for resource in found} <= set(NAMES if poll.asked is None else poll.asked)
        for resource in found:
            there = self.state.there.get(resource.resource)
            if there is not None and there.incarnation == resource.incarnation:
                assert resource.next <= there.next
