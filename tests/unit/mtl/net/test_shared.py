from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mtl import limits
from mtl.errors import Malformed
from mtl.net.shared import Lent, borrow
from mtl.wire.control import SharedMemory
from mtl.wire.ranges import SHARED_FROM, Span
from tests.support.descriptors import descriptors
from tests.support.processes import killed_after

SIZE = 1 << 16


@pytest.fixture
def lent() -> Iterator[Lent]:
    memory = Lent(SIZE)
    yield memory
    memory.close()


def test_octets_of_the_writer_are_visible_to_the_broker(lent: Lent) -> None:
    memory = borrow(lent.place)
    assert memory is not None

    memory[100:105] = b"hello"

    assert bytes(lent.octets(Span(100, 5))) == b"hello"
    assert len(memory) == lent.place.size == SIZE


def test_octets_read_by_the_broker_cannot_be_changed_by_the_writer(lent: Lent) -> None:
    memory = borrow(lent.place)
    assert memory is not None
    memory[100:105] = b"hello"
    octets = lent.octets(Span(100, 5))

    memory[100:105] = b"HELLO"

    assert octets == b"hello"


def test_a_span_larger_than_a_pack_is_refused() -> None:
    memory = Lent()
    with pytest.raises(Malformed, match="a pack of"):
        memory.octets(Span(SHARED_FROM, limits.MAX_PACK + limits.PACK_OVERHEAD + 1))
    memory.close()


def test_memory_cannot_be_borrowed_after_its_lease() -> None:
    other = Lent(SIZE)
    other.close()

    assert borrow(other.place) is None


def test_memory_is_held_until_the_end_of_the_writers_process(lent: Lent) -> None:
    assert not lent.is_abandoned()  # not borrowed yet
    memory = borrow(lent.place)
    assert memory is not None
    assert lent.is_abandoned() is False
    assert borrow(lent.place) is None  # one writer for each

    memory.close()

    assert lent.is_abandoned()
    assert lent.is_abandoned()


_WRITER = """
import sys
import msgspec
from mtl.net.shared import borrow
from mtl.wire.control import SharedMemory

memory = borrow(msgspec.json.decode(sys.argv[1], type=SharedMemory))
print(memory is not None, flush=True)
sys.stdin.read()
"""


def test_memory_of_a_killed_writer_is_reported_as_left(lent: Lent) -> None:
    command = [sys.executable, "-c", _WRITER, msgspec.json.encode(lent.place).decode()]
    with killed_after(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"True\n"
        assert not lent.is_abandoned()
        process.kill()
    assert lent.is_abandoned()


def test_memory_without_a_registered_holder_is_kept(lent: Lent) -> None:
    """A client without support for the lock keeps its memory until its lease ends."""
    fd = os.open(lent.place.file, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.close(fd)
    assert not lent.is_abandoned()


@pytest.mark.parametrize(
    "span", [Span(0, 10), Span(SHARED_FROM - 1, 10), Span(SIZE, 1), Span(SIZE - 9, 10), Span(1 << 62, 10)]
)
def test_spans_outside_of_the_memory_are_refused(lent: Lent, span: Span) -> None:
    with pytest.raises(Malformed, match="shared memory"):
        lent.octets(span)


def test_the_size_of_the_memory_is_sealed(lent: Lent) -> None:
    """The broker reads it through a mapping: a missing page would end the process."""
    for size in (0, 2 * SIZE):
        fd = os.open(lent.place.file, os.O_RDWR)
        try:
            with pytest.raises(PermissionError) as refused:
                os.ftruncate(fd, size)
            assert refused.value.errno == errno.EPERM
        finally:
            os.close(fd)


def unsealed() -> int:
    fd = os.memfd_create("mtl-packs", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, SIZE)
    os.pwrite(fd, b"k" * 32, 0)
    return fd


def test_a_file_that_is_not_the_brokers_memory_is_not_borrowed(lent: Lent, tmp_path: Path) -> None:
    """In another container the broker's process id is that of another process, and the file is another one."""
    file = tmp_path / "file"
    file.write_bytes(lent.place.key.encode() + bytes(SIZE))
    os.mkfifo(tmp_path / "fifo")
    open_file, memory = os.open(file, os.O_RDWR), unsealed()
    fifo = os.open(tmp_path / "fifo", os.O_RDWR)
    here = f"/proc/{os.getpid()}/fd"
    try:
        for place in (
            SharedMemory(file=f"{here}/{open_file}", size=SIZE, key=lent.place.key),
            SharedMemory(file=f"{here}/{fifo}", size=SIZE, key=lent.place.key),
            SharedMemory(file=f"{here}/{memory}", size=SIZE, key="k" * 32),
            SharedMemory(file=str(file), size=SIZE, key=lent.place.key),
            SharedMemory(file=f"{here}/999999", size=SIZE, key=lent.place.key),
            SharedMemory(file="nul\0", size=SIZE, key=lent.place.key),
            SharedMemory(file=lent.place.file, size=SIZE, key="of another lease"),
            SharedMemory(file=lent.place.file, size=2 * SIZE, key=lent.place.key),
        ):
            assert borrow(place) is None
        assert not fcntl.fcntl(memory, fcntl.F_GET_SEALS)
    finally:
        for fd in (open_file, memory, fifo):
            os.close(fd)


def test_a_system_without_sealed_memory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(OSError, match="no sealed memory"):
        Lent(SIZE)


def test_a_failed_allocation_leaves_no_descriptor_open(monkeypatch: pytest.MonkeyPatch) -> None:
    before = descriptors("/memfd:mtl-packs")
    monkeypatch.setattr(os, "ftruncate", refuse)
    with pytest.raises(OSError, match="No space"):
        Lent(SIZE)
    assert set(descriptors("/memfd:mtl-packs")) <= set(before)


def refuse(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
