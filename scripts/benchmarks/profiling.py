"""Profiles a workload: processor seconds of each group of processes, and a flame graph by py-spy of all Python
processes with their threads.

The share of a row is of the wall clock: on a machine with two cores the shares, including idle time, add up to 200 %.
The row of the disks is separate: the time that they were busy, for any process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import product
from pathlib import Path

from benchmarks import accounting, sparks
from benchmarks.bench import Bench
from benchmarks.measure import Sample
from benchmarks.roles import together
from benchmarks.workloads import packed
from benchmarks.workloads.drain import SIZES, backlog, generated, mtl_source, rows_of
from benchmarks.workloads.write import MANY, spread
from benchmarks.workloads.write import rows_of as rows_to_write

RATE = 97
"""Samples per second of py-spy: a prime number, so that they do not coincide with a periodic task."""

LEAST_SHARE = 0.01
"""The share of the wall clock below which a row is left out of the table."""

Work = Callable[[], Sample]


def main(bench: Bench, names: Sequence[str], out: Path) -> int:
    """The table, on the console and in profile.md; and profile-WORKLOAD-OCTETS.svg, the flame graphs."""
    out.mkdir(parents=True, exist_ok=True)
    text = ["| workload | seconds | processes | s | of the wall clock |", "|---|---|---|---|---|"]
    for name, octets in product(names or PROFILES, SIZES):
        title, graph = f"{name}, {octets} B", out / f"profile-{name}-{octets}.svg"
        print(f"-- {title}", flush=True)
        with PROFILES[name](bench, octets) as work:
            work()  # warm
            took, spent = _spent(bench, work)
            print(_flame_graph(work, graph), flush=True)
        for group, seconds in sorted(spent.items(), key=lambda item: -item[1]):
            if seconds >= LEAST_SHARE * took:
                text.append(f"| {title} | {took:.2f} | {group} | {seconds:.2f} | {seconds / took:.0%} |")
    table = "\n".join(text) + "\n"
    print(table)
    (out / "profile.md").write_text(table)
    return 0


# --- processor time, by process -----------------------------------------------------------------------------


def _spent(bench: Bench, work: Work) -> tuple[float, dict[str, float]]:
    """Wall seconds of one run, and the seconds of each group of processes meanwhile."""
    before = _used(bench)
    began = time.perf_counter()
    work()
    took = time.perf_counter() - began
    return took, {group: seconds - before[group] for group, seconds in _used(bench).items()}


def _used(bench: Bench) -> defaultdict[str, float]:
    """Seconds so far. Clients are processes of the workload that end before it does."""
    here = os.getpid()
    used = defaultdict(float, accounting.waiting())
    used["this program"] = accounting.own(here)
    used["clients"] = accounting.ended(here)
    for pid in accounting.tree(here) - {here}:
        if pid == bench.broker.pid:
            used["broker"] += accounting.cpu([pid])
        elif Path(accounting.command(pid).partition(" ")[0]).name == "java":
            used["Spark's JVM"] += accounting.own(pid)
            used["Spark's Python processes"] += accounting.ended(pid)
        else:
            used["Spark's Python processes"] += accounting.cpu([pid])
    return used


# --- functions, by py-spy -----------------------------------------------------------------------------------


def _flame_graph(work: Work, path: Path) -> str:
    """Run once more and write a picture for a browser: each process, below it its threads, below them the functions
    that held the interpreter.

    Returns the name of the file, or the reason why there is none: some systems let only root inspect processes.
    """
    # --gil: py-spy counts threads that wait for a lock or a queue as busy, but knows which one holds the interpreter.
    options = ["--subprocesses", "--threads", "--gil", "--rate", str(RATE), "--pid", str(os.getpid())]
    command = [str(Path(sys.executable).with_name("py-spy")), "record", *options, "--output", str(path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as spy:
        work()
        spy.send_signal(signal.SIGINT)
        _, errors = spy.communicate()
    return f"py-spy made no flame graph: {errors.strip()}" if spy.returncode else str(path)


# --- the workloads ------------------------------------------------------------------------------------------


@contextmanager
def _drain(bench: Bench, octets: int) -> Iterator[Work]:
    rows = rows_of(bench, octets)
    with backlog(bench, rows, octets) as names:
        frame = bench.spark.read.format("mtl").options(**mtl_source(bench, names)).load()
        yield lambda: _sample(rows, lambda: sparks.drain(frame))


@contextmanager
def _drain_stream(bench: Bench, octets: int) -> Iterator[Work]:
    with backlog(bench, rows_of(bench, octets), octets) as names:
        frame = bench.spark.readStream.format("mtl").options(**mtl_source(bench, names)).load()
        yield partial(sparks.run_now, frame, bench.place, "noop")


@contextmanager
def _write(bench: Bench, octets: int, places: int = 1) -> Iterator[Work]:
    rows = rows_to_write(bench, octets)
    with bench.resources(places) as names:
        frame = spread(generated(bench, rows, octets), "resource", "body", names)
        writer = frame.write.format("mtl").options(endpoint=bench.endpoint).mode("append")
        yield lambda: _sample(rows, writer.save)


@contextmanager
def _copy(bench: Bench, octets: int) -> Iterator[Work]:
    with backlog(bench, rows_to_write(bench, octets), octets) as names, bench.resources() as targets:
        source = (
            bench.spark.readStream.format("mtl").options(**mtl_source(bench, names)).load().select("body")
        )
        options = {"endpoint": bench.endpoint, "resource": targets[0]}
        yield lambda: sparks.run_now(source, bench.place, "mtl", **options)


@contextmanager
def _plain(bench: Bench, octets: int) -> Iterator[Work]:
    yield partial(_clients, bench, octets, bench.plan.amount(short=200_000, full=1_000_000), 0)


@contextmanager
def _packed(bench: Bench, octets: int) -> Iterator[Work]:
    rows = packed.SIZES[octets]
    count = bench.plan.amount(short=400_000_000, full=2_000_000_000) // octets // rows * rows
    yield partial(_clients, bench, octets, max(rows, count), rows)


def _clients(bench: Bench, octets: int, count: int, rows: int) -> Sample:
    with bench.resources() as names:
        to = {"endpoint": bench.endpoint}
        reading = ("read", {**to, "resource": names[0], "count": count, "packed": bool(rows)})
        publishing = {**to, "resources": names, "octets": octets, "count": count, "rows": rows}
        read, published = together(reading, ("publish", publishing))
    return Sample(count / (read["ended"] - published["began"]))


def _sample(rows: int, work: Callable[[], object]) -> Sample:
    began = time.perf_counter()
    work()
    return Sample(rows / (time.perf_counter() - began))


PROFILES: dict[str, Callable[[Bench, int], AbstractContextManager[Work]]] = {
    "drain-batch": _drain,
    "drain-stream": _drain_stream,
    "write-one": _write,
    "write-eight": partial(_write, places=MANY),
    "copy": _copy,
    "plain": _plain,
    "packed": _packed,
}
"""Without peers: their profiles do not show where our time goes."""
