"""The connections that tasks of the connector open at a broker, run one after the other as by a Spark worker."""

from __future__ import annotations

import pyarrow as pa
import pytest

import mtl
from mtl.testing import RunningBroker
from mtl.wire import control
from pyspark_mtl import connections
from pyspark_mtl.options.settings import parse, read_settings, write_settings
from pyspark_mtl.sink.writing import write
from pyspark_mtl.source.offsets import OffsetRange
from pyspark_mtl.source.reading import Task, packs
from tests.support.cutting_proxy import HERE, CuttingProxy

TASKS = 8
SESSIONS = 2
"""One for requests, one for leases; the next lease takes the one that the last has given back."""


def test_the_tasks_of_a_worker_share_its_sessions(
    mtl_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_connections", {})
    with mtl.connect(mtl_broker.endpoint) as connection:
        incarnation = connection.create_resource("orders").incarnation
        with connection.writer("orders") as writer:
            for number in range(TASKS):
                writer.send(b"%d" % number)
        lease = connection.request(control.ConnectionReader(resources=["orders"], packed=True))
        assert isinstance(lease, control.DataLease)
        control_port, data_port = int(mtl_broker.endpoint.rpartition(":")[2]), lease.port
    with CuttingProxy(control_port, data_port) as proxy:
        options = {"endpoint": f"tcp://{HERE}:{control_port}"}
        reading = read_settings(parse({**options, "resources": "orders"}), streaming=False)
        writing = write_settings(parse({**options, "resource": "orders"}), streaming=True)
        assert reading.connect == writing.connect
        frame = pa.RecordBatch.from_arrays([pa.array([b"x"], pa.binary())], names=["body"])
        for first in range(1, TASKS + 1):
            task = Task(OffsetRange("orders", incarnation, first, first + 1))
            assert [pack.count for pack in packs(reading.connect, task, fail_on_data_loss=True)] == [1]
            assert len(write(writing, [frame], "app", 1).stages) == 1
        assert proxy.accepted == {control_port: SESSIONS, data_port: 2 * TASKS}, (
            "and one data flow for each lease"
        )
        connections.connection(reading.connect).close()
