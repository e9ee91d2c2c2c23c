"""Brokers for the minimal client, which uses no code of the project. Every test has its own resources."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mtl.testing import RunningBroker, broker
from tests.support.minimal_client import MinimalClient, minimal_client


@contextmanager
def configured(place: Path, config: str) -> Iterator[RunningBroker]:
    (place / "broker.toml").write_text(config, encoding="utf-8")
    with broker(place / "data", place / "broker.toml") as started:
        yield started


@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """The broker of most tests."""
    with configured(tmp_path_factory.mktemp("minimal"), 'virtual-hosts = ["/", "test-env"]') as started:
        yield started


@pytest.fixture(scope="package")
def pulsing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker with short heartbeats: not for tests in which a busy machine may be silent."""
    with configured(tmp_path_factory.mktemp("pulsing"), "heartbeat = 0.5") as started:
        yield started


@pytest.fixture(scope="package")
def one_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker whose data flows use the control socket."""
    with configured(tmp_path_factory.mktemp("shared"), "shared-socket = true") as started:
        yield started


@pytest.fixture
def client(running: RunningBroker) -> Iterator[MinimalClient]:
    with minimal_client(running.endpoint) as client:
        yield client
