"""A broker names files; only regular files of its directory are opened."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtl.client.granted_directory import GrantedDirectory
from mtl.wire.control import LOCAL_KEY, LocalFiles
from tests.support.descriptors import descriptors


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The broker's directory with a segment; a file of the user is beside it."""
    directory = tmp_path / "data"
    (directory / "logs").mkdir(parents=True)
    (directory / LOCAL_KEY).write_text("secret")
    (directory / "logs" / "segment").write_bytes(b"contents")
    (tmp_path / "private").write_bytes(b"of the user")
    return directory


@pytest.fixture
def granted(directory: Path) -> Iterator[GrantedDirectory]:
    opened = GrantedDirectory(LocalFiles(directory=str(directory), key="secret"))
    yield opened
    opened.close()
    assert not descriptors(str(directory))


def test_a_regular_file_below_the_directory_is_opened(granted: GrantedDirectory, directory: Path) -> None:
    fd = granted.open(str(directory / "logs" / "segment"))
    assert os.read(fd, 100) == b"contents"
    os.close(fd)


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "{parent}/private",
        "{directory}/../private",
        "{directory}/logs/../logs/segment",
        "{directory}//logs/segment",
        "{directory}/./logs/segment",
        "{directory}/",
        "{directory}",
        "{directory}x/segment",
        "{directory}/logs",
        "{directory}/missing",
        "{directory}/logs/segment/more",
        "{directory}/logs/seg\0ment",
        "logs/segment",
        "",
    ],
)
def test_names_outside_of_the_directory_are_not_opened(
    granted: GrantedDirectory, directory: Path, name: str
) -> None:
    before = descriptors(str(directory.parent))
    with pytest.raises(OSError, match=r"not |Not |No such"):
        granted.open(name.format(directory=directory, parent=directory.parent))
    assert descriptors(str(directory.parent)) == before


def test_symbolic_links_are_not_followed_in_any_component(granted: GrantedDirectory, directory: Path) -> None:
    (directory / "link").symlink_to(directory.parent / "private")
    (directory / "inside").symlink_to(directory / "logs" / "segment")
    (directory / "out").symlink_to(directory.parent)
    (directory / "logs" / "up").symlink_to("..")
    for name in ("link", "inside", "out/private", "out/data/logs/segment", "logs/up/logs/segment"):
        with pytest.raises(OSError, match=r"symbolic|Not a directory"):
            granted.open(str(directory / name))


def test_replacing_the_directory_by_a_link_has_no_effect(granted: GrantedDirectory, directory: Path) -> None:
    (directory.parent / "logs").mkdir()
    (directory.parent / "logs" / "segment").write_bytes(b"of the user")
    directory.rename(directory.with_name("moved"))
    directory.symlink_to(directory.parent)
    fd = granted.open(f"{directory}/logs/segment")
    assert os.read(fd, 100) == b"contents"
    os.close(fd)


def test_special_files_are_refused_without_waiting(granted: GrantedDirectory, directory: Path) -> None:
    """Opening a FIFO without a writer would block for ever."""
    os.mkfifo(directory / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(directory / "socket"))
        for name in ("fifo", "socket", "logs"):
            with pytest.raises(OSError, match=r"regular|No such device"):
                granted.open(str(directory / name))


@pytest.mark.parametrize("key", ["secret\n", "secre", "", "another"])
def test_a_directory_with_another_key_is_not_granted(directory: Path, key: str) -> None:
    with pytest.raises(OSError, match="another local-key"):
        GrantedDirectory(LocalFiles(directory=str(directory), key=key))
    assert not descriptors(str(directory))


def test_a_key_that_is_not_a_regular_file_is_refused(directory: Path) -> None:
    (directory / LOCAL_KEY).unlink()
    os.mkfifo(directory / LOCAL_KEY)
    with pytest.raises(OSError, match="not a regular file"):
        GrantedDirectory(LocalFiles(directory=str(directory), key="secret"))
    (directory / LOCAL_KEY).unlink()
    (directory / LOCAL_KEY).symlink_to("/dev/zero")
    with pytest.raises(OSError, match="symbolic"):
        GrantedDirectory(LocalFiles(directory=str(directory), key="secret"))
    assert not descriptors(str(directory))


@pytest.mark.parametrize("name", ["link/data", "..", "data", "", "data/."])
def test_a_directory_that_is_not_a_plain_absolute_path_is_refused(directory: Path, name: str) -> None:
    (directory.parent / "link").symlink_to(directory.parent)
    with pytest.raises(OSError, match=r"Not a directory|plain absolute"):
        GrantedDirectory(
            LocalFiles(directory=name if name == "data" else f"{directory.parent}/{name}", key="secret")
        )
