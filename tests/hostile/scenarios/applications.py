"""Applications: a user with many of them, and another one that lists what it may see, again and again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import mtl
from mtl.client.waiter import Waiter
from mtl.testing import RunningBroker
from mtl.wire import control
from tests.hostile.harness import PASSWORD, scenario


def in_waves(broker: RunningBroker, user: str, requests: list[control.Request], at_once: int) -> list[object]:
    """The replies to a user's requests, of which so many are under way at the same time. They have so many connections:
    with one for each request the broker would soon accept no more of this address, which is that of the other user.
    """
    answers: list[object] = []
    with ExitStack() as stack:
        connections = [
            stack.enter_context(mtl.connect(broker.endpoint, user=user, password=PASSWORD))
            for _ in range(at_once)
        ]
        for first in range(0, len(requests), at_once):
            pairs = zip(connections, requests[first : first + at_once], strict=False)
            wave: list[Waiter] = [connection.ask(request, patience=0.0)[1] for connection, request in pairs]
            answers += [waiter.wait() for waiter in wave]
    return answers


@scenario(users={"many": ("write .*",), "tiny": ("read mine",)})
def a_describe_among_the_applications_of_others(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """A user that sees one application lists the stages and applications, with many requests under way."""
    count, rounds, at_once = (20_000, 5_000, 200) if heavy else (100, 50, 5)
    commits: list[control.Request] = [
        control.StageCommit(application=f"many.{n}", version=1, stages=[]) for n in range(count)
    ]
    list_all: list[control.Request] = [control.StageDescribe()]
    in_waves(broker, "many", commits, at_once)
    with mtl.connect(broker.endpoint, user="tiny", password=PASSWORD) as tiny:
        tiny.request(control.StageCommit(application="tiny.query", version=1, stages=[]))
        for found in in_waves(broker, "tiny", list_all * rounds, at_once):
            assert isinstance(found, control.StageList)
            assert [x.application for x in found.applications] == ["tiny.query"]
            assert found.continue_ is None
        yield f"{rounds:,} lists of one application among {count:,} of another user"
