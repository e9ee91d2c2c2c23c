"""Applications: a user with many of them, and another one that lists what it may see, again and again."""

from __future__ import annotations

from collections.abc import Iterator

import mtl
from mtl.client.waiter import Waiter
from mtl.testing import RunningBroker
from mtl.wire import control
from tests.hostile.harness import PASSWORD, scenario


def in_waves(connection: mtl.Connection, requests: list[control.Request], at_once: int) -> list[object]:
    """The replies to requests, of which so many are under way at the same time."""
    answers: list[object] = []
    for first in range(0, len(requests), at_once):
        wave: list[Waiter] = [connection.ask(x, patience=60.0)[1] for x in requests[first : first + at_once]]
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
    with (
        mtl.connect(broker.endpoint, user="many", password=PASSWORD) as many,
        mtl.connect(broker.endpoint, user="tiny", password=PASSWORD) as tiny,
    ):
        in_waves(many, commits, at_once)
        tiny.request(control.StageCommit(application="tiny.query", version=1, stages=[]))
        for found in in_waves(tiny, list_all * rounds, at_once):
            assert isinstance(found, control.StageList)
            assert [x.application for x in found.applications] == ["tiny.query"]
            assert found.continue_ is None
        yield f"{rounds:,} lists of one application among {count:,} of another user"
