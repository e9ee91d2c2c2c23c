from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtl.client.limits import LOCAL_WINDOW
from mtl.client.mapped import MappedFile
from tests.support.descriptors import descriptors

OCTETS = os.urandom(3 * mmap.PAGESIZE + 100)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "segment"
    path.write_bytes(OCTETS)
    return path


@pytest.fixture
def file(path: Path) -> Iterator[MappedFile]:
    file = MappedFile(os.open(path, os.O_RDONLY))
    yield file
    file.close()


@pytest.mark.parametrize(
    ("offset", "size"),
    [
        (0, 1),
        (10, 20),
        (mmap.PAGESIZE - 1, 2),
        (mmap.PAGESIZE, mmap.PAGESIZE),
        (5, len(OCTETS) - 5),
        (len(OCTETS) - 1, 1),
    ],
)
def test_any_range_has_the_octets_of_the_file(file: MappedFile, offset: int, size: int) -> None:
    assert file.octets(offset, size).to_pybytes() == OCTETS[offset : offset + size]


def test_near_ranges_share_a_mapping_and_distant_ones_do_not(
    file: MappedFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    real = mmap.mmap

    def watched(fd: int, length: int, **more: int) -> mmap.mmap:
        made.append(length)
        return real(fd, length, **more)

    monkeypatch.setattr(mmap, "mmap", watched)
    with path.open("r+b") as sparse:
        sparse.truncate(3 * LOCAL_WINDOW)
    for offset in range(0, LOCAL_WINDOW, LOCAL_WINDOW // 8):
        file.octets(offset, 100)
    assert len(made) == 1
    file.octets(LOCAL_WINDOW - 10, 100)
    file.octets(LOCAL_WINDOW + 1_000, 100)
    assert len(made) == 2
    file.octets(0, 2 * LOCAL_WINDOW)
    assert len(made) == 3


def test_octets_appended_to_the_file_are_found(file: MappedFile, path: Path) -> None:
    assert file.octets(0, 10).to_pybytes() == OCTETS[:10]
    with path.open("ab") as growing:
        growing.write(b"more")
    assert file.octets(len(OCTETS), 4).to_pybytes() == b"more"


def test_a_range_behind_the_end_of_the_file_is_an_error(file: MappedFile) -> None:
    with pytest.raises(EOFError):
        file.octets(len(OCTETS) - 10, 11)
    with pytest.raises(EOFError):
        file.octets(10 * LOCAL_WINDOW, 1)


def test_a_range_of_a_file_truncated_during_mapping_is_an_error(
    file: MappedFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = path.stat()
    os.truncate(path, 10)
    monkeypatch.setattr(os, "fstat", lambda _: size)
    with pytest.raises(EOFError):
        file.octets(0, 100)


def test_returned_octets_outlive_the_file_and_then_free_the_descriptor(path: Path) -> None:
    file = MappedFile(os.open(path, os.O_RDONLY))
    found = file.octets(10, 20)
    file.close()
    path.unlink()
    assert found.to_pybytes() == OCTETS[10:30]
    assert descriptors(str(path))
    del found
    assert not descriptors(str(path))


def test_unreadable_pages_are_an_error_not_a_crash(file: MappedFile, path: Path) -> None:
    """A truncated file stands in for a bad sector: access to its mapped pages is a SIGBUS."""
    file.octets(0, 10)
    with path.open("r+b") as cut:
        cut.truncate(mmap.PAGESIZE)
    with pytest.raises(OSError, match="Bad address"):
        file.octets(mmap.PAGESIZE, 2 * mmap.PAGESIZE)
