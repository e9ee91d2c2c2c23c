"""The files after a power cut, for a journal of known operations."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.image import Image, Survives

_OPEN, _CLOSE, _WRITE, _TRUNCATE, _SYNC, _RENAME, _LINK, _UNLINK, _MKDIR = range(1, 10)


def did(
    op: int,
    path: str = "",
    target: str = "",
    *,
    fd: int = 3,
    flags: int = 0,
    at: int = 0,
    data: bytes = b"",
    failed: int = 0,
) -> bytes:
    names = [f"/d/{name}".encode() if name else b"" for name in (path, target)]
    head = struct.pack("<IBBHHHiIqQ", 0x4C4A5243, op, failed, *map(len, names), 0, fd, flags, at, len(data))
    return head + names[0] + names[1] + data


MADE = did(_OPEN, "f", flags=1)
SYNCED_NAMES = did(_OPEN, ".", fd=4) + did(_SYNC, fd=4)


@pytest.fixture
def left(tmp_path: Path) -> Callable[..., dict[str, bytes]]:
    """The files that are left after a journal."""

    def cut(journal: bytes, survives: Survives = "none", seed: int = 0) -> dict[str, bytes]:
        before, after = tmp_path / "before", tmp_path / f"after-{seed}"
        before.mkdir(exist_ok=True)
        image = Image(before, "/d", random.Random(seed))
        image.replay(journal)
        image.write(after, survives)
        return {
            str(path.relative_to(after)): path.read_bytes() for path in after.rglob("*") if path.is_file()
        }

    return cut


Left = Callable[..., dict[str, bytes]]


def test_synced_octets_survive(left: Left) -> None:
    journal = MADE + did(_WRITE, data=b"synced") + did(_SYNC) + SYNCED_NAMES
    assert left(journal + did(_WRITE, at=6, data=b" not")) == {"f": b"synced"}


def test_an_unsynced_name_is_lost_with_its_file(left: Left) -> None:
    assert left(MADE + did(_WRITE, data=b"synced") + did(_SYNC)) == {}


def test_a_name_without_a_sync_of_its_file_is_an_empty_file(left: Left) -> None:
    assert left(MADE + did(_WRITE, data=b"not synced") + SYNCED_NAMES) == {"f": b""}


def test_after_a_kill_all_octets_exist(left: Left) -> None:
    assert left(MADE + did(_WRITE, data=b"all"), "all") == {"f": b"all"}


def test_a_truncated_record_is_ignored(left: Left) -> None:
    journal = MADE + did(_WRITE, data=b"one") + did(_WRITE, at=3, data=b"two")[:-1]
    assert left(journal, "all") == {"f": b"one"}


def test_a_rename_is_atomic(left: Left) -> None:
    made = MADE + did(_WRITE, data=b"x") + did(_SYNC) + SYNCED_NAMES
    renamed = made + did(_RENAME, "f", "g")
    assert left(renamed) == {"f": b"x"}
    assert left(renamed + SYNCED_NAMES, seed=1) == {"g": b"x"}


def test_an_unlinked_file_reappears_without_a_sync_of_its_directory(left: Left) -> None:
    made = MADE + did(_WRITE, data=b"x") + did(_SYNC) + SYNCED_NAMES
    assert left(made + did(_UNLINK, "f")) == {"f": b"x"}
    assert left(made + did(_UNLINK, "f") + SYNCED_NAMES, seed=1) == {}


def test_pages_of_an_unsynced_write_survive_independently(left: Left) -> None:
    pages = b"".join(bytes([n]) * 4096 for n in range(1, 9))
    journal = MADE + SYNCED_NAMES + did(_WRITE, data=pages)
    found = {left(journal, "some", seed)["f"] for seed in range(40)}
    holes = [written for written in found if len(written) == len(pages) and 0 < written.count(0) < len(pages)]
    shorter = [written for written in found if 0 < len(written) < len(pages)]
    assert holes
    assert shorter
    for written in found:
        for at in range(0, len(written), 4096):
            assert written[at : at + 4096] in {pages[at : at + 4096], bytes(4096)}


def test_a_later_sync_does_not_repair_a_failed_one(left: Left) -> None:
    pages = b"x" * 4096 * 16
    journal = MADE + SYNCED_NAMES + did(_WRITE, data=pages) + did(_SYNC, failed=1) + did(_SYNC)
    assert left(journal, "none")["f"].count(0) > 0


def test_an_unsynced_truncation_is_undone(left: Left) -> None:
    journal = MADE + SYNCED_NAMES + did(_WRITE, data=b"longer") + did(_SYNC) + did(_TRUNCATE, at=2)
    assert left(journal) == {"f": b"longer"}
    assert left(journal, "all", 1) == {"f": b"lo"}
