"""Fixtures of the tests with a real Spark: a broker for each module, and a resource for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mtl
import mtl.testing


@pytest.fixture(scope="module")
def broker() -> Iterator[mtl.testing.RunningBroker]:
    with mtl.testing.broker() as running:
        yield running


@pytest.fixture
def connection(broker: mtl.testing.RunningBroker) -> Iterator[mtl.Connection]:
    with mtl.connect(broker.endpoint) as opened:
        yield opened


@pytest.fixture
def resource(connection: mtl.Connection, request: pytest.FixtureRequest) -> str:
    """A resource for this test alone."""
    name = str(request.node.name)
    connection.create_resource(name)
    return name
