"""A log under all operations and failures, in orders chosen by seeds and step numbers."""

from __future__ import annotations

import errno
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mtl.errors import Damaged, StorageError, StorageFailed
from mtl.log.cache import ReadCache
from mtl.log.change import LogOptions
from mtl.log.chunk import STAGE_WRITER, NewChunk, RunEntry
from mtl.log.files import Disk, RealDisk
from mtl.log.log import create_log, delete_log, open_log
from mtl.log.verify import verify_log
from tests.support.faulty_disk import Crashed, FaultyDisk
from tests.support.logs import LOG, LogUnderTest, read_all

# --- making and deleting, on both disks ---------------------------------------------------------------------


def test_a_log_matches_its_model_through_all_operations(place: tuple[Disk, str]) -> None:
    disk, root = place
    directory = f"{root}/log"
    create_log(disk, directory, 5)
    create_log(disk, directory, 6)  # again is the same
    reader, writer, report = open_log(disk, directory, now_us=7)
    assert (reader.earliest, reader.next, reader.contents, reader.last_time) == (1, 1, 0, 5)
    assert (reader.snapshot().find(1), reader.snapshot().at_time(0, 0)) == (None, None)
    assert (report.segments, report.cut_bytes, report.removed) == (1, 0, ())
    reader.apply(writer.append([NewChunk(3, b"three")], 8))
    writer.close()
    with pytest.raises(Damaged, match="with contents already"):
        create_log(disk, directory, 9)
    reader, writer, _ = open_log(disk, directory, now_us=9)
    assert [stored.body for stored in read_all(reader)] == [b"three"]
    reader.apply(writer.roll(10))
    with pytest.raises(Damaged, match="a log already"):
        create_log(disk, directory, 9)
    writer.close()
    reader.close()
    assert reader.snapshot().find(1) is None
    delete_log(disk, directory)
    delete_log(disk, directory)
    assert disk.list_dir(root) == []


def test_a_log_may_start_at_any_sequence(twin: FaultyDisk) -> None:
    create_log(twin, LOG, 0, base=1000)
    reader, writer, _ = open_log(twin, LOG, now_us=0)
    assert writer.append([NewChunk(1, b"")], 0).first == reader.earliest == 1000


@pytest.mark.parametrize("op", ["make_dir", "fsync_dir", "create", "write", "sync", "rename"])
def test_a_failed_create_has_a_typed_error_and_can_be_retried(twin: FaultyDisk, op: str) -> None:
    twin.fail(op)
    with pytest.raises(StorageFailed, match="creating the log /data/log"):
        create_log(twin, LOG, 0)
    create_log(twin, LOG, 0)
    open_log(twin, LOG, now_us=0)


def test_a_disk_failure_during_open(twin: FaultyDisk) -> None:
    create_log(twin, LOG, 0)
    for op in ("open", "read", "sync", "fsync_dir"):
        twin.fail(op)
        with pytest.raises(StorageFailed, match="opening the log /data/log"):
            open_log(twin, LOG, now_us=0)
    open_log(twin, LOG, now_us=0)
    twin.fail("unlink")
    with pytest.raises(StorageFailed, match="deleting the log"):
        delete_log(twin, LOG)


def test_one_cache_serves_many_logs(twin: FaultyDisk) -> None:
    cache = ReadCache()
    readers = []
    for name in ("a", "b"):
        create_log(twin, f"/data/{name}", 0)
        reader, writer, _ = open_log(twin, f"/data/{name}", now_us=0, cache=cache)
        reader.apply(writer.append([NewChunk(1, name.encode())], 0))
        readers.append(reader)
    assert [stored.body for reader in readers for stored in read_all(reader)] == [b"a", b"b"]


WRITER = """
import sys
from mtl.log.change import LogOptions
from mtl.log.chunk import NewChunk
from mtl.log.files import RealDisk
from mtl.log.log import open_log

_, writer, _ = open_log(RealDisk(), sys.argv[1], LogOptions(segment_bytes=20_000), now_us=0)
at = 0
while True:
    at += 1
    writer.append([NewChunk(1, str(at).encode() * 50), NewChunk(2, b"")], at)
    print(at, flush=True)
"""


def test_acknowledged_contents_of_a_killed_process_are_kept(tmp_path: Path) -> None:
    disk, directory = RealDisk(), str(tmp_path / "log")
    create_log(disk, directory, 0)
    acknowledged = 0
    for lines in (1, 40, 200):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, directory], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(lines):
            process.stdout.readline()
        process.kill()
        written = lines + len(process.stdout.read().splitlines())
        process.wait()
        process.stdout.close()
        acknowledged += written
        reader, writer, _ = open_log(disk, directory, now_us=0)
        bodies = [stored.body for stored in read_all(reader)]
        writer.close()
        reader.close()
        assert acknowledged <= len(bodies) // 2 <= acknowledged + 1
        acknowledged = len(bodies) // 2
    assert not [problem for report in verify_log(disk, directory) for problem in report.problems]


# --- a power failure at every step --------------------------------------------------------------------------


def chunk(rng: random.Random, size: int, *runs: RunEntry) -> NewChunk:
    return NewChunk(sum(run.count for run in runs) or rng.randint(1, 3), rng.randbytes(size), runs)


def story(log: LogUnderTest) -> None:
    """Every writing operation, at least once."""
    rng = random.Random(7)
    log.append(chunk(rng, 100, RunEntry(1, 1, 2)), chunk(rng, 5000))
    log.append(chunk(rng, 10, RunEntry(2, 1, 1), RunEntry(1, 3, 1)))
    log.mark()
    log.append(chunk(rng, 900))
    log.commit([[chunk(rng, 800), chunk(rng, 700)], [chunk(rng, 3)]], adopt=True)
    log.append(chunk(rng, 60, RunEntry(1, 4, 9)))
    log.commit([[chunk(rng, 300)], [chunk(rng, 300), chunk(rng, 200)]], adopt=False)
    log.roll()
    log.commit([[chunk(rng, 300)]], adopt=True)
    log.commit([[chunk(rng, 300)]], adopt=True)
    log.trim(log.held[-1].base)
    log.append(chunk(rng, 100))
    log.close()
    log.open()
    log.append(chunk(rng, 100, RunEntry(3, 1, 1)))


def steps_of(run_steps: Callable[[LogUnderTest], None], options: LogOptions) -> int:
    disk = FaultyDisk(random.Random(1))
    log = LogUnderTest(disk, options)
    before = disk.steps
    run_steps(log)
    log.check()
    return disk.steps - before


@pytest.mark.parametrize("durability", ["sync", "os"])
@pytest.mark.parametrize("keep", ["some", "none"])
def test_a_power_failure_at_every_step_keeps_acknowledged_contents(durability: str, keep: str) -> None:
    options = LogOptions(segment_bytes=4000, durability=durability)  # type: ignore[arg-type]
    total = steps_of(story, options)
    assert total > 150
    for step in range(total):
        log = LogUnderTest(FaultyDisk(random.Random(step)), options)
        log.disk.crash_after(step)
        with pytest.raises(Crashed):
            story(log)
        log.crash(keep=keep)
        log.append(NewChunk(1, b"goes on"))
        log.check()
        log.crash(power=False)


def test_a_power_failure_during_recovery_keeps_acknowledged_contents() -> None:
    """Recovery is interrupted at each of its steps, after a commit interrupted at many steps."""
    options = LogOptions(segment_bytes=4000)
    total = steps_of(story, options)
    for first in range(0, total, 10):
        again = 0
        while True:
            log = LogUnderTest(FaultyDisk(random.Random(first * 1000 + again)), options)
            log.disk.crash_after(first)
            with pytest.raises(Crashed):
                story(log)
            log.disk.crash()
            log.disk.crash_after(again)
            try:
                log.open()
            except Crashed:
                log.crash()
            else:
                break
            log.check()
            again += 1


# --- anything, in any order ---------------------------------------------------------------------------------

FAILURES = (
    "write",
    "short",
    "sync",
    "truncate",
    "create",
    "open",
    "read",
    "rename",
    "link",
    "unlink",
    "fsync_dir",
    "map",
)


class Chaos:
    """Random operations on a log with random failures and stops of the disk, compared with a model."""

    def __init__(self, seed: int, durability: str) -> None:
        self.rng = random.Random(seed)
        self.disk = FaultyDisk(random.Random(seed + 1), short_writes=self.rng.choice([0.0, 0.0, 0.3]))
        size = self.rng.choice([1024, 4096, 20_000])
        self.log = LogUnderTest(self.disk, LogOptions(segment_bytes=size, durability=durability))  # type: ignore[arg-type]
        self.last: dict[int, int] = {}
        self.opening = False

    def chunk(self, *, writers: bool = True) -> NewChunk:
        rng = self.rng
        runs = []
        for _ in range(rng.choice([0, 1, 1, 3]) if writers else 0):
            writer, count = rng.randint(1, 4), rng.randint(1, 3)
            runs.append(RunEntry(writer, self.last.get(writer, 0) + 1, count))
            self.last[writer] = runs[-1].first + count - 1
        count = sum(run.count for run in runs) + rng.randint(0 if runs else 1, 3)
        return NewChunk(count, rng.randbytes(rng.choice([0, 1, 63, 64, 100, 500, 3000, 9000])), tuple(runs))

    def staged(self) -> NewChunk:
        """With a stage's own numbers, or without; they must not enter the log's table of writers."""
        chunk = self.chunk(writers=False)
        runs = (RunEntry(STAGE_WRITER, 1, chunk.count),) if self.rng.random() < 0.5 else ()
        return NewChunk(chunk.count, chunk.body, runs)

    def turn(self) -> None:
        self.arrange_trouble()
        self.opening = False
        try:
            self.act()
            if self.rng.random() < 0.3:
                self.log.check()
        except Crashed:
            self.recover()
        except StorageError as error:
            self.heal(error)
            self.disk.crash_after(None)
            if self.log.writer.stopped or self.opening or self.rng.random() < 0.3:
                self.recover()
            elif self.log.record is not None:
                self.log.apply_commit()
            self.log.check()

    def heal(self, error: StorageError) -> None:
        """No operation here changes durable octets, so no failure is damage."""
        if isinstance(error, Damaged):
            raise error
        self.disk.heal()

    def arrange_trouble(self) -> None:
        rng = self.rng
        if rng.random() < 0.1:
            self.disk.crash_after(rng.randint(0, 30))
        if rng.random() < 0.15:
            error = rng.choice([errno.EIO, errno.ENOSPC])
            self.disk.fail(rng.choice(FAILURES), nth=rng.randint(1, 6), error=error)
        if rng.random() < 0.05:
            self.disk.capacity = self.disk.used + rng.randint(0, 3000)

    def act(self) -> None:
        log, rng, kind = self.log, self.rng, self.rng.random()
        if kind < 0.5:
            log.append(*[self.chunk() for _ in range(rng.randint(1, 4))])
        elif kind < 0.6:
            log.roll()
        elif kind < 0.65:
            log.mark()
        elif kind < 0.7:
            log.sync()
        elif kind < 0.75:
            log.trim(rng.choice(list(log.reader.segments())).base)
        elif kind < 0.92:
            stages = [
                [self.chunk(writers=False) for _ in range(rng.randint(1, 4))]
                for _ in range(rng.randint(1, 3))
            ]
            log.commit(stages, adopt=rng.random() < 0.6)
        else:
            self.reopen()

    def reopen(self) -> None:
        self.opening = True  # after a failure there is no open log
        if self.rng.random() < 0.5:
            self.log.close()
            self.log.open()
        else:
            keep = self.rng.choice(["some", "some", "none", "all"])
            self.log.crash(power=self.rng.random() < 0.5, keep=keep)

    def recover(self) -> None:
        rng = self.rng
        if rng.random() < 0.7:
            self.disk.heal()
        while True:
            if rng.random() < 0.3:
                self.disk.crash_after(rng.randint(0, 20))
            try:
                self.log.crash(power=rng.random() < 0.5, keep=rng.choice(["some", "none", "all"]))
            except Crashed:
                continue
            except StorageError as error:
                self.heal(error)
            else:
                self.disk.crash_after(None)
                return


@pytest.mark.parametrize("durability", ["sync", "os"])
@pytest.mark.parametrize("seed", range(30))
def test_acknowledged_contents_survive_random_operations_and_failures(seed: int, durability: str) -> None:
    chaos = Chaos(seed, durability)
    for _ in range(60):
        chaos.turn()
    chaos.disk.heal()
    chaos.recover()
    chaos.log.check()
