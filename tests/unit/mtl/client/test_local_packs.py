from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtl.client.limits import LOCAL_FILES
from mtl.client.local_packs import LocalPacks, NotLocal
from mtl.errors import Malformed
from mtl.limits import MAX_PACK, PACK_OVERHEAD
from mtl.wire.control import LOCAL_KEY, LocalFiles
from mtl.wire.ranges import FileRange
from tests.support.descriptors import descriptors


@pytest.fixture
def packs(tmp_path: Path) -> Iterator[LocalPacks]:
    """The packs of a broker that granted this directory."""
    (tmp_path / LOCAL_KEY).write_text("secret")
    made = LocalPacks()
    made.grant(LocalFiles(directory=str(tmp_path), key="secret"))
    yield made
    made.close()


def test_a_directory_with_the_key_of_another_broker_is_not_local(tmp_path: Path) -> None:
    (tmp_path / LOCAL_KEY).write_text("another")

    for directory in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NotLocal, match="cannot be read as the broker's directory"):
            LocalPacks().grant(LocalFiles(directory=str(directory), key="secret"))


def test_a_restarted_broker_grants_its_directory_again(packs: LocalPacks, tmp_path: Path) -> None:
    """Files of the former grant are closed, and a failed grant leaves no file open."""
    (tmp_path / "segment").write_bytes(b"x")
    packs.read(FileRange(str(tmp_path / "segment"), 0, 1))
    assert descriptors(f"{tmp_path}/")
    again = tmp_path / "again"
    again.mkdir()
    (again / LOCAL_KEY).write_text("another")
    (again / "segment").write_bytes(b"y")
    for _ in range(2):
        packs.grant(LocalFiles(directory=str(again), key="another"))
        assert packs.read(FileRange(str(again / "segment"), 0, 1)).to_pybytes() == b"y"
    with pytest.raises(NotLocal):
        packs.read(FileRange(str(tmp_path / "segment"), 0, 1))
    with pytest.raises(NotLocal):
        packs.grant(LocalFiles(directory=str(again), key="a third"))
    with pytest.raises(NotLocal, match="granted no directory"):
        packs.read(FileRange(str(again / "segment"), 0, 1))
    assert not descriptors(f"{tmp_path}/")


def test_without_a_grant_no_place_is_local(tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(b"x")

    with pytest.raises(NotLocal):
        LocalPacks().read(FileRange(str(tmp_path / "segment"), 0, 1))


def test_files_outside_of_the_granted_directory_are_not_opened(packs: LocalPacks, tmp_path: Path) -> None:
    outside = tmp_path.with_name(f"{tmp_path.name}-outside")
    outside.write_bytes(b"of the user")

    for name in (outside, tmp_path / ".." / outside.name):
        with pytest.raises(NotLocal):
            packs.read(FileRange(str(name), 0, 1))


def test_the_octets_of_a_place_are_read(packs: LocalPacks, tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(bytes(range(100)))

    found = packs.read(FileRange(str(tmp_path / "segment"), 10, 20))

    assert found.to_pybytes() == bytes(range(10, 30))


def test_a_removed_file_stays_readable_while_open(packs: LocalPacks, tmp_path: Path) -> None:
    """Retention removes names; an open file keeps its octets."""
    path = tmp_path / "segment"
    path.write_bytes(bytes(range(100)))
    packs.read(FileRange(str(path), 0, 10))
    path.unlink()

    assert packs.read(FileRange(str(path), 90, 10)).to_pybytes() == bytes(range(90, 100))


def test_a_missing_or_too_short_file_is_not_local(packs: LocalPacks, tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(bytes(100))

    with pytest.raises(NotLocal):
        packs.read(FileRange(str(tmp_path / "missing"), 0, 1))
    with pytest.raises(NotLocal):
        packs.read(FileRange(str(tmp_path / "segment"), 95, 10))


def test_octets_that_were_read_outlive_their_file(packs: LocalPacks, tmp_path: Path) -> None:
    """The file is cut later: an access to a mapping of it would end the process by SIGBUS."""
    path = tmp_path / "segment"
    path.write_bytes(b"x" * 10_000)
    found = packs.read(FileRange(str(path), 5_000, 5_000))
    os.truncate(path, 0)

    assert found.to_pybytes() == b"x" * 5_000
    with pytest.raises(NotLocal):
        packs.read(FileRange(str(path), 5_000, 10))


def test_a_place_larger_than_any_pack_is_refused_without_allocation(packs: LocalPacks) -> None:
    with pytest.raises(Malformed):
        packs.read(FileRange("/dev/zero", 0, MAX_PACK + PACK_OVERHEAD + 1))


def test_open_files_are_bounded(packs: LocalPacks, tmp_path: Path) -> None:
    for number in range(10):
        path = tmp_path / f"{number}"
        path.write_bytes(b"x")
        packs.read(FileRange(str(path), 0, 1))

    assert len(descriptors(f"{tmp_path}/")) == LOCAL_FILES
    packs.close()
    assert not descriptors(str(tmp_path))
