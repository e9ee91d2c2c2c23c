"""The format on the disk, byte for byte: stored files stay readable, and are written in the same way.

When this fails after a change of the format, the format's version has to change with it, and these files stay.
To make the files of a new version: python -m tests.unit.mtl.log.test_golden
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from mtl.log.change import LogOptions
from mtl.log.chunk import NewChunk, RunEntry
from mtl.log.files import RealDisk
from mtl.log.log import open_log
from mtl.log.manifest import VERSION
from mtl.log.verify import verify_log
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import LOG, LogUnderTest, Stored, read_all

GOLDEN = Path(__file__).parents[3] / "golden" / "log" / f"v{VERSION}"

HOUR_US = 3_600_000_000
BODIES = [
    Stored(1, 3, b"three contents of two writers"),
    Stored(4, 1, b""),
    Stored(5, 2, bytes(range(256))),
    Stored(7, 4, b"staged"),
    Stored(11, 1, b"after the stage"),
    Stored(12, 2, b"after the clock was set back"),
]
TIMES = [9 * HOUR_US + 1000] * 2 + [
    9 * HOUR_US + 2000,
    5 * HOUR_US + 1000,
    5 * HOUR_US + 2000,
    HOUR_US + 1000,
]


class Counting(FaultyDisk):
    """Predictable octets in the place of random ones."""

    def __init__(self) -> None:
        super().__init__(random.Random(1))
        self._count = 0

    def entropy(self, size: int) -> bytes:
        self._count += 1
        return bytes([0x50 + self._count]) * size


def written() -> dict[str, bytes]:
    """Today's files of the golden log: two sealed segments, an adopted one, and the newest, closed. The clock is set
    back twice: before a commit, and before contents.
    """
    log = LogUnderTest(Counting(), LogOptions(segment_bytes=1 << 20))
    bodies = [chunk.body for chunk in BODIES]
    log.now = 9 * HOUR_US
    log.append(NewChunk(3, bodies[0], (RunEntry(1, 1, 2), RunEntry(2**63, 7, 1))), NewChunk(1, bodies[1]))
    log.append(NewChunk(2, bodies[2], (RunEntry(1, 3, 2),)))
    log.now = 5 * HOUR_US
    log.commit([[NewChunk(4, bodies[3])]], adopt=True)
    log.append(NewChunk(1, bodies[4]))
    log.now = HOUR_US
    log.append(NewChunk(2, bodies[5], (RunEntry(5, 1, 1),)))
    log.close()
    return {name: log.disk.content(f"{LOG}/{name}") for name in log.disk.list_dir(LOG)}


def test_files_are_written_as_in_the_golden_log() -> None:
    assert written() == {path.name: path.read_bytes() for path in GOLDEN.iterdir()}


def test_golden_files_are_read(tmp_path: Path) -> None:
    directory = str(shutil.copytree(GOLDEN, tmp_path / "log"))
    assert not [problem for report in verify_log(RealDisk(), directory) for problem in report.problems]
    reader, writer, report = open_log(RealDisk(), directory, now_us=0, earliest=1)
    assert read_all(reader) == BODIES
    snapshot = reader.snapshot()
    assert [ref.time_us for chunk in BODIES if (ref := snapshot.find(chunk.base)) is not None] == TIMES
    assert snapshot.at_time(HOUR_US + 1001, 2 * HOUR_US) is None
    assert writer.last_numbers == {1: 4, 2**63: 7, 5: 1}
    assert (report.segments, report.cut_bytes, report.rebuilt, report.removed) == (4, 0, (), ())
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
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name, data in written().items():
        (GOLDEN / name).write_bytes(data)
