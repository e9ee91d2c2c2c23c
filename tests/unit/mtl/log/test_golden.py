"""The format on the disk, byte for byte: stored files stay readable, and are written in the same way.

When this fails after a change of the format, the format's version has to change with it, and these files stay.
To make the files of a new version: python -m tests.unit.mtl.log.test_golden
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mtl.errors import Damaged
from mtl.log.change import LogOptions
from mtl.log.chunk import NewChunk, RunEntry
from mtl.log.files import RealDisk
from mtl.log.log import open_log, rebuild_manifest
from mtl.log.verify import verify_log
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import LOG, LogUnderTest, Stored, read_all

LOGS = Path(__file__).parents[3] / "golden" / "log"
SET_BACK = LOGS / "v4"
GOLDEN = LOGS / "v3"
BEFORE_SALTS = LOGS / "v2"
BEFORE_MANIFESTS = LOGS / "v1"

BODIES = [
    Stored(1, 3, b"three contents of two writers"),
    Stored(4, 1, b""),
    Stored(5, 2, bytes(range(256))),
    Stored(7, 4, b"staged"),
    Stored(11, 1, b"after the stage"),
    Stored(12, 2, b"the end"),
]
TIMES = [1_002_000, 1_002_000, 1_003_000, 1_004_000, 1_005_000, 1_006_000]


class Counting(FaultyDisk):
    """Predictable octets in the place of random ones."""

    def __init__(self) -> None:
        super().__init__(random.Random(1))
        self._count = 0

    def entropy(self, size: int) -> bytes:
        self._count += 1
        return bytes([0x50 + self._count]) * size


def written() -> dict[str, bytes]:
    """Today's files of the golden log: a sealed segment, an adopted one, and the newest, closed."""
    log = LogUnderTest(Counting(), LogOptions(segment_bytes=1 << 20))
    bodies = [chunk.body for chunk in BODIES]
    log.append(NewChunk(3, bodies[0], (RunEntry(1, 1, 2), RunEntry(2**63, 7, 1))), NewChunk(1, bodies[1]))
    log.mark()
    log.append(NewChunk(2, bodies[2], (RunEntry(1, 3, 2),)))
    log.commit([[NewChunk(4, bodies[3])]], adopt=True)
    log.append(NewChunk(1, bodies[4]))
    log.append(NewChunk(2, bodies[5], (RunEntry(5, 1, 1),)))
    log.close()
    return {name: log.disk.content(f"{LOG}/{name}") for name in log.disk.list_dir(LOG)}


def set_back() -> dict[str, bytes]:
    """Today's files of a log whose clock was set back twice: before contents, and before a commit."""
    log = LogUnderTest(Counting(), LogOptions(segment_bytes=1 << 20))
    for hours, body in ((9, b"ahead"), (5, b"less ahead")):
        log.now = hours * 3_600_000_000
        log.append(NewChunk(1, body))
    log.now = 3_600_000_000
    log.commit([[NewChunk(2, b"staged")]], adopt=True)
    log.close()
    return {name: log.disk.content(f"{LOG}/{name}") for name in log.disk.list_dir(LOG)}


@pytest.mark.parametrize(("golden", "write"), [(GOLDEN, written), (SET_BACK, set_back)])
def test_files_are_written_as_in_the_golden_log(golden: Path, write: Callable[[], dict[str, bytes]]) -> None:
    assert write() == {path.name: path.read_bytes() for path in golden.iterdir()}


def test_a_golden_log_with_setbacks_is_read(tmp_path: Path) -> None:
    directory = str(shutil.copytree(SET_BACK, tmp_path / "log"))
    reader, writer, _ = open_log(RealDisk(), directory, now_us=0)
    snapshot = reader.snapshot()
    times = [ref.time_us for at in (1, 2, 3) if (ref := snapshot.find(at)) is not None]
    assert times == [32_400_001_000, 18_000_001_000, 3_600_001_000]
    assert [info.newest_time for info in reader.segments()][:1] == [None]
    found = snapshot.at_time(3_600_001_001, 3_600_002_000)
    assert found is None
    writer.close()
    reader.close()


def test_a_log_of_format_1_gets_a_manifest(tmp_path: Path) -> None:
    """Format 1 of a log's directory is format 2 without the manifest."""
    directory = str(shutil.copytree(BEFORE_MANIFESTS, tmp_path / "log"))
    disk = RealDisk()
    with pytest.raises(Damaged, match="the file is missing"):
        open_log(disk, directory, now_us=0, earliest=1)
    assert rebuild_manifest(disk, directory, b"whose it is", 1)
    assert not rebuild_manifest(disk, directory, b"another's", 1)
    assert not [problem for report in verify_log(disk, directory) for problem in report.problems]
    reader, writer, _ = open_log(disk, directory, now_us=0)
    assert read_all(reader) == BODIES
    writer.close()
    reader.close()


@pytest.mark.parametrize("golden", [GOLDEN, BEFORE_SALTS])
def test_golden_files_are_read(golden: Path, tmp_path: Path) -> None:
    """The manifest of format 2 does not have the newest segment's salt; opening the log adds it."""
    directory = str(shutil.copytree(golden, tmp_path / "log"))
    assert not [problem for report in verify_log(RealDisk(), directory) for problem in report.problems]
    reader, writer, report = open_log(RealDisk(), directory, now_us=0, earliest=1)
    assert read_all(reader) == BODIES
    assert [
        ref.time_us for chunk in BODIES if (ref := reader.snapshot().find(chunk.base)) is not None
    ] == TIMES
    assert writer.last_numbers == {1: 4, 2**63: 7, 5: 1}
    assert (report.segments, report.cut_bytes, report.rebuilt, report.removed) == (3, 0, (), ())
    writer.close()
    assert {path.name: path.read_bytes() for path in (tmp_path / "log").iterdir()} == written()
    reader.close()


@pytest.mark.parametrize("kind", ["segment", "index"])
def test_golden_files_have_magic_and_version(kind: str) -> None:
    magic = {"segment": b"MTLSEGMT", "index": b"MTLINDEX"}[kind]
    files = [path.read_bytes() for path in GOLDEN.glob(f"*.{kind}")]
    assert files
    assert all(data[:12] == magic + (1).to_bytes(4, "little") for data in files)


if __name__ == "__main__":
    for golden, write in ((GOLDEN, written), (SET_BACK, set_back)):
        golden.mkdir(parents=True, exist_ok=True)
        for name, data in write().items():
            (golden / name).write_bytes(data)
