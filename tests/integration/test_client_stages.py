"""Staged writing with a real broker: invisible until committed, exactly once, despite failures."""

from __future__ import annotations

import pytest

from mtl.client.connection import Connection
from mtl.errors import Refused
from mtl.testing import RunningBroker
from mtl.wire.control import StageSpec
from tests.support.contents import bodies, numbered


def test_a_stage_is_invisible_until_it_is_committed_once(connection: Connection) -> None:
    with connection.writer("orders", packed=True, stage=StageSpec(application="app", version=0)) as writer:
        for body in numbered(100):
            writer.send(body)
        sealed = writer.seal()
    assert sealed.contents == {"orders": 100}
    assert connection.describe(["orders"])["orders"].next == 1
    result = connection.stage_commit("app", 0, [sealed.stage], digest={"hash": "1"})
    assert not result.already
    assert result.resources["orders"].contents == 100
    assert connection.stage_commit("app", 0, [sealed.stage], digest={"hash": "1"}).already
    with pytest.raises(Refused, match=r"other-contents.*hash 1, now 2"):
        connection.stage_commit("app", 0, [], digest={"hash": "2"})
    assert bodies(connection.reader("orders", until=101)) == numbered(100)
    with connection.writer("orders", stage=StageSpec(application="app", version=2)) as later:
        later.send(b"later")
    assert later.stage is not None
    connection.stage_commit("app", 2, [later.stage])
    with pytest.raises(Refused, match="rolled-back"):
        connection.stage_commit("app", 1, [])
    assert [application.version for application in connection.stages("app").applications] == [2]
    connection.stage_forget("app")
    assert connection.stages("app").applications == []


def test_an_abandoned_stage_is_discarded(connection: Connection) -> None:
    writer = connection.writer("orders", stage=StageSpec(application="app", version=0))
    writer.send(b"x")
    writer.flush()
    assert [stage.stage for stage in connection.stages("app").stages] == [writer.stage]
    writer.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert connection.stages("app").stages == []
    with pytest.raises(Refused, match="unknown-stage"):
        connection.stage_commit("app", 0, [writer.stage or ""])


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_a_stage_continues_after_a_kill_of_the_broker(
    mtl_broker: RunningBroker, connection: Connection, packed: bool
) -> None:
    writer = connection.writer("orders", packed=packed, stage=StageSpec(application="app", version=0))
    for body in numbered(3_000):
        writer.send(body)
        if body in {b"1000", b"2000"}:
            mtl_broker.kill()
            mtl_broker.restart()
    writer.flush()
    mtl_broker.kill()
    mtl_broker.restart()
    sealed = writer.seal()
    assert sealed.contents == {"orders": 3_000}
    mtl_broker.restart()
    connection.stage_commit("app", 0, [sealed.stage])
    assert bodies(connection.reader("orders", until=3_001)) == numbered(3_000)
