"""Applications: a user with many of them, and another one that lists what it may see, again and again."""

from __future__ import annotations

import mtl
from mtl.client.waiter import Waiter
from mtl.testing import RunningBroker
from mtl.wire import control as w
from tests.hostile.harness import scenario
from tests.hostile.scenarios.rights import user


def in_waves(connection: mtl.Connection, requests: list[w.Request], at_once: int) -> list[object]:
    """The replies to requests, of which so many are under way at the same time."""
    answers: list[object] = []
    for first in range(0, len(requests), at_once):
        wave: list[Waiter] = [connection.ask(x, patience=60.0)[1] for x in requests[first : first + at_once]]
        answers += [waiter.wait() for waiter in wave]
    return answers


@scenario()
def a_describe_among_the_applications_of_others(broker: RunningBroker, heavy: bool) -> str:
    """A user that sees one application lists the stages and applications, with many requests under way."""
    count, rounds, at_once = (20_000, 5_000, 200) if heavy else (100, 50, 5)
    list_all: list[w.Request] = [w.StageDescribe()]
    with (
        mtl.connect(broker.endpoint) as admin,
        user(broker, "many", "write .*") as many,
        user(broker, "tiny", "read mine", "application mine") as tiny,
    ):
        commits: list[w.Request] = [
            w.StageCommit(application=f"many.{n}", version=1, stages=[]) for n in range(count)
        ]
        in_waves(many, commits, at_once)
        admin.request(w.StageCommit(application="mine", version=1, stages=[]))
        for found in in_waves(tiny, list_all * rounds, at_once):
            assert isinstance(found, w.StageList)
            assert [x.application for x in found.applications] == ["mine"]
            assert found.continue_ is None
    return f"{rounds:,} lists of one application among {count:,} of another user"
