"""Packs in shared memory of a writer on the broker's machine: the same contents, also after failures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import mtl
from mtl.client import flow
from mtl.client.connection import Connection
from mtl.net.limits import SHARED_MEMORY
from mtl.testing import RunningBroker, broker
from mtl.wire.commands import Content
from mtl.wire.ranges import OFFSET
from tests.support.contents import LARGE_PACK, batch, bodies, large_packs, write_packs


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For every sent Content, whether its body is in shared memory."""
    seen: list[bool] = []
    whole = flow.ClientFlow.send_contents

    def watched(self: flow.ClientFlow, contents: Sequence[Content]) -> int:
        seen.extend(OFFSET.encode() in content.properties for content in contents)
        return whole(self, contents)

    monkeypatch.setattr(flow.ClientFlow, "send_contents", watched)
    return seen


def test_large_packs_use_shared_memory_and_small_ones_are_sent(
    connection: Connection, handed: list[bool]
) -> None:
    written = write_packs(connection, [*large_packs(3), [b"small"], *large_packs(2)])

    assert bodies(connection.reader("orders", until=len(written) + 1)) == written
    assert handed == [True, True, True, False, True, True]


def test_shared_memory_is_reused_for_later_packs(connection: Connection, handed: list[bool]) -> None:
    """Three times the size of the memory, and a concurrent reader, which never gets octets of later packs."""
    large = large_packs(3 * SHARED_MEMORY // (LARGE_PACK * 10_000), octets=10_000)
    with connection.reader("orders", until=len(large) * LARGE_PACK + 1) as reader:
        written = write_packs(connection, large)
        assert bodies(reader) == written
    assert any(handed)


def test_a_writer_without_local_writes_sends_octets(
    connection: Connection, mtl_broker: RunningBroker, handed: list[bool]
) -> None:
    with mtl.connect(mtl_broker.endpoint, local_writes=False) as through_the_socket:
        written = write_packs(through_the_socket, large_packs(2))
    assert bodies(connection.reader("orders", until=len(written) + 1)) == written
    assert handed == [False, False]


def test_without_local_writes_in_the_broker_octets_are_sent(tmp_path: Path, handed: list[bool]) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("local-writes = false\n")
    with broker(config=config) as running, mtl.connect(running.endpoint) as connection:
        connection.create_resource("orders")
        written = write_packs(connection, large_packs(2))
        assert bodies(connection.reader("orders", until=len(written) + 1)) == written
    assert handed == [False, False]


def test_a_window_may_exceed_the_shared_memory(connection: Connection) -> None:
    large = large_packs(100, octets=10_000)
    written = write_packs(connection, large, window_bytes=4 * SHARED_MEMORY, window_contents=1_000_000)
    assert bodies(connection.reader("orders", until=len(written) + 1)) == written


def test_contents_in_shared_memory_are_exactly_once_with_a_killed_broker(
    tmp_path: Path, handed: list[bool]
) -> None:
    """Packs shared with the killed broker are sent to the next one, or shared again."""
    with broker(data=tmp_path / "data") as running, mtl.connect(running.endpoint) as connection:
        connection.create_resource("orders")
        written = large_packs(60, octets=10_000)
        with connection.writer("orders", packed=True) as writer:
            for number, values in enumerate(written):
                writer.send_pack(batch(values))
                if number in {20, 40}:
                    running.kill()
                    running.restart()
        expected = [body for values in written for body in values]
        assert bodies(connection.reader("orders", until=len(expected) + 1)) == expected
    assert {True, False} == set(handed)
