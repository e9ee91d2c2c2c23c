from __future__ import annotations

import threading

import pytest

from mtl.client.connection import Connection
from mtl.errors import Closed, Fenced, Unreachable
from mtl.limits import CREDIT_DELAY_S, MAX_PACK, PACK_OVERHEAD
from mtl.wire import control
from tests.support.memory_broker import RESOURCE, MemoryBroker


@pytest.fixture
def stored(memory_broker: MemoryBroker) -> list[bytes]:
    memory_broker.stored += [b"%d" % n for n in range(10)]
    return memory_broker.stored


def test_a_reader_iterates_up_to_the_end_of_its_range(connection: Connection, stored: list[bytes]) -> None:
    with connection.reader(RESOURCE, start=3, until=7, packed=False) as reader:
        assert (reader.resource, reader.position, reader.incarnation) == (RESOURCE, 3, "i")
        contents = list(reader)
        assert reader.position == 7
        assert reader.next() is None
    assert [(content.sequence, content.body) for content in contents] == [
        (n, b"%d" % (n - 1)) for n in range(3, 7)
    ]


def test_batches_combine_single_contents(connection: Connection, stored: list[bytes]) -> None:
    with connection.reader(RESOURCE, until=4, packed=False) as reader:
        packs = list(reader.batches())
    assert [(pack.first, pack.count, pack.batch.column(1).to_pylist()) for pack in packs] == [
        (1, 1, [b"0"]),
        (2, 2, [b"1", b"2"]),  # these came in a row
    ]


def test_batches_of_single_contents_may_exceed_a_pack_on_the_wire(
    connection: Connection, memory_broker: MemoryBroker
) -> None:
    memory_broker.stored += [b"x" * (1 << 20)] * 7
    with connection.reader(RESOURCE, until=8, packed=False) as reader:
        packs = list(reader.batches())
    assert sum(pack.count for pack in packs) == 7
    assert max(pack.batch.nbytes for pack in packs) > MAX_PACK + PACK_OVERHEAD


def test_next_returns_a_content_or_none_after_its_timeout(
    connection: Connection, memory_broker: MemoryBroker
) -> None:
    reader = connection.reader(RESOURCE, start=1, packed=False)
    assert reader.next(timeout=0.0) is None
    assert reader.next(timeout=0.05) is None
    memory_broker.stored.append(b"new")
    connection._loop.post(memory_broker.deliver)
    content = reader.next(timeout=10)
    assert content is not None
    assert content.body == b"new"


def test_a_wait_after_the_confirm_of_all_consumed_contents_has_no_further_deadline(
    connection: Connection, stored: list[bytes]
) -> None:
    reader = connection.reader(RESOURCE, packed=False)
    for _ in stored:
        assert reader.next(timeout=10) is not None
    assert reader.next(timeout=2 * CREDIT_DELAY_S) is None
    assert reader._credit_due_s is None


def test_consumed_contents_are_confirmed_by_the_following_next(
    connection: Connection, memory_broker: MemoryBroker, stored: list[bytes]
) -> None:
    reader = connection.reader(RESOURCE, packed=False)
    assert reader.next(timeout=10) is not None
    assert reader.next(timeout=10) is not None
    assert memory_broker.confirmed == []
    for _ in range(8):
        reader.next(timeout=10)
    assert reader.next(timeout=0.3) is None
    assert memory_broker.confirmed[-1] == 10


def test_a_holder_confirms_only_explicitly(
    connection: Connection, memory_broker: MemoryBroker, stored: list[bytes]
) -> None:
    with connection.reader(RESOURCE, group="g", packed=False) as reader:
        assert (reader.holding_epoch, reader.group_position) == (7, 1)
        for _ in range(10):
            reader.next(timeout=10)
        assert reader.next(timeout=0.1) is None
        assert memory_broker.confirmed == []
        reader.confirm(4)
        reader.ping_holder()
        assert memory_broker.confirmed == [4]


def test_every_call_of_a_fenced_holder_raises_fenced(
    connection: Connection, memory_broker: MemoryBroker
) -> None:
    reader = connection.reader(RESOURCE, group="g", packed=False)
    reader.ping_holder()
    memory_broker.fenced = True
    fenced = control.encode_reply(
        409, {"status": "no", "reason": control.FENCED, "message": "another took over"}
    )
    memory_broker.answers[control.ConnectionReader] = lambda: fenced
    with pytest.raises(Fenced):
        reader.ping_holder(timeout=10)
    with pytest.raises(Fenced):
        reader.next(timeout=0.0)


def test_a_missing_pong_is_an_error(connection: Connection, memory_broker: MemoryBroker) -> None:
    reader = connection.reader(RESOURCE, group="g", packed=False)
    reader.ping_holder()
    memory_broker.silent = True
    with pytest.raises(Unreachable, match="Pong"):
        reader.ping_holder(timeout=0.1)
    memory_broker.silent = False


def test_close_ends_a_next_in_another_thread(connection: Connection) -> None:
    reader = connection.reader(RESOURCE, packed=False)
    errors: list[BaseException] = []
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        try:
            reader.next()
        except Closed as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait(10)
    reader.close()
    thread.join(10)
    assert len(errors) == 1
    with pytest.raises(Closed):
        reader.next()
    with pytest.raises(Closed):
        reader.confirm(1)
    reader.close()
