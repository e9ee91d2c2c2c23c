"""Fixtures of the client's integration tests: a connection to a separate broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mtl
from mtl.client.connection import Connection
from mtl.testing import RunningBroker, broker


@pytest.fixture
def connection(mtl_broker: RunningBroker) -> Iterator[Connection]:
    with mtl.connect(mtl_broker.endpoint, request_timeout=2.0, retry_deadline=20.0) as connected:
        connected.create_resource("orders")
        yield connected


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker for all tests of a module that leave it intact; each test has its own resource."""
    with broker(tmp_path_factory.mktemp("broker")) as running:
        yield running
