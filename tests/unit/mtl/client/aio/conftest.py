from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from mtl.client.aio import Connection, connect
from mtl.client.aio.loop import EventLoop
from mtl.client.aio.opening import Opening
from tests.support.memory_broker import MemoryBroker


@pytest.fixture
def memory_broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def connected(
    memory_broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Opening[Connection]]:
    """`connect` in a network with the broker in memory."""
    monkeypatch.setattr("mtl.client.aio.connection.EventLoop", partial(EventLoop, memory_broker))
    return partial(connect, "tcp://memory:1", request_timeout=0.5, retry_deadline=5.0)
