"""The contract of a disk, tested with the real one and its twin."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mtl.errors import DirectoryInUse, StorageFailed, StorageFull
from mtl.log import files
from mtl.log.files import LOCK_NAME, Disk, RealDisk, failure, write_fully
from mtl.log.limits import IOV_BATCH

if TYPE_CHECKING:
    from typing_extensions import Buffer

Place = tuple[Disk, str]


def write(disk: Disk, path: str, data: bytes) -> None:
    file = disk.open(path, "create")
    write_fully(file, [data], 0)
    file.close()


def read(disk: Disk, path: str) -> bytes:
    file = disk.open(path, "read")
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def test_writes_buffers_in_order_at_an_offset(place: Place) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", "create")
    assert write_fully(file, [b"hello ", memoryview(b"wor"), bytearray(b"ld")], 0) == 11
    assert write_fully(file, [b"WORLD"], 6) == 5
    assert file.size() == 11
    assert file.pread(100, 0) == b"hello WORLD"
    assert file.pread(3, 6) == b"WOR"
    assert file.pread(3, 11) == b""
    file.sync()
    file.close()


def test_begin_sync_starts_writing_a_range(place: Place) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", "create")
    write_fully(file, [bytes(5_000), b"end"], 0)
    file.begin_sync(0, 4_096)
    file.begin_sync(4_096, 907)
    file.sync()
    assert file.pread(5, 4_998) == b"\0\0end"


def test_a_failed_begin_sync_is_reported_by_every_later_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealDisk().open(f"{tmp_path}/a", "create")
    for code in (errno.ENOSYS, errno.EINVAL, errno.ESPIPE):  # a system that cannot
        monkeypatch.setattr(files, "_begin_writing", failing(code))
        file.begin_sync(0, 1)
        file.sync()
    monkeypatch.setattr(files, "_begin_writing", failing(errno.EIO))
    file.begin_sync(0, 1)
    for _ in range(2):
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            file.sync()


def failing(code: int) -> Callable[..., int]:
    """A system call that fails with this errno."""

    def call(*_: int) -> int:
        ctypes.set_errno(code)
        return -1

    return call


def test_sync_file_range_returns_its_error_as_code(tmp_path: Path) -> None:
    """A closed file gives EBADF."""
    fd = os.open(tmp_path / "a", os.O_CREAT | os.O_WRONLY)
    assert files._begin_writing(fd, 0, 0, files._WRITE) == 0
    os.close(fd)
    if sys.platform == "linux":
        assert files._begin_writing(fd, 0, 0, files._WRITE) == -1
        assert ctypes.get_errno() == errno.EBADF


def test_writes_more_buffers_than_one_call_accepts(place: Place) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", "create")
    parts = [bytes([at % 251]) * (at % 3) for at in range(3 * IOV_BATCH + 5)]
    assert write_fully(file, parts, 0) == len(b"".join(parts))
    assert file.pread(file.size(), 0) == b"".join(parts)


def test_a_hole_and_a_longer_file_read_as_zeros(place: Place) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", "create")
    write_fully(file, [b"x"], 10)
    file.truncate(13)
    assert file.pread(20, 0) == bytes(10) + b"x" + bytes(2)
    file.truncate(4)
    assert (file.size(), file.pread(20, 0)) == (4, bytes(4))


def test_create_empties_the_file_and_other_modes_need_one(place: Place) -> None:
    disk, root = place
    write(disk, f"{root}/a", b"old")
    disk.open(f"{root}/a", "create").close()
    assert read(disk, f"{root}/a") == b""
    for mode in ("read", "write"):
        with pytest.raises(FileNotFoundError):
            disk.open(f"{root}/missing", mode)


def test_a_file_opened_for_reading_cannot_be_written(place: Place) -> None:
    disk, root = place
    write(disk, f"{root}/a", b"x")
    file = disk.open(f"{root}/a", "read")
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        file.writev([b"y"], 0)


def test_files_can_be_listed_renamed_and_removed(place: Place) -> None:
    disk, root = place
    disk.make_dir(f"{root}/sub")
    disk.make_dir(f"{root}/sub")  # again is fine
    write(disk, f"{root}/b", b"123")
    write(disk, f"{root}/a", b"")
    assert disk.list_dir(root) == ["a", "b", "sub"]
    assert disk.sizes(root) == {"a": 0, "b": 3}
    assert disk.exists(f"{root}/sub")
    assert not disk.exists(f"{root}/none/at/all")
    disk.rename(f"{root}/b", f"{root}/a")
    assert disk.sizes(root) == {"a": 3}
    disk.link(f"{root}/a", f"{root}/sub/a")
    disk.unlink(f"{root}/a")
    assert read(disk, f"{root}/sub/a") == b"123"
    with pytest.raises(FileNotFoundError):
        disk.unlink(f"{root}/a")
    with pytest.raises(OSError, match=os.strerror(errno.ENOTEMPTY)):
        disk.remove_dir(f"{root}/sub")
    disk.unlink(f"{root}/sub/a")
    disk.remove_dir(f"{root}/sub")
    disk.fsync_dir(root)
    with pytest.raises(FileNotFoundError):
        disk.list_dir(f"{root}/sub")


def test_a_link_to_an_existing_name_is_refused(place: Place) -> None:
    disk, root = place
    write(disk, f"{root}/a", b"a")
    write(disk, f"{root}/b", b"b")
    with pytest.raises(FileExistsError):
        disk.link(f"{root}/a", f"{root}/b")


def test_renaming_a_link_over_another_of_the_same_file_has_no_effect(place: Place) -> None:
    disk, root = place
    write(disk, f"{root}/a", b"a")
    disk.link(f"{root}/a", f"{root}/b")
    disk.rename(f"{root}/a", f"{root}/b")
    assert disk.list_dir(root) == ["a", "b"]


def test_an_open_file_outlives_its_name(place: Place) -> None:
    disk, root = place
    write(disk, f"{root}/a", b"still here")
    file = disk.open(f"{root}/a", "read")
    disk.unlink(f"{root}/a")
    assert file.pread(100, 0) == b"still here"


def test_entropy_differs(place: Place) -> None:
    disk, _ = place
    assert len(disk.entropy(8)) == 8
    assert disk.entropy(8) != disk.entropy(8)


def test_the_lock_has_one_holder(place: Place) -> None:
    disk, root = place
    lock = disk.lock(root)
    with pytest.raises(DirectoryInUse, match=r"another broker.*stop it, or give this one"):
        disk.lock(root)
    lock.release()
    lock.release()
    disk.lock(root).release()


@pytest.mark.parametrize("removed", [False, True], ids=["as it is", "rm lock"])
def test_the_lock_excludes_other_processes_and_names_its_holder(tmp_path: Path, removed: bool) -> None:
    program = f"""
import sys
from mtl.log.files import RealDisk
lock = RealDisk().lock({str(tmp_path)!r})
print("held", flush=True)
sys.stdin.read()
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        if removed:
            (tmp_path / LOCK_NAME).unlink()
        with pytest.raises(DirectoryInUse, match=rf"process {holder.pid}\)"):
            RealDisk().lock(str(tmp_path))
    finally:
        holder.kill()  # a lock dies with its process, however that ends
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()
    RealDisk().lock(str(tmp_path)).release()


def test_real_files_are_accessible_only_to_their_owner(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.make_dir(str(tmp_path / "d"))
    disk.open(str(tmp_path / "d" / "f"), "create").close()
    assert (tmp_path / "d").stat().st_mode & 0o077 == 0
    assert (tmp_path / "d" / "f").stat().st_mode & 0o077 == 0


class Stubborn:
    """A file whose successive writes accept `limits` octets each."""

    def __init__(self, *limits: int) -> None:
        self.limits = list(limits)
        self.data = bytearray()

    def writev(self, buffers: Sequence[Buffer], offset: int) -> int:
        assert offset == len(self.data)
        taken = b"".join(bytes(buffer) for buffer in buffers)[: self.limits.pop(0)]
        self.data += taken
        return len(taken)


def test_short_writes_are_continued() -> None:
    file = Stubborn(1, 3, 0 + 2, 100)
    assert write_fully(file, [b"ab", b"cdef", b"", b"gh"], 0) == 8  # type: ignore[arg-type]
    assert file.data == b"abcdefgh"


def test_a_write_of_zero_octets_is_an_error() -> None:
    with pytest.raises(OSError, match="a write of 0 octets"):
        write_fully(Stubborn(2, 0), [b"abc"], 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "kind"),
    [(errno.ENOSPC, StorageFull), (errno.EDQUOT, StorageFull), (errno.EIO, StorageFailed)],
)
def test_failures_have_a_type_and_name_the_operation(code: int, kind: type[Exception]) -> None:
    error = failure(OSError(code, os.strerror(code)), "appending to x")
    assert type(error) is kind
    assert "appending to x" in str(error)
    assert os.strerror(code) in str(error)


@pytest.mark.parametrize(
    ("code", "way_out"),
    [
        (errno.ENOSPC, "inodes"),
        (errno.EDQUOT, "quota"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ENFILE, "fs.file-max"),
        (errno.EROFS, "writable"),
        (errno.EIO, "dmesg"),
        (errno.EACCES, "permission"),
        (errno.EPERM, "permission"),
    ],
)
def test_failures_that_people_can_end_name_the_way_out(
    code: int, way_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtl.log.files.file_limit", lambda: 1_000)
    assert way_out in str(failure(OSError(code, os.strerror(code)), "appending to x"))


def test_a_file_system_may_have_a_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert "the file system does not allow a larger file" in str(failure(OSError(errno.EFBIG, "large"), "x"))
