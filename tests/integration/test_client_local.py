"""Packs that a reader on the broker's machine reads from its files: the same contents, also if files vanish."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

import mtl
from mtl.client import local_packs as files
from mtl.client.connection import Connection
from mtl.errors import DataLoss
from mtl.testing import RunningBroker, broker
from mtl.wire.control import LOCAL_KEY
from mtl.wire.ranges import FileRange
from tests.support.contents import LARGE_PACK, bodies, large_packs, write_packs


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every file that a pack was read from."""
    seen: list[str] = []
    whole = files.LocalPacks.read

    def watched(self: files.LocalPacks, file_range: FileRange) -> object:
        seen.append(file_range.file)
        return whole(self, file_range)

    monkeypatch.setattr(files.LocalPacks, "read", watched)
    return seen


def test_large_packs_are_read_from_the_files_and_small_ones_are_sent(
    connection: Connection, mtl_broker: RunningBroker, read: list[str]
) -> None:
    written = write_packs(connection, [*large_packs(3), [b"small"], *large_packs(2, first=3)])

    assert bodies(connection.reader("orders", until=len(written) + 1)) == written
    assert len(read) == 5
    assert {Path(name).is_relative_to(mtl_broker.data) for name in read} == {True}


def test_a_range_that_starts_and_ends_inside_packs(connection: Connection, read: list[str]) -> None:
    written = write_packs(connection, large_packs(3))

    with connection.reader("orders", start=50, until=251) as reader:
        assert [content.body for content in reader] == written[49:250]
    assert len(read) == 3


def test_plain_readers_and_those_without_local_reads_get_octets(
    connection: Connection, mtl_broker: RunningBroker, read: list[str]
) -> None:
    written = write_packs(connection, large_packs(2))

    assert bodies(connection.reader("orders", until=201, packed=False)) == written
    with mtl.connect(mtl_broker.endpoint, local_reads=False) as through_the_socket:
        assert bodies(through_the_socket.reader("orders", until=201)) == written
    assert read == []


def test_without_local_reads_the_broker_sends_octets(tmp_path: Path, read: list[str]) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("local-reads = false\n")
    with broker(config=config) as running, mtl.connect(running.endpoint) as connection:
        connection.create_resource("orders")
        written = write_packs(connection, large_packs(2))
        assert bodies(connection.reader("orders", until=201)) == written
        assert not (running.data / LOCAL_KEY).exists()
    assert read == []


def test_a_reader_without_access_to_the_files_gets_octets_after_one_try(
    connection: Connection, mtl_broker: RunningBroker, read: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """As in a container on the same machine: the mark is equal, the directory differs."""
    (mtl_broker.data / LOCAL_KEY).write_text("of another broker")
    written = write_packs(connection, large_packs(2))

    with caplog.at_level(logging.INFO, "mtl.client"):
        for _ in range(2):
            assert bodies(connection.reader("orders", until=201)) == written
    assert read == []
    assert len([record for record in caplog.records if "through the socket" in record.message]) == 1


def test_packs_of_vanished_files_are_sent_as_octets(
    connection: Connection, mtl_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue of the reader has places that are no longer readable; contents stay complete, unique and in order."""
    written = write_packs(connection, large_packs(20))
    taken: list[bytes] = []
    with connection.reader("orders", until=len(written) + 1) as reader:
        for pack in reader.batches():
            taken += pack.batch.column("body").to_pylist()
            if len(taken) == 5 * LARGE_PACK:
                monkeypatch.setattr(files.LocalPacks, "_descriptor", missing)
    assert taken == written


def missing(self: files.LocalPacks, path: str) -> object:
    raise FileNotFoundError(2, "No such file or directory", path)


def test_a_resource_deleted_during_reading_is_a_loss(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its places refer to removed files; the broker, asked for the octets, refuses with the cause."""
    written = write_packs(connection, large_packs(20))
    with connection.reader("orders", until=len(written) + 1) as reader:
        packs_read = reader.batches(timeout=20)
        assert next(packs_read).count == LARGE_PACK
        connection.delete_resource("orders")
        connection.create_resource("orders")
        monkeypatch.setattr(files.LocalPacks, "_descriptor", missing)
        with pytest.raises(DataLoss):
            list(packs_read)


def test_a_reader_reads_from_files_again_after_a_restart(tmp_path: Path, read: list[str]) -> None:
    with broker(data=tmp_path / "data") as running, mtl.connect(running.endpoint) as connection:
        connection.create_resource("orders")
        written = write_packs(connection, large_packs(10))
        taken: list[bytes] = []
        with connection.reader("orders", until=2 * len(written) + 1) as reader:
            for pack in reader.batches():
                taken += pack.batch.column("body").to_pylist()
                if len(taken) == 5 * LARGE_PACK:
                    running.kill()
                    running.restart()
                if len(taken) == 10 * LARGE_PACK:
                    written += write_packs(connection, large_packs(10, first=10))
        assert taken == written
        assert len(read) == 20
    shutil.rmtree(tmp_path / "data")


def test_a_data_directory_behind_a_symbolic_link_is_granted_by_its_own_name(
    tmp_path: Path, read: list[str]
) -> None:
    """A reader follows no links, so the broker has to name the resolved directory."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    with broker(data=tmp_path / "link" / "data") as running, mtl.connect(running.endpoint) as connection:
        connection.create_resource("orders")
        written = write_packs(connection, large_packs(2))
        assert bodies(connection.reader("orders", until=201)) == written
    assert {Path(name).is_relative_to(tmp_path / "disk" / "data") for name in read} == {True}
    assert len(read) == 2
