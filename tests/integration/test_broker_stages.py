"""Stages with a killed broker: commits after crashes and with damaged files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import mtl
from mtl.client.connection import Connection
from mtl.errors import Refused
from mtl.log.log import MAKING
from mtl.testing import RunningBroker
from mtl.wire.control import STORAGE, StageSpec


@pytest.fixture
def connection(mtl_broker: RunningBroker) -> Iterator[Connection]:
    with mtl.connect(mtl_broker.endpoint, request_timeout=2.0, retry_deadline=20.0) as connected:
        connected.create_resource("orders")
        yield connected


def stage(connection: Connection, version: int, *bodies: bytes) -> str:
    """A sealed stage with one chunk per body."""
    writer = connection.writer("orders", stage=StageSpec(application="app", version=version))
    for body in bodies:
        writer.send(body)
        writer.flush()
    return writer.seal().stage


def replays(connection: Connection) -> int:
    return connection.stages(application="app").applications[0].replays


def test_replays_are_counted_across_versions(mtl_broker: RunningBroker, connection: Connection) -> None:
    first, second = stage(connection, 1, b"a"), stage(connection, 2, b"b")
    connection.stage_commit("app", 1, [first])
    assert replays(connection) == 0
    assert connection.stage_commit("app", 1, [first]).already
    mtl_broker.kill()
    mtl_broker.start()
    assert not connection.stage_commit("app", 2, [second]).already
    assert replays(connection) == 1
    assert connection.stage_commit("app", 2, [second]).already
    assert replays(connection) == 2


def test_a_damaged_stage_is_not_committed_without_its_contents(
    mtl_broker: RunningBroker, connection: Connection
) -> None:
    staged = stage(connection, 1, *(b"%d" % number for number in range(10)))
    mtl_broker.kill()
    (segment,) = Path(mtl_broker.data, "stages", staged).rglob("*.segment")
    content = bytearray(segment.read_bytes())
    content[len(content.rstrip(b"\0")) // 2] ^= (
        1  # not the torn end of a crash: there are good chunks after it
    )
    segment.write_bytes(content)
    mtl_broker.start()
    with pytest.raises(Refused) as refused:
        connection.stage_commit("app", 1, [staged])
    assert (refused.value.status, refused.value.reason) == (503, STORAGE)
    assert staged in refused.value.message
    assert connection.describe(["orders"])["orders"].contents == 0


def test_a_crash_during_the_creation_of_a_staged_log_is_not_damage(
    mtl_broker: RunningBroker, connection: Connection
) -> None:
    writer = connection.writer("orders", stage=StageSpec(application="app", version=1))
    mtl_broker.kill()
    assert writer.stage is not None
    Path(mtl_broker.data, "stages", writer.stage, f"0{MAKING}").mkdir(
        parents=True
    )  # and not its segment any more
    mtl_broker.start()
    assert "is stopped" not in mtl_broker.log.read_text(encoding="utf-8")
    writer.send(b"a")
    connection.stage_commit("app", 1, [writer.seal().stage])
    assert connection.describe(["orders"])["orders"].contents == 1
