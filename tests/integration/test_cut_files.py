"""A segment truncated while a broker has it mapped: access to it would end the process by SIGBUS."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

import mtl
from mtl.client.connection import Connection
from mtl.errors import Refused
from mtl.testing import broker

BODY = bytes(2_000)
COUNT = 120


def write(connection: Connection, name: str) -> None:
    connection.create_resource(name)
    with connection.writer(name) as writer:
        for _ in range(COUNT):
            writer.send(BODY)
            writer.flush()  # a chunk of its own


def read(connection: Connection, name: str, *, packed: bool) -> int:
    """The number of readable contents."""
    with connection.reader(name, start=1, until=COUNT + 1, packed=packed) as reader:
        return sum(1 for _ in reader)


@pytest.mark.parametrize("packed", [True, False])
def test_a_truncated_segment_ends_a_lease_but_not_the_process(packed: bool, tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("segment-bytes = 100000\nlocal-reads = false\n")
    with (
        broker(data=tmp_path / "data", config=config) as running,
        mtl.connect(running.endpoint, retry_deadline=2.0) as connection,
    ):
        write(connection, "whole")
        whole = {*running.data.glob("resources/*/*.segment")}
        write(connection, "cut")
        running.restart()  # contents in memory need no file
        for name in ("cut", "whole"):
            assert read(connection, name, packed=packed) == COUNT
        segments = sorted({*running.data.glob("resources/*/*.segment")} - whole)
        assert len(segments) > 2
        os.truncate(segments[0], 10 * mmap.PAGESIZE)
        pid = running.pid
        with pytest.raises(Refused) as refused:
            read(connection, "cut", packed=packed)
        assert refused.value.reason == "storage"
        assert "the file ends too early" in str(refused.value)
        assert read(connection, "whole", packed=packed) == COUNT
        assert running.pid == pid
        (found,) = connection.describe(["cut"]).values()
        assert "the file ends too early" in (found.trouble or "")


@pytest.mark.parametrize("local", [True, False], ids=["of files", "of the socket"])
def test_packs_that_were_handed_out_outlive_their_file(local: bool, tmp_path: Path) -> None:
    """The files are cut while the application has packs: they stay whole, the others are reported, nobody ends."""
    config = tmp_path / "broker.toml"
    config.write_text(f"segment-bytes = 100000\nlocal-reads = {str(local).lower()}\n")
    body = bytes(range(256)) * 200
    with (
        broker(data=tmp_path / "data", config=config) as running,
        mtl.connect(running.endpoint, retry_deadline=2.0) as connection,
    ):
        connection.create_resource("cut")
        with connection.writer("cut", packed=True) as writer:
            for _ in range(400):
                writer.send(body)
                writer.flush()
        running.restart()  # contents in memory need no file
        pid = running.pid
        with connection.reader("cut", start=1, until=401, packed=True) as reader:
            packs = iter(reader.batches())
            held = [next(packs) for _ in range(3)]
            for segment in running.data.glob("resources/*/*.segment"):
                os.truncate(segment, 0)
            assert [pack.batch.column(1)[0].as_py() for pack in held] == [body] * 3
            with pytest.raises(Refused) as refused:
                held.extend(packs)
            assert "the file ends too early" in str(refused.value)
        assert {x.as_py() for pack in held for x in pack.batch.column(1)} == {body}
        assert running.pid == pid
        (found,) = connection.describe(["cut"]).values()
        assert "the file ends too early" in (found.trouble or "")
