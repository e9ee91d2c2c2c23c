"""Queues with a real broker: consumers share contents, brokers and consumers are killed, no content is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

import mtl
from mtl.client.connection import Connection
from mtl.client.consumer import Consumer
from mtl.client.consuming import QueuedContent
from mtl.errors import Closed, OptionError, Refused
from mtl.testing import RunningBroker
from tests.support.processes import killed_after

PATIENCE_S = 20.0

DYING_CONSUMER = """
import sys, time
import mtl
connection = mtl.connect(sys.argv[1])
consumer = connection.consumer("orders", window_contents=10)
for content in consumer:
    print(int(content.body), flush=True)  # in hand, and never answered
"""


@pytest.fixture
def connection(mtl_broker: RunningBroker) -> Iterator[Connection]:
    with mtl.connect(mtl_broker.endpoint) as connection:
        connection.create_resource("orders")
        yield connection


def fill(connection: Connection, count: int, resource: str = "orders") -> None:
    with connection.writer(resource) as writer:
        for n in range(count):
            writer.send(b"%d" % n)


def take(consumer: Consumer, count: int) -> list[QueuedContent]:
    found = []
    for _ in range(count):
        content = consumer.next(PATIENCE_S)
        assert content is not None
        found.append(content)
    return found


def drained(connection: Connection, resource: str = "orders") -> bool:
    """Whether all contents are settled, with a wait for answers in flight."""
    waiting = threading.Event()
    for _ in range(int(PATIENCE_S * 20)):
        if connection.queues(resource=resource)[0].unsettled == 0:
            return True
        waiting.wait(0.05)
    return False


class Worker(threading.Thread):
    """Confirms every content that it gets, until none has arrived for a while."""

    def __init__(self, connection: Connection, patience: float = 2.0) -> None:
        super().__init__()
        self.consumer = connection.consumer("orders", window_contents=20)
        self.patience = patience
        self.deliveries: list[tuple[int, bool]] = []
        self.start()

    def run(self) -> None:
        while (content := self.consumer.next(self.patience)) is not None:
            self.deliveries.append((int(content.body), content.redelivered))
            content.confirm()


@pytest.mark.requirement("MTL-46", "MTL-87")
def test_consumers_share_and_a_log_reader_sees_everything(connection: Connection) -> None:
    workers = [Worker(connection) for _ in range(2)]
    fill(connection, 1_000)
    for worker in workers:
        worker.join(PATIENCE_S)
    assert sorted(n for w in workers for n, _ in w.deliveries) == list(range(1_000))
    assert all([n for n, _ in w.deliveries] == sorted(n for n, _ in w.deliveries) for w in workers), (
        "in order for each"
    )
    assert all(len(w.deliveries) > 100 for w in workers)
    with connection.reader("orders", until=1_001) as reader:
        assert [int(x.body) for x in reader] == list(range(1_000))
    assert drained(connection)


@pytest.mark.requirement("MTL-94", "MTL-96")
def test_contents_are_recycled_rejected_and_exhausted(connection: Connection) -> None:
    connection.create_resource("jobs", max_deliveries=2, dead_letter="failed")
    fill(connection, 3, "jobs")
    with connection.consumer("jobs") as consumer:
        good, bad, hopeless = take(consumer, 3)
        assert not good.redelivered
        good.confirm()
        bad.reject()
        hopeless.reject(recycle=True)
        (again,) = take(consumer, 1)
        assert (again.body, again.sequence, again.redelivered) == (b"2", 3, True)
        again.reject(recycle=True)
        assert drained(connection, "jobs")
    with connection.reader("failed", until=3) as reader:
        letters = {x.body: x.properties for x in reader}
    assert {b: (p["dead-letter-sequence"], p["dead-letter-reason"]) for b, p in letters.items()} == {
        b"1": (2, "rejected"),
        b"2": (3, "deliveries"),
    }
    assert connection.queues(resource="jobs")[0].dead == 2


def test_contents_of_a_killed_consumer_go_to_another(
    connection: Connection, mtl_broker: RunningBroker
) -> None:
    fill(connection, 30)
    command = [sys.executable, "-c", DYING_CONSUMER, mtl_broker.endpoint]
    with killed_after(subprocess.Popen(command, stdout=subprocess.PIPE)) as dying:
        assert dying.stdout is not None
        had = [int(dying.stdout.readline()) for _ in range(10)]
        dying.kill()
    with connection.consumer("orders") as consumer:
        found = take(consumer, 30)
        for content in found:
            content.confirm()
        assert {int(x.body) for x in found} == set(range(30))
        assert {int(x.body) for x in found if x.redelivered} == set(had)
        assert drained(connection)


def test_a_killed_broker_redelivers_unsettled_contents_marked(
    connection: Connection, mtl_broker: RunningBroker
) -> None:
    fill(connection, 200)
    with connection.consumer("orders", window_contents=50) as consumer:
        for _ in range(100):
            take(consumer, 1)[0].confirm()
        before = take(consumer, 20)
        mtl_broker.kill()
        mtl_broker.restart()
        before[0].confirm()  # ignored: it went back to the queue
        rest: Counter[int] = Counter()
        while (content_or_none := consumer.next(2.0)) is not None:
            rest[int(content_or_none.body)] += 1
            if int(content_or_none.body) in {int(x.body) for x in before}:
                assert content_or_none.redelivered
            content_or_none.confirm()
        assert set(range(100, 200)) <= set(rest)
        assert set(rest.values()) == {1}
        assert drained(connection)
    with connection.reader("orders", until=201) as reader:
        assert len(list(reader)) == 200


def test_without_confirmation_contents_are_settled_when_sent(
    connection: Connection, mtl_broker: RunningBroker
) -> None:
    fill(connection, 50)
    with connection.consumer("orders", confirm="none") as consumer:
        found = take(consumer, 50)
        found[0].confirm()
        found[1].reject(recycle=True)
        mtl_broker.kill()
        mtl_broker.restart()
        assert consumer.next(1.0) is None
    assert drained(connection)


def test_a_consumer_of_all_resources_gets_later_ones(connection: Connection) -> None:
    with connection.consumer(queue="audit") as consumer:
        assert consumer.queue == "audit"
        connection.create_resource("later")
        fill(connection, 3, "later")
        consumer.summon("later")
        for content in take(consumer, 3):
            assert content.resource == "later"
            content.confirm()
        consumer.dismiss("later")
        fill(connection, 3, "later")
        assert consumer.next(0.3) is None
        consumer.summon("never")
        with pytest.raises(Refused, match="never"):
            consumer.next(PATIENCE_S)
    with pytest.raises(Closed):
        consumer.next()


def test_a_connection_of_the_queue_profile_has_consumers(mtl_broker: RunningBroker) -> None:
    with mtl.connect(mtl_broker.endpoint, profile="queue") as connection:
        connection.create_resource("orders")
        fill(connection, 2)
        with connection.consumer("orders", start="latest") as consumer:
            assert consumer.next(0.2) is None
        with pytest.raises(OptionError, match="consumer"):
            connection.reader("orders")
        connection.queue_delete("default", "orders")
        assert connection.queues() == []


def test_the_command_line_consumes_and_shows_queues(
    connection: Connection, mtl_broker: RunningBroker
) -> None:
    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "mtl.cli.main", *arguments, "--endpoint", mtl_broker.endpoint]
        return subprocess.run(command, capture_output=True, timeout=60, check=True).stdout.decode()

    run("resource", "create", "jobs", "--dead-letter", "failed", "--max-deliveries", "3")
    fill(connection, 5, "jobs")
    assert run("consume", "jobs", "--count", "3") == "0\n1\n2\n"
    assert run("consume", "jobs", "--count", "1", "--reject") == "3\n"
    assert json.loads(run("consume", "jobs", "--count", "1", "--json"))["sequence"] == 5
    assert drained(connection, "jobs")
    assert run("queues").splitlines()[1].split() == [
        "jobs",
        "default",
        "0",
        "0",
        "0",
        "1",
        "0",
        "failed",
        "3",
    ]
    described = run("resource", "describe", "jobs")
    assert "0 ready, 0 delivered, 0 delayed, 1 dead" in described
    assert "3 times" in described
    run("queues", "delete", "default", "jobs")
    assert run("queues", "--json") == ""
