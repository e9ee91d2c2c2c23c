from __future__ import annotations

from pathlib import Path

from benchmarks.segments import portions

from mtl.log.chunk import NewChunk
from mtl.log.files import RealDisk
from mtl.log.log import create_log, open_log


def test_portions_are_those_of_the_broker(tmp_path: Path) -> None:
    disk = RealDisk()
    place = tmp_path / "log"
    create_log(disk, str(place), now_us=1)
    _, writer, _ = open_log(disk, str(place), now_us=1)
    bodies = [b"a" * 100, b"b" * 200, b"c" * 300]
    writer.append([NewChunk(1, bodies[0])], 2)
    writer.append([NewChunk(2, bodies[1]), NewChunk(1, bodies[2])], 3)
    writer.close()
    (found,) = portions(place)
    data = Path(found.path).read_bytes()
    assert [data[start:end] for start, end in found.bodies] == bodies
    assert len(found.groups) == 2
    assert found.groups[0][1] == found.groups[1][0]
