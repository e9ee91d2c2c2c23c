"""Limits of the system: file sizes and open files, set while a broker runs."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import mtl
from mtl.errors import Unreachable
from mtl.testing import broker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prlimit is Linux's")

LIMIT = 300_000
BODY = bytes(10_000)


@contextmanager
def limited() -> Iterator[None]:
    """Processes that begin in this block have the limit."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_log_continues_in_another_segment_at_the_limit_of_file_sizes(tmp_path: Path) -> None:
    with broker(data=tmp_path / "data") as running, mtl.connect(running.endpoint) as connection:
        connection.create_resource("orders")
        unlimited = resource.prlimit(running.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (LIMIT, unlimited[1]))
        with connection.writer("orders") as writer:
            for _ in range(100):
                writer.send(BODY)
                writer.flush()
        assert len([*running.data.glob("resources/*/*.segment")]) > 2
        with connection.reader("orders", start=1, until=101) as reader:
            assert [content.body for content in reader] == [BODY] * 100
        with connection.writer("orders") as writer:
            writer.send(bytes(2 * LIMIT))
            with pytest.raises(Unreachable):
                writer.flush(1.0)
            (found,) = connection.describe(["orders"]).values()
            assert f"a file of this process may have {LIMIT:,} octets" in (found.trouble or "")
            resource.prlimit(running.pid, resource.RLIMIT_FSIZE, unlimited)
            writer.flush()


def test_records_continue_below_a_limit_of_file_sizes(tmp_path: Path) -> None:
    """The write-ahead log of the records begins again before it reaches the limit."""
    with (
        limited(),
        broker(data=tmp_path / "data") as running,
        mtl.connect(running.endpoint) as connection,
    ):
        assert f"may have {LIMIT:,} octets" in running.log.read_text()
        connection.create_resource("orders")
        for number in range(100):
            connection.cursor_open(f"group-{number}", "orders")
        running.restart()
        assert len(connection.cursors()) == 100
