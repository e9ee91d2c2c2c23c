from __future__ import annotations

from collections.abc import Iterator

import pytest

from mtl.client.connection import Connection
from mtl.client.settings import Settings
from tests.support.memory_broker import MemoryBroker


@pytest.fixture
def memory_broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def connection(memory_broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """A connection whose network is the broker in memory."""
    loop = memory_broker.loop()
    monkeypatch.setattr("mtl.client.connection.io_thread", lambda: loop)
    with Connection(Settings("tcp://memory:1", request_timeout=0.5, retry_deadline=1.0)) as connected:
        yield connected
    loop.stop()
