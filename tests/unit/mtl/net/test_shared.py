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
from mtl.wire.places import SHARED_FROM, Span
from tests.support.descriptors import descriptors
from tests.support.processes import killed_after

SIZE = 1 << 16


@pytest.fixture
def lent() -> Iterator[Lent]:
    memory = Lent(SIZE)
    yield memory
    memory.close()


def test_what_the_writer_puts_there_the_broker_sees(lent: Lent) -> None:
    memory = borrow(lent.place)
    assert memory is not None

    memory[100:105] = b"hello"

    assert bytes(lent.octets(Span(100, 5))) == b"hello"
    assert len(memory) == lent.place.size == SIZE


def test_what_the_broker_took_out_the_writer_cannot_change(lent: Lent) -> None:
    memory = borrow(lent.place)
    assert memory is not None
    memory[100:105] = b"hello"
    octets = lent.octets(Span(100, 5))

    memory[100:105] = b"HELLO"

    assert octets == b"hello"


def test_what_is_larger_than_a_pack_is_not_copied() -> None:
    memory = Lent()
    with pytest.raises(Malformed, match="a pack of"):
        memory.octets(Span(SHARED_FROM, limits.MAX_PACK + limits.PACK_OVERHEAD + 1))
    memory.close()


def test_it_is_nobodys_after_the_lease() -> None:
    other = Lent(SIZE)
    other.close()

    assert borrow(other.place) is None


def test_who_has_it_is_known_until_the_end_of_its_process(lent: Lent) -> None:
    assert not lent.left()  # nobody has it yet
    memory = borrow(lent.place)
    assert memory is not None
    assert not lent.left()
    assert borrow(lent.place) is None  # one writer for each

    memory.close()

    assert lent.left()
    assert lent.left()


_WRITER = """
import sys
import msgspec
from mtl.net.shared import borrow
from mtl.wire.control import SharedMemory

memory = borrow(msgspec.json.decode(sys.argv[1], type=SharedMemory))
print(memory is not None, flush=True)
sys.stdin.read()
"""


def test_a_writer_that_is_killed_is_gone(lent: Lent) -> None:
    command = [sys.executable, "-c", _WRITER, msgspec.json.encode(lent.place).decode()]
    with killed_after(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"True\n"
        assert not lent.left()
        process.kill()
    assert lent.left()


def test_who_does_not_say_that_it_has_it_keeps_it(lent: Lent) -> None:
    """Another client may not know of the lock: its memory goes with its lease."""
    fd = os.open(lent.place.file, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.close(fd)
    assert not lent.left()


@pytest.mark.parametrize(
    "span", [Span(0, 10), Span(SHARED_FROM - 1, 10), Span(SIZE, 1), Span(SIZE - 9, 10), Span(1 << 62, 10)]
)
def test_nothing_outside_is_touched(lent: Lent, span: Span) -> None:
    with pytest.raises(Malformed, match="shared memory"):
        lent.octets(span)


def test_nobody_can_change_its_size(lent: Lent) -> None:
    """The broker reads it by its address: a page that is gone would end the process."""
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


def test_another_file_is_not_written_to(lent: Lent, tmp_path: Path) -> None:
    """In another container the number of the broker's process is somebody else's, and so is the file."""
    file = tmp_path / "file"
    file.write_bytes(lent.place.key.encode() + bytes(SIZE))
    os.mkfifo(tmp_path / "fifo")
    open_file, memory = os.open(file, os.O_RDWR), unsealed()
    fifo = os.open(tmp_path / "fifo", os.O_RDWR)
    here = f"/proc/{os.getpid()}/fd"
    try:
        for told in (
            SharedMemory(file=f"{here}/{open_file}", size=SIZE, key=lent.place.key),
            SharedMemory(file=f"{here}/{fifo}", size=SIZE, key=lent.place.key),
            SharedMemory(file=f"{here}/{memory}", size=SIZE, key="k" * 32),
            SharedMemory(file=str(file), size=SIZE, key=lent.place.key),
            SharedMemory(file=f"{here}/999999", size=SIZE, key=lent.place.key),
            SharedMemory(file="nul\0", size=SIZE, key=lent.place.key),
            SharedMemory(file=lent.place.file, size=SIZE, key="of another lease"),
            SharedMemory(file=lent.place.file, size=2 * SIZE, key=lent.place.key),
        ):
            assert borrow(told) is None
        assert not fcntl.fcntl(memory, fcntl.F_GET_SEALS)
    finally:
        for fd in (open_file, memory, fifo):
            os.close(fd)


def test_a_system_without_such_memory_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(OSError, match="no sealed memory"):
        Lent(SIZE)


def test_what_fails_on_the_way_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    before = descriptors("/memfd:mtl-packs")
    monkeypatch.setattr(os, "ftruncate", refuse)
    with pytest.raises(OSError, match="No space"):
        Lent(SIZE)
    assert set(descriptors("/memfd:mtl-packs")) <= set(before)


def refuse(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
