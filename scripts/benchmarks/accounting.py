"""What processes cost, from /proc: processor time and memory, for each process and each of its threads. Linux only."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import NotMeasured

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
SAMPLE_S = 0.25
"""How often memory is looked at: often enough for tasks of a second, rarely enough not to be the load."""


@dataclass(frozen=True)
class Memory:
    """Octets of a process: `anonymous` is its own, `mapped` are pages of files that the system may take back."""

    anonymous: int = 0
    mapped: int = 0

    def __add__(self, other: Memory) -> Memory:
        return Memory(self.anonymous + other.anonymous, self.mapped + other.mapped)


def required() -> None:
    """NotMeasured where processes cannot be looked at."""
    if not (PROC / "self/task").exists():
        raise NotMeasured("processes cannot be looked at here: there is no /proc")


def tree(root: int) -> set[int]:
    """`root` and every process that descends from it."""
    parents = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            fields = _stat(entry / "stat")
            if fields:
                parents[int(entry.name)] = int(fields[1])
    found, grown = {root}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return found


def cpu(pids: Iterable[int]) -> float:
    """Seconds of processor time that the processes have used, children that ended and were waited for included."""
    return (
        sum(sum(map(int, fields[11:15])) for pid in pids if (fields := _stat(PROC / str(pid) / "stat")))
        / TICKS
    )


def waiting(place: Path) -> dict[str, float]:
    """Seconds, of all processors together, in which nobody wanted them; and in which the disk of `place` was at work,
    where the system says so.
    """
    idle = [int(ticks) / TICKS for ticks in _text(PROC / "stat").partition("\n")[0].split()[4:6]]
    found = {"processors: nothing to do": sum(idle)}
    device = place.stat().st_dev
    fields = _text(Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")).split()
    if fields:
        found["disk: at work"] = int(fields[9]) / 1000
    return found


def exact(pids: Iterable[int], named: str = "") -> float:
    """Seconds of processor time, to the nanosecond, that the threads that are there now have used: those whose names
    begin as said. NotMeasured where the system does not keep such accounts.
    """
    used = 0
    for task in (task for pid in pids for task in _entries(PROC / str(pid) / "task")):
        fields = _text(task / "schedstat").split()
        if not fields and (task / "stat").exists():
            raise NotMeasured("the processor time of single threads cannot be looked at here")
        if fields and _text(task / "comm").startswith(named):
            used += int(fields[0])
    return used / 1e9


def threads(pid: int) -> dict[int, tuple[str, float]]:
    """Name and processor seconds of each thread of a process."""
    found = {}
    for task in _entries(PROC / str(pid) / "task"):
        fields = _stat(task / "stat")
        if fields:
            found[int(task.name)] = (_text(task / "comm").strip(), sum(map(int, fields[11:13])) / TICKS)
    return found


def command(pid: int) -> str:
    """The command line, for telling processes apart."""
    return _text(PROC / str(pid) / "cmdline").replace("\0", " ")


def memory(pid: int) -> Memory:
    """What a process has in memory now; nothing when it is gone. What forked processes share is counted in parts."""
    sizes = {}
    for line in _text(PROC / str(pid) / "smaps_rollup").splitlines():
        name, _, value = line.partition(":")
        if name in {"Pss_Anon", "Pss_File", "Pss_Shmem"}:
            sizes[name] = int(value.split()[0]) << 10
    return Memory(sizes.get("Pss_Anon", 0) + sizes.get("Pss_Shmem", 0), sizes.get("Pss_File", 0))


@dataclass
class Peak:
    """The most that was seen: of `broker`, and of the Python workers of Spark, all together."""

    broker: Memory = field(default_factory=Memory)
    workers: Memory = field(default_factory=Memory)

    @property
    def facts(self) -> dict[str, float]:
        """In MB."""
        return {
            "broker MB": self.broker.anonymous / 1e6,
            "broker mapped MB": self.broker.mapped / 1e6,
            "workers MB": self.workers.anonymous / 1e6,
        }


@contextmanager
def watched(broker: int, driver: int | None = None) -> Iterator[Peak]:
    """Look at the memory of a broker, and of the Python workers below `driver`, until the end of the block."""
    peak, done = Peak(), threading.Event()

    def look() -> None:
        peak.broker = _larger(peak.broker, memory(broker))
        if driver is not None:
            workers = Memory()
            for pid in tree(driver) - {driver}:
                if "pyspark" in command(pid) and "java" not in command(pid).split(" ")[0]:
                    workers += memory(pid)
            peak.workers = _larger(peak.workers, workers)

    def watch() -> None:
        while not done.wait(SAMPLE_S):
            look()

    thread = threading.Thread(target=watch, name="memory", daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
        look()


def _larger(one: Memory, other: Memory) -> Memory:
    return Memory(max(one.anonymous, other.anonymous), max(one.mapped, other.mapped))


def _stat(path: Path) -> list[str]:
    """The fields after the name, from the state on; none when the process is gone."""
    return _text(path).rpartition(")")[2].split()


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except (OSError, ValueError):
        return ""


def _entries(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError:
        return []
