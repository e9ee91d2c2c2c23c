"""Clients whose flow the broker ended while the connection was open: a suspended process, a half-open network."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

import mtl
from mtl.client.connection import Connection
from mtl.testing import RunningBroker, broker
from mtl.wire import control
from tests.support.contents import numbered, visible
from tests.support.cutting_proxy import BEHIND, HERE, CuttingProxy
from tests.support.processes import killed_after

HEARTBEAT_S = 0.1
GIVEN_UP_S = 10 * HEARTBEAT_S
"""More than the broker's patience, three heartbeats. Nothing tells when it gives a flow up."""


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[RunningBroker]:
    config = tmp_path / "broker.toml"
    config.write_text(f"heartbeat = {HEARTBEAT_S}\n")
    with broker(tmp_path / "data", config=config) as running:
        yield running


@contextmanager
def half_open(running: RunningBroker, port: int) -> Iterator[tuple[CuttingProxy, Connection]]:
    """A connection through a proxy, with the default heartbeat, so that it does not detect the loss early by itself."""
    with (
        CuttingProxy(int(running.endpoint.rpartition(":")[2]), port) as proxy,
        mtl.connect(
            running.endpoint.replace(BEHIND, HERE), request_timeout=2.0, retry_deadline=10.0, heartbeat=5.0
        ) as through,
    ):
        yield proxy, through


@pytest.mark.parametrize("how", ["plain", "packed", "aio"])
def test_a_writer_of_a_suspended_process_resends_dropped_contents(impatient: RunningBroker, how: str) -> None:
    with mtl.connect(impatient.endpoint) as connection:
        connection.create_resource("orders")
        command = [sys.executable, "-m", "tests.support.stopped_writer", impatient.endpoint, how]
        with killed_after(
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(GIVEN_UP_S)
            os.kill(process.pid, signal.SIGCONT)
            output, errors = process.communicate("go on\n", timeout=60)
        assert (output, process.returncode) == ("flushed\n", 0), errors
        assert [content.sequence for content in visible(connection, "orders")] == [1, 2, 3, 4]


@pytest.mark.parametrize("packed", [False, True])
def test_contents_sent_over_a_half_open_network_are_resent(impatient: RunningBroker, packed: bool) -> None:
    with mtl.connect(impatient.endpoint) as connection:
        connection.create_resource("orders")
        lease = connection.request(control.ConnectionWriter(resources=["orders"], packed=packed))
        assert isinstance(lease, control.DataLease)
        with (
            half_open(impatient, lease.port) as (proxy, through),
            through.writer("orders", packed=packed) as writer,
        ):
            writer.send(b"0")
            writer.flush()
            with proxy.held():
                for body in numbered(3, 1):
                    writer.send(body)
                time.sleep(GIVEN_UP_S)
            writer.flush()
            assert proxy.cuts == 0
        assert [content.body for content in visible(connection, "orders")] == numbered(4)


def test_a_holder_moves_the_cursor_after_a_half_open_network(impatient: RunningBroker) -> None:
    with mtl.connect(impatient.endpoint) as connection:
        connection.create_resource("orders")
        with connection.writer("orders") as writer:
            for body in numbered(5):
                writer.send(body)
        lease = connection.request(control.ConnectionReader(resources=["orders"], packed=True))
        assert isinstance(lease, control.DataLease)
        with (
            half_open(impatient, lease.port) as (proxy, through),
            through.reader("orders", start="group", group="spark", holder="driver") as reader,
        ):
            assert reader.ping_holder() == 1
            with proxy.held():
                reader.confirm(3)
                time.sleep(GIVEN_UP_S)
            assert reader.ping_holder() == 4
            assert [content.sequence for content in islice(reader, 5)] == [1, 2, 3, 4, 5]
