from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pyarrow as pa
import pytest

from mtl.client.connection import Connection
from mtl.client.writer import Writer
from mtl.errors import (
    Closed,
    ContentRefused,
    ContentTooLarge,
    Fenced,
    FieldError,
    LocalError,
    OptionError,
    Unreachable,
)
from mtl.wire import commands, control
from mtl.wire.fields import encode_properties, encode_table
from mtl.wire.packs import SCHEMA, encode_pack, pack_size
from tests.support.memory_broker import RESOURCE, MemoryBroker

STAGE = control.StageSpec(application="app", version=0)


def test_all_contents_are_confirmed_at_the_end_of_the_block(
    connection: Connection, memory_broker: MemoryBroker
) -> None:
    with connection.writer(RESOURCE) as writer:
        assert [writer.send(b"%d" % n) for n in range(5)] == [1, 2, 3, 4, 5]
        assert writer.name is not None
    assert memory_broker.stored == [b"0", b"1", b"2", b"3", b"4"]
    assert (writer.confirmed, writer.unconfirmed) == (5, 0)
    with pytest.raises(Closed):
        writer.send(b"late")
    writer.close()


@pytest.mark.parametrize("end", [Writer.close, Writer.abandon])
def test_a_writer_that_has_ended_gives_its_session_back(
    connection: Connection, memory_broker: MemoryBroker, end: Callable[[Writer], None]
) -> None:
    for _ in range(3):
        end(connection.writer(RESOURCE))
    assert sum(isinstance(request, control.ConnectionOpen) for request in memory_broker.asked) == 2
    assert not connection._users


def test_mutable_bodies_are_copied(connection: Connection, memory_broker: MemoryBroker) -> None:
    memory_broker.holding = True
    writer = connection.writer(RESOURCE, packed=True)
    body = bytearray(b"before")
    writer.send(body)
    body[:] = b"after!"
    memory_broker.let_go(connection._loop)
    writer.close()
    assert memory_broker.stored == [b"before"]


def test_send_blocks_while_the_window_is_full(connection: Connection, memory_broker: MemoryBroker) -> None:
    memory_broker.holding = True
    writer = connection.writer(RESOURCE, window_contents=3)
    for body in (b"0", b"1", b"2"):
        writer.send(body)
    sent = threading.Event()

    def send() -> None:
        writer.send(b"3")
        sent.set()

    blocked = threading.Thread(target=send)
    blocked.start()
    assert not sent.wait(0.1)
    memory_broker.let_go(connection._loop)
    assert sent.wait(10)
    blocked.join()
    writer.close()
    assert len(memory_broker.stored) == 4


def test_a_broker_without_progress_is_unreachable(
    connection: Connection, memory_broker: MemoryBroker
) -> None:
    memory_broker.holding = True
    writer = connection.writer(RESOURCE, window_contents=1)
    writer.send(b"0")
    with pytest.raises(Unreachable, match="1 contents unconfirmed"):
        writer.flush(timeout=0.1)
    with pytest.raises(Unreachable, match="room in the window"):
        writer.send(b"1")
    writer.abandon()


def test_a_refused_content_is_raised_once_and_others_continue(
    connection: Connection, memory_broker: MemoryBroker
) -> None:
    memory_broker.refuse = b"bad"
    writer = connection.writer(RESOURCE)
    writer.send(b"good")
    writer.send(b"bad")
    with pytest.raises(ContentRefused) as refused:
        writer.flush()
    assert (refused.value.resource, refused.value.sequence) == (RESOURCE, 2)
    assert writer.send(b"also good") == 3
    writer.close()
    assert memory_broker.stored == [b"good", b"also good"]


def test_contents_collect_into_packs(connection: Connection, memory_broker: MemoryBroker) -> None:
    with connection.writer(RESOURCE, packed=True) as writer:
        assert [writer.send(b"%d" % n) for n in range(5)] == [1, 2, 3, 4, 5]
        assert writer.send_pack(encode_pack([b"5", b"6"]), 2) == 7
        batch = pa.RecordBatch.from_arrays(
            [pa.nulls(2, pa.binary()), pa.array([b"7", b"8"], pa.binary())], schema=SCHEMA
        )
        assert writer.send_pack(batch) == 9
        assert writer.send(b"9") == 10
    assert memory_broker.stored == [b"%d" % n for n in range(10)]


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_an_encoded_pack_may_be_changed_after_the_call(
    connection: Connection, memory_broker: MemoryBroker, kind: type[bytearray | memoryview]
) -> None:
    octets = bytearray(encode_pack([b"0", b"1"]))
    with connection.writer(RESOURCE, packed=True) as writer:
        writer.send_pack(octets if kind is bytearray else memoryview(octets), 2)
        octets[:] = bytes(len(octets))
    assert memory_broker.stored == [b"0", b"1"]


def test_a_send_that_waits_for_room_raises_an_earlier_refusal(
    connection: Connection, memory_broker: MemoryBroker
) -> None:
    memory_broker.holding = True
    writer = connection.writer(RESOURCE, packed=True, window_contents=2)
    writer.send_pack(encode_pack([b"0", b"1"]), 2)
    refusing = threading.Thread(target=refuse_what_is_held, args=(connection, memory_broker, writer))
    refusing.start()
    with pytest.raises(ContentRefused):
        writer.send(b"2")
    refusing.join()
    assert writer.send(b"2") == 3
    writer.close()
    assert memory_broker.stored == [b"0", b"1", b"2"]


def test_the_refusal_of_a_pack_says_what_is_wrong_with_it(
    connection: Connection, memory_broker: MemoryBroker
) -> None:
    memory_broker.holding = True
    writer = connection.writer(RESOURCE, packed=True, window_contents=1)
    properties = pa.array([encode_table({"mtl-mine": 1})], pa.binary())
    writer.send_pack(pa.RecordBatch.from_arrays([properties, pa.array([b"x"], pa.binary())], schema=SCHEMA))
    refusing = threading.Thread(target=refuse_what_is_held, args=(connection, memory_broker, writer))
    refusing.start()
    with pytest.raises(ContentRefused, match="a property of the broker") as refused:
        writer.flush()
    refusing.join()
    assert refused.value.__cause__ is not None
    assert not writer._part.faults
    writer.close()


def refuse_what_is_held(connection: Connection, broker: MemoryBroker, writer: Writer) -> None:
    while not writer._notice.waiters or not broker._held:
        pass
    broker._held = {link: commands.Reject(held.sequence, False, False) for link, held in broker._held.items()}
    broker.let_go(connection._loop)


def test_collected_contents_are_kept_after_a_flush_timeout(
    connection: Connection, memory_broker: MemoryBroker
) -> None:
    memory_broker.holding = True
    writer = connection.writer(RESOURCE, packed=True, window_contents=3)
    writer.send_pack(encode_pack([b"0", b"1"]), 2)
    writer.send(b"2")
    with pytest.raises(Unreachable, match=r"within 0\.0 s"):
        writer.flush(timeout=0.01)
    assert writer.unconfirmed == 3
    memory_broker.let_go(connection._loop)
    writer.close()
    assert memory_broker.stored == [b"0", b"1", b"2"]


def test_a_content_of_the_largest_size_fits_into_a_pack(connection: Connection) -> None:
    with connection.writer(RESOURCE, packed=True) as writer:
        body = b"x" * writer.max_content
        left = writer.max_pack - pack_size(1, len(body)) - len(encode_properties({"a": ""}))
        assert writer.send(body, {"a": "y" * left}) == 1
        with pytest.raises(ContentTooLarge):
            writer.send(body, {"a": "y" * (left + 1)})


def test_packs_do_not_exceed_the_limit_of_the_broker(
    connection: Connection, memory_broker: MemoryBroker
) -> None:
    bodies = [b"%05d" % n * 1_000 for n in range(50)]  # a quarter of a MiB, where 20,000 octets are a pack
    with connection.writer(RESOURCE, packed=True) as writer:
        for body in bodies:
            writer.send(body)
    assert memory_broker.stored == bodies


def test_an_incomplete_pack_is_sent_after_a_delay(
    connection: Connection, memory_broker: MemoryBroker
) -> None:
    writer = connection.writer(RESOURCE, packed=True)
    writer.send(b"alone")
    deadline = time.monotonic() + 10
    while writer.unconfirmed:
        assert time.monotonic() < deadline
    assert memory_broker.stored == [b"alone"]
    writer.close()


def test_contents_that_cannot_be_sent_are_refused_at_the_call(connection: Connection) -> None:
    with connection.writer(["a", "b"], packed=True) as writer:
        assert (writer.max_content, writer.max_pack) == (10_000, 20_000)
        with pytest.raises(ContentTooLarge):
            writer.send(b"x" * 10_001, resource="a")
        with pytest.raises(OptionError, match="several"):
            writer.send(b"x")
        with pytest.raises(FieldError):
            writer.send(b"x", resource="no\nname")  # told at once: the IO thread could only die of it
        with pytest.raises(OptionError, match="count"):
            writer.send_pack(encode_pack([b"x"]), resource="a")
        with pytest.raises(ContentTooLarge):
            writer.send_pack(encode_pack([b"x" * 25_000]), 1, resource="a")
        with pytest.raises(LocalError, match="no stage"):
            writer.seal()
    with connection.writer("a") as writer, pytest.raises(OptionError, match="not packed"):
        writer.send_pack(encode_pack([b"x"]), 1)


def test_a_stage_is_sealed_by_close_or_aborted_by_an_error(
    connection: Connection, memory_broker: MemoryBroker
) -> None:
    writer = connection.writer(RESOURCE, stage=STAGE)
    writer.send(b"x")
    assert (writer.stage, writer.name) == ("stage", None)
    assert writer.seal().contents == {RESOURCE: 1}
    with pytest.raises(ZeroDivisionError):
        fail_within(connection)
    assert isinstance(memory_broker.asked[-1], control.StageAbort)


def fail_within(connection: Connection) -> None:
    with connection.writer(RESOURCE, stage=STAGE) as writer:
        writer.send(b"x")
        raise ZeroDivisionError


def test_close_of_a_stage_without_lease_describes_the_stage(
    connection: Connection, memory_broker: MemoryBroker
) -> None:
    gone = control.encode_reply(404, {"status": "no", "reason": control.UNKNOWN_LEASE, "message": ""})
    info = control.StageInfo(stage="stage", application="app", version=0, contents={RESOURCE: 9}, bytes=99)
    memory_broker.answers[control.LeaseClose] = lambda: gone
    memory_broker.answers[control.StageDescribe] = lambda: control.encode_reply(
        200, control.StageList(stages=[info], applications=[])
    )
    sealed = connection.writer(RESOURCE, stage=STAGE).seal()
    assert (sealed.stage, sealed.contents, sealed.bytes) == ("stage", {RESOURCE: 9}, 99)
    described = next(asked for asked in memory_broker.asked if isinstance(asked, control.StageDescribe))
    assert (described.stage, described.application) == ("stage", None)


def test_every_call_raises_the_error_of_the_writer_and_close_the_losses(
    connection: Connection, memory_broker: MemoryBroker
) -> None:
    memory_broker.holding = True
    writer = connection.writer(RESOURCE)
    writer.send(b"x")
    connection._loop.post(lambda: writer._part.failed(Fenced("another took over")))
    with pytest.raises(Fenced):
        writer.flush()
    with pytest.raises(Fenced):
        writer.send(b"y")
    with pytest.raises(Fenced):
        writer.close()
    writer.close()
