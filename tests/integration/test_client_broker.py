"""The client with a real broker: contents are read once and in order, despite failures."""

from __future__ import annotations

import os
import re
import resource
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import mtl
from mtl.client.connection import Connection
from mtl.errors import (
    Closed,
    ContentTooLarge,
    DataLoss,
    Fenced,
    FieldError,
    OptionError,
    Refused,
    Unreachable,
)
from mtl.testing import RunningBroker, broker
from mtl.wire.control import Retention
from tests.support.contents import batch, bodies, numbered, send, write

BOTH = pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])


# --- reading and writing ------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("reading", [False, True], ids=["read-plain", "read-packed"])
def test_written_contents_are_read_with_their_properties(
    connection: Connection, packed: bool, reading: bool
) -> None:
    before = time.time()
    with connection.writer("orders", packed=packed) as writer:
        numbers = [writer.send(b"%d" % i, {"i": i, "kind": "new"} if i % 2 else None) for i in range(500)]
    assert numbers == list(range(1, 501))
    with connection.reader("orders", until=501, packed=reading) as reader:
        contents = list(reader)
    assert [content.sequence for content in contents] == numbers
    assert [content.body for content in contents] == numbered(500)
    assert contents[0].properties == {}
    assert contents[7].properties == {"i": 7, "kind": "new"}
    assert {content.resource for content in contents} == {"orders"}
    stamps = [content.timestamp or 0 for content in contents]
    assert stamps == sorted(stamps)
    assert before - 5 < stamps[0] / 1e6 < time.time() + 5


def test_a_batch_is_sent_and_read_as_one_pack_cut_to_the_range(connection: Connection) -> None:
    with connection.writer("orders", packed=True) as writer:
        assert writer.send_pack(batch(numbered(10))) == 10
        assert writer.send(b"10") == 11
        assert writer.send_pack(batch(numbered(10, 11))) == 21
    with connection.reader("orders", start=4, until=15) as reader:
        packs = list(reader.batches())
        assert reader.position == 15
    assert [(pack.first, pack.count) for pack in packs] == [(4, 7), (11, 1), (12, 3)]
    assert b"".join(value for pack in packs for value in pack.batch.column(1).to_pylist()) == b"".join(
        numbered(11, 3)
    )


@BOTH
def test_a_reader_waits_for_new_contents(connection: Connection, packed: bool) -> None:
    with connection.reader("orders", start="latest", packed=packed) as reader:
        assert reader.next(timeout=0.05) is None
        write(connection, 1)
        content = reader.next(timeout=10)
        assert content is not None
        assert content.body == b"0"
        assert reader.next(timeout=0.05) is None


def test_an_empty_range_ends_at_once(connection: Connection) -> None:
    write(connection, 3)
    assert bodies(connection.reader("orders", start=2, until=2)) == []
    assert bodies(connection.reader("orders", start=2, until=3)) == [b"1"]


@BOTH
def test_a_slow_reader_is_sent_at_most_one_window(connection: Connection, packed: bool) -> None:
    with connection.writer("orders") as writer:
        for body in numbered(5_000):
            writer.send(body)
            if int(body) % 100 == 99:
                writer.flush()  # a chunk for every hundred
    with connection.reader(
        "orders", until=5_001, packed=packed, window_contents=300, window_bytes=1 << 20
    ) as reader:
        received = 0
        for content in reader:
            assert content.body == b"%d" % received
            received += 1
            queued = sum(delivery.end - delivery.first for delivery in reader._part.queue.copy())
            assert queued <= 300
            if received % 1_000 == 0:
                time.sleep(0.05)  # the broker could send, were it allowed to
        assert received == 5_000


def test_a_writer_of_several_resources_names_the_resource(connection: Connection) -> None:
    connection.create_resource("returns")
    with connection.writer(["orders", "returns"]) as writer:
        for i in range(100):
            writer.send(b"%d" % i, resource="orders" if i % 3 else "returns")
        with pytest.raises(OptionError, match="several"):
            writer.send(b"where?")
    assert bodies(connection.reader("returns", until=35)) == [b"%d" % i for i in range(0, 100, 3)]
    assert bodies(connection.reader("orders", until=67)) == [b"%d" % i for i in range(100) if i % 3]


def test_many_threads_share_a_writer(connection: Connection) -> None:
    with connection.writer("orders", packed=True) as writer:
        numbers: list[int] = []

        def work() -> None:
            numbers.extend([writer.send(b"x" * 50) for _ in range(2_000)])

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(numbers) == list(range(1, 8_001))
    assert connection.describe(["orders"])["orders"].next == 8_001


def test_a_named_writer_continues_its_numbers(connection: Connection) -> None:
    with connection.writer("orders", name="import") as writer:
        assert [writer.send(body) for body in numbered(5)] == [1, 2, 3, 4, 5]
    with connection.writer("orders", name="import") as writer:
        assert writer.last == {"orders": 5}
        assert writer.send(b"5") == 6
    assert bodies(connection.reader("orders", until=7)) == numbered(6)


def test_too_large_or_reserved_contents_are_refused_before_sending(connection: Connection) -> None:
    with connection.writer("orders") as writer:
        with pytest.raises(ContentTooLarge):
            writer.send(b"x" * (writer.max_content + 1))
        with pytest.raises(FieldError, match="mtl-"):
            writer.send(b"x", {"mtl-count": 1})
        writer.send(b"x" * writer.max_content)
    with connection.writer("orders", packed=True) as writer, pytest.raises(ContentTooLarge):
        writer.send(b"x" * writer.max_content)
    assert [len(body) for body in bodies(connection.reader("orders", until=2))] == [writer.max_content]


# --- faults -------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("reading", [False, True], ids=["read-plain", "read-packed"])
def test_contents_are_exactly_once_with_a_killed_broker(
    mtl_broker: RunningBroker, connection: Connection, packed: bool, reading: bool
) -> None:
    count, kills = 30_000, [3_000, 12_000, 21_000]
    failures: list[BaseException] = []

    def publish() -> None:
        try:
            with mtl.connect(mtl_broker.endpoint) as other, other.writer("orders", packed=packed) as writer:
                for body in numbered(count):
                    writer.send(body)
                    if int(body) in kills:
                        mtl_broker.kill()
                        mtl_broker.restart()
        except BaseException as error:  # noqa: BLE001 handed to the test's own thread
            failures.append(error)

    publisher = threading.Thread(target=publish)
    publisher.start()
    received = 0
    with connection.reader("orders", until=count + 1, packed=reading) as reader:
        for content in reader:
            assert (content.sequence, content.body) == (received + 1, b"%d" % received)
            received += 1
    publisher.join()
    assert not failures
    assert received == count
    assert connection.describe(["orders"])["orders"].next == count + 1


def test_a_reader_resumes_at_its_position_after_a_restart(
    mtl_broker: RunningBroker, connection: Connection
) -> None:
    write(connection, 1_000)
    with connection.reader("orders", until=1_001, window_contents=100, packed=False) as reader:
        first = [reader.next(timeout=5) for _ in range(250)]
        mtl_broker.restart()
        rest = list(reader)
    assert [c.body for c in first if c is not None] + [c.body for c in rest] == numbered(1_000)


def test_an_absent_broker_is_unreachable_after_the_deadline() -> None:
    began = time.monotonic()
    with pytest.raises(Unreachable, match=re.escape("tcp://127.0.0.1:1 ")):
        mtl.connect("tcp://127.0.0.1:1", request_timeout=0.2, retry_deadline=0.6)
    assert 0.5 < time.monotonic() - began < 5


def test_a_lost_broker_ends_writers_readers_and_requests(mtl_broker: RunningBroker) -> None:
    connection = mtl.connect(mtl_broker.endpoint, request_timeout=0.3, retry_deadline=1.0)
    connection.create_resource("orders")
    writer = connection.writer("orders", window_contents=10)
    reader = connection.reader("orders")
    mtl_broker.kill()
    with pytest.raises(Unreachable, match=mtl_broker.endpoint):
        connection.describe()
    with pytest.raises(Unreachable, match=mtl_broker.endpoint):
        send(writer, 100)
    with pytest.raises(Unreachable, match=mtl_broker.endpoint):
        next(iter(reader))
    with pytest.raises(Unreachable):
        writer.flush()
    with pytest.raises(Unreachable):
        writer.close()
    connection.close()
    connection.close()
    with pytest.raises(Closed):
        connection.describe()


@contextmanager
def files_up_to(octets: int) -> Iterator[None]:
    """Processes started meanwhile cannot grow a file above this size, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (octets, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_is_reported_and_no_contents_are_lost(
    mtl_broker: RunningBroker, connection: Connection
) -> None:
    limit = 1 << 20
    with files_up_to(limit):
        mtl_broker.restart()
    writer = connection.writer("orders", packed=False)
    for _ in range(4):
        writer.send(
            bytes(limit + limit // 4)
        )  # a segment ends at the limit, and none can have such a content
    with pytest.raises(Unreachable, match=rf"no content was stored by the broker at {mtl_broker.endpoint} "):
        writer.flush(timeout=2.0)
    assert "File too large" in (connection.describe(["orders"])["orders"].trouble or "")
    mtl_broker.kill()
    mtl_broker.restart()
    writer.close()
    there = connection.describe(["orders"])["orders"]
    assert (there.contents, there.trouble) == (4, None)


def test_an_invalid_endpoint_is_an_option_error() -> None:
    with pytest.raises(OptionError):
        mtl.connect("localhost:5975")
    with pytest.raises(OptionError):
        mtl.connect("tcp://no port")


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_process_gets_its_own_session(connection: Connection) -> None:
    writer = connection.writer("orders")
    reader = connection.reader("orders")
    writer.send(b"0")
    writer.flush()
    report, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        outcome = b"failed"
        try:
            with mtl.connect(connection.endpoint) as own, own.writer("orders") as child_writer:
                child_writer.send(b"1")
            ended = connection.describe(["orders"])["orders"].next
            closed = 0
            for use in (lambda: writer.send(b"?"), reader.next, writer.flush):
                try:
                    use()
                except Closed:
                    closed += 1
            writer.close()
            reader.close()
            outcome = b"%d %d" % (ended, closed)
        finally:
            os.write(write_end, outcome)
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(report, 100) == b"3 3"
    os.close(report)
    os.close(write_end)
    writer.send(b"2")
    writer.close()
    assert [reader.next(timeout=5) is not None for _ in range(3)] == [True] * 3
    reader.close()


def test_a_newer_writer_of_the_name_fences_the_older(connection: Connection) -> None:
    older = connection.writer("orders", name="import")
    send(older, 10)
    older.flush()
    newer = connection.writer("orders", name="import")
    older.send(b"too late")
    with pytest.raises(Fenced):
        older.flush(timeout=20)
    with pytest.raises(Fenced):
        older.close()
    assert newer.send(b"10") == 11
    newer.close()
    assert bodies(connection.reader("orders", until=12)) == numbered(11)


# --- losses -------------------------------------------------------------------------------------------------


def test_contents_removed_by_retention_are_data_loss_or_skipped(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("segment-bytes = 8192\n")
    with (
        broker(data=tmp_path / "data", config=config) as running,
        mtl.connect(running.endpoint) as connection,
    ):
        connection.create_resource("short", retention=Retention(contents=100))
        slow = connection.reader("short", start=1, window_contents=10, window_bytes=1_000, packed=False)
        assert slow.next(timeout=0.0) is None
        for first in range(0, 2_000, 100):
            write(connection, 100, name="short", first=first)
        earliest = 1
        while earliest == 1:
            earliest = connection.describe(["short"])["short"].earliest
        with pytest.raises(DataLoss) as lost:
            connection.reader("short", start=1)
        assert (lost.value.resource, lost.value.first, lost.value.end) == ("short", 1, earliest)
        with connection.reader("short", start=1, until=2_001, skip_lost=True) as reader:
            contents = list(reader)
            assert reader.lost == [(1, earliest)]
        assert [content.sequence for content in contents] == list(range(earliest, 2_001))
        with pytest.raises(DataLoss) as later:
            list(slow)
        assert later.value.end == earliest
    with pytest.raises(DataLoss) as beyond:
        raise_beyond(tmp_path)
    assert (beyond.value.first, beyond.value.end) == (2_001, 3_000)


def raise_beyond(place: Path) -> None:
    """Read from a position that was never reached: a wait would never end (PROTOCOL.md 5)."""
    with broker(data=place / "data") as running, mtl.connect(running.endpoint) as connection:
        connection.reader("short", start=3_000)


def test_a_recreated_resource_is_data_loss(mtl_broker: RunningBroker, connection: Connection) -> None:
    write(connection, 10)
    incarnation = connection.describe(["orders"])["orders"].incarnation
    reader = connection.reader("orders", incarnation=incarnation)
    assert reader.next(timeout=5) is not None
    connection.delete_resource("orders", incarnation=incarnation)
    connection.create_resource("orders")
    mtl_broker.restart()
    with pytest.raises(DataLoss, match="created again"):
        list(reader)
    with pytest.raises(Refused, match="incarnation"):
        connection.reader("orders", incarnation=incarnation)
    with pytest.raises(Refused, match="unknown-resource"):
        connection.reader("nowhere")


@pytest.mark.parametrize("how", ["created again", "wiped"])
def test_a_loss_of_confirmed_contents_fails_the_writer(
    mtl_broker: RunningBroker, connection: Connection, how: str
) -> None:
    writer = connection.writer("orders")
    send(writer, 10)
    writer.flush()
    if how == "wiped":
        mtl_broker.kill()
        shutil.rmtree(mtl_broker.data)
        # On another endpoint, so that the writer does not come back before the resource is there.
        with broker(mtl_broker.data) as elsewhere, mtl.connect(elsewhere.endpoint) as other:
            other.create_resource("orders")
    else:
        connection.delete_resource("orders")
        connection.create_resource("orders")
    mtl_broker.restart()  # the writer's flow breaks, and it comes back

    def go_on() -> None:
        send(writer, 1, 10)
        writer.flush()

    with pytest.raises(DataLoss, match="numbers 1 to 10,"):
        go_on()
    writer.abandon()


# --- requests -----------------------------------------------------------------------------------------------


def test_resources_are_created_described_and_deleted(connection: Connection) -> None:
    made = connection.create_resource("logs", durability="os", retention=Retention(bytes=1 << 20))
    assert (made.earliest, made.next, made.durability) == (1, 1, "os")
    with pytest.raises(Refused, match="exists"):
        connection.create_resource("logs")
    assert connection.create_resource("logs", durability="os", exist_ok=True).incarnation == made.incarnation
    assert sorted(connection.describe()) == ["logs", "orders"]
    assert list(connection.describe(pattern="l.*")) == ["logs"]
    assert [resource.resource for resource in connection.list_resources()] == ["logs", "orders"]
    with pytest.raises(Refused) as missing:
        connection.describe(["logs", "nothing"])
    assert missing.value.members["missing"] == ["nothing"]
    connection.delete_resource("logs")
    assert list(connection.describe()) == ["orders"]


def test_describe_waits_for_news(connection: Connection) -> None:
    state = connection.describe(["orders"]).state
    began = time.monotonic()
    assert connection.describe(["orders"], since=state, wait=0.2) == {}
    assert time.monotonic() - began >= 0.2
    writer = threading.Timer(0.1, write, (connection, 5))
    writer.start()
    found = connection.describe(["orders"], since=state, wait=20.0)
    assert found["orders"].next > 1
    assert time.monotonic() - began < 15
    writer.join()


def test_positions_are_located_by_time_and_size(connection: Connection) -> None:
    write(connection, 100)
    middle = time.time_ns() // 1000
    write(connection, 100, first=100)
    assert connection.locate_time("orders", 0) == (1, True)
    assert connection.locate_time("orders", middle) == (101, True)
    assert connection.locate_time("orders", middle + 10**9) == (201, False)
    assert connection.locate_end("orders", 1, contents=10**6) == 201
    assert connection.locate_end("orders", 1, bytes=1) > 1


# --- the test profile ---------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-114", "MTL-115", "MTL-116")
def test_the_test_profile_fans_out_without_confirmation(mtl_broker: RunningBroker) -> None:
    with mtl.connect(mtl_broker.endpoint, profile="test") as connection:
        readers = [connection.reader("resource") for _ in range(2)]
        assert [reader.next(timeout=0.2) for reader in readers] == [None, None]  # both are summoned now
        with connection.writer("resource") as writer:
            for body in numbered(50):
                writer.send(body)
        for reader in readers:
            assert [
                content.body for content in (reader.next(timeout=5) for _ in range(50)) if content
            ] == numbered(50)
            reader.close()
        with pytest.raises(OptionError):
            connection.reader("resource", start=1)


@pytest.mark.requirement("MTL-116")
def test_a_burst_under_the_test_profile_reaches_a_reader_completely(mtl_broker: RunningBroker) -> None:
    with mtl.connect(mtl_broker.endpoint, profile="test") as connection:
        reader = connection.reader("resource")
        assert reader.next(timeout=0.2) is None  # it is summoned now
        with connection.writer("resource") as writer:
            for body in numbered(20_000):
                writer.send(body)
        received = [reader.next(timeout=10) for _ in range(20_000)]
        assert [content.body for content in received if content is not None] == numbered(20_000)
