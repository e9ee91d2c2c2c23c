"""An older copy of the data directory is restored and diverges: clients that had seen more get data loss.

In either case of `stopped` the original and the copy part at content 6. Stopped and started, the original goes on in an
epoch of the same number as the copy does; running, in the one that the copy has the beginning of.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mtl.client.connection import Connection
from mtl.client.writer import Writer
from mtl.errors import DataLoss, Fenced
from mtl.testing import RunningBroker
from tests.support.contents import numbered, write
from tests.support.copies import copy, put_back


@pytest.fixture(params=[False, True], ids=["running", "stopped"])
def copied(
    request: pytest.FixtureRequest, mtl_broker: RunningBroker, connection: Connection, tmp_path: Path
) -> Path:
    """A copy that has five contents."""
    write(connection, 5)
    connection.cursor_open("early", "orders")
    return copy(mtl_broker, tmp_path / "copy", stopped=request.param)


def another_way(broker: RunningBroker, connection: Connection, copied: Path) -> None:
    """The copy replaces the data, and gets more contents than the original had."""
    put_back(broker, copied)
    with connection.writer("orders") as writer:
        for n in range(20):
            writer.send(b"other %d" % n)


def test_a_running_reader_of_another_copy_gets_data_loss(
    mtl_broker: RunningBroker, connection: Connection, copied: Path
) -> None:
    write(connection, 10, first=5)
    with connection.reader("orders") as reader, connection.reader("orders", skip_lost=True) as tolerant:
        for reading in (reader, tolerant):
            assert [reading.next(timeout=10).body for _ in range(15)] == numbered(15)  # type: ignore[union-attr]
        another_way(mtl_broker, connection, copied)
        with pytest.raises(DataLoss) as caught:
            reader.next(timeout=20)
        assert (caught.value.first, caught.value.end) == (6, 16)
        assert [tolerant.next(timeout=20).body for _ in range(20)] == [b"other %d" % n for n in range(20)]  # type: ignore[union-attr]
        assert [(gap.first, gap.end) for gap in tolerant.lost] == [(6, 16)]


def test_a_reader_started_at_a_position_of_another_copy_gets_data_loss(
    mtl_broker: RunningBroker, connection: Connection, copied: Path
) -> None:
    write(connection, 10, first=5)
    places: list[tuple[int | None, str | None]] = []
    for until in (6, 16):
        with connection.reader("orders", until=until) as reader:
            list(reader)
            places.append((reader.position, reader.log_epoch))
    (alike, its_epoch), (position, epoch) = places
    assert (alike, position) == (6, 16)
    another_way(mtl_broker, connection, copied)
    assert position is not None
    assert alike is not None
    with pytest.raises(DataLoss) as caught:
        connection.reader("orders", start=position, log_epoch=epoch)
    assert (caught.value.first, caught.value.end) == (6, 16)
    with connection.reader("orders", start=alike, log_epoch=its_epoch, until=7) as reader:
        assert [content.body for content in reader] == [b"other 0"]
    with connection.reader("orders", start=position, until=17) as reader:
        assert [content.body for content in reader] == [b"other 10"], (
            "without its epoch a position is a number"
        )


@pytest.mark.parametrize("group", ["early", "late"])
def test_a_group_with_a_position_of_another_copy_gets_data_loss(
    mtl_broker: RunningBroker, connection: Connection, copied: Path, group: str
) -> None:
    """Also a group unknown to the copy."""
    write(connection, 10, first=5)
    with connection.reader("orders", group=group, holder="me") as reader:
        for _ in range(15):
            assert reader.next(timeout=10) is not None
        reader.confirm(15)
        reader.ping_holder()
        another_way(mtl_broker, connection, copied)
        with pytest.raises(DataLoss) as caught:
            reader.next(timeout=20)
        assert (caught.value.first, caught.value.end) == (6, 16)
    assert [cursor.position for cursor in connection.cursors()] == [1]


def write_one(writer: Writer) -> None:
    writer.send(b"11")
    writer.flush(timeout=20)


@pytest.mark.parametrize("name", ["me", None])
def test_a_writer_with_contents_missing_in_the_copy_gets_data_loss(
    mtl_broker: RunningBroker, connection: Connection, copied: Path, name: str | None
) -> None:
    writer = connection.writer("orders", name=name)
    for n in range(10):
        writer.send(b"%d" % n)
    writer.flush()
    put_back(mtl_broker, copied)
    with connection.writer("orders", name=name) as rival:  # its numbers continue beyond those of the writer
        for n in range(20):
            rival.send(b"other %d" % n)
    with pytest.raises((DataLoss, Fenced)):
        write_one(writer)
    writer.abandon()


def test_a_restored_copy_of_only_the_logs_is_detected_by_the_records(
    mtl_broker: RunningBroker, connection: Connection, copied: Path, tmp_path: Path
) -> None:
    """The records are newer: the group's position does not exist in the log."""
    write(connection, 10, first=5)
    with connection.reader("orders", group="g", holder="me") as reader:
        for _ in range(15):
            assert reader.next(timeout=10) is not None
        reader.confirm(15)
        reader.ping_holder()
    mtl_broker.stop()
    (mtl_broker.data / "resources").rename(tmp_path / "lost")
    (copied / "resources").rename(mtl_broker.data / "resources")
    mtl_broker.start()
    write(connection, 20, first=100)
    (cursor,) = connection.cursors("g")
    assert cursor.lost is not None
    assert (cursor.lost.first, cursor.lost.end, cursor.behind) == (6, 16, 20)
    with pytest.raises(DataLoss) as caught:
        connection.reader("orders", group="g")
    assert (caught.value.first, caught.value.end) == (6, 16)
    with connection.reader("orders", group="g", skip_lost=True, until=26) as reader:
        assert [content.body for content in reader] == numbered(20, 100)
        reader.confirm(25)
        reader.ping_holder()
    assert connection.cursors("g")[0].position == 26
