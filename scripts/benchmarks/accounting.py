"""What processes cost: processor time and memory.

By psutil, with two exceptions that it does not have and that need /proc, so Linux: the nanoseconds of single threads,
and memory without the pages of files.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.measure import NotMeasured

PROC = Path("/proc")
PLANNER = "python_streaming_source_runner"
"""In the command line of the Python worker of the driver that plans a stream."""

SAMPLE_S = 0.25
"""The interval of memory samples: short enough for tasks of a second, long enough not to be a load itself."""


@dataclass(frozen=True)
class Memory:
    """Octets of a process: `anonymous` is its own, `mapped` are pages of files that the system may take back."""

    anonymous: int = 0
    mapped: int = 0

    def __add__(self, other: Memory) -> Memory:
        return Memory(self.anonymous + other.anonymous, self.mapped + other.mapped)


def tree(root: int) -> set[int]:
    """`root` and all its descendants."""
    return {root} | {process.pid for process in psutil.Process(root).children(recursive=True)}


def cpu(pids: Iterable[int]) -> float:
    """Processor seconds of the processes, including their ended children."""
    return sum(own(pid) + ended(pid) for pid in pids)


def own(pid: int) -> float:
    """Processor seconds of a process without its children; 0 if the process has ended."""
    with suppress(psutil.NoSuchProcess):
        used = psutil.Process(pid).cpu_times()
        return float(used.user + used.system)
    return 0.0


def ended(pid: int) -> float:
    """Processor seconds of a process's ended children; 0 if the process has ended."""
    with suppress(psutil.NoSuchProcess):
        used = psutil.Process(pid).cpu_times()
        return float(used.children_user + used.children_system)
    return 0.0


def waiting() -> dict[str, float]:
    """The idle seconds of all processors together; and, where the system reports it, the busy seconds of all disks
    together.
    """
    processors = psutil.cpu_times()
    found = {"processors: nothing to do": float(processors.idle + getattr(processors, "iowait", 0.0))}
    disks = psutil.disk_io_counters()
    if hasattr(disks, "busy_time"):
        found["disks: at work"] = disks.busy_time / 1000
    return found


def exact(pids: Iterable[int], named: str = "") -> float:
    """Processor seconds, to the nanosecond, of the present threads whose names begin with one of the given prefixes.
    NotMeasured where the system does not record them.
    """
    if not (PROC / "self/schedstat").exists():
        raise NotMeasured(
            "the processor time of single threads cannot be measured here: no /proc/self/schedstat"
        )
    used = 0
    for task in (task for pid in pids for task in _entries(PROC / str(pid) / "task")):
        fields = _text(task / "schedstat").split()
        if fields and _text(task / "comm").startswith(named):
            used += int(fields[0])
    return used / 1e9


def command(pid: int) -> str:
    """The command line, which tells processes apart; empty if the process has ended."""
    with suppress(psutil.NoSuchProcess):
        return " ".join(psutil.Process(pid).cmdline())
    return ""


def memory(pid: int) -> Memory:
    """The present memory of a process; zero if the process has ended. Memory that forked processes share is counted in
    parts.
    """
    sizes = {}
    for line in _text(PROC / str(pid) / "smaps_rollup").splitlines():
        name, _, value = line.partition(":")
        if name in {"Pss_Anon", "Pss_File", "Pss_Shmem"}:
            sizes[name] = int(value.split()[0]) << 10
    return Memory(sizes.get("Pss_Anon", 0) + sizes.get("Pss_Shmem", 0), sizes.get("Pss_File", 0))


def descriptors(pid: int) -> int:
    """The open descriptors of a process; 0 if it has ended."""
    return len(_entries(PROC / str(pid) / "fd"))


@dataclass
class Peak:
    """The peak of the broker's memory, of that of all Python workers of Spark together, and of the descriptors and the
    processor time of the one that plans a stream.
    """

    broker: Memory = field(default_factory=Memory)
    workers: Memory = field(default_factory=Memory)
    planner_descriptors: int = 0
    planner_s: float = 0.0

    @property
    def facts(self) -> dict[str, float]:
        """In MB and seconds."""
        return {
            "broker MB": self.broker.anonymous / 1e6,
            "broker mapped MB": self.broker.mapped / 1e6,
            "workers MB": self.workers.anonymous / 1e6,
            "descriptors of the planner": self.planner_descriptors,
            "planner s": self.planner_s,
        }


@contextmanager
def watched(broker: int, driver: int | None = None) -> Iterator[Peak]:
    """Sample the memory of a broker, and of the Python workers below `driver`, until the end of the block."""
    peak, done = Peak(), threading.Event()

    def sample() -> None:
        peak.broker = _larger(peak.broker, memory(broker))
        if driver is not None:
            workers = Memory()
            for pid in tree(driver) - {driver}:
                if "pyspark" in command(pid) and "java" not in command(pid).split(" ")[0]:
                    workers += memory(pid)
                if PLANNER in command(pid):
                    peak.planner_descriptors = max(peak.planner_descriptors, descriptors(pid))
                    peak.planner_s = max(peak.planner_s, own(pid))
            peak.workers = _larger(peak.workers, workers)

    def watch() -> None:
        while not done.wait(SAMPLE_S):
            sample()

    thread = threading.Thread(target=watch, name="memory", daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
        sample()


def _larger(first: Memory, other: Memory) -> Memory:
    return Memory(max(first.anonymous, other.anonymous), max(first.mapped, other.mapped))


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
