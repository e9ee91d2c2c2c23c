"""Where the time goes: processor seconds of every process and thread while a workload of ours runs, by what they do.

The share of a row is of the wall clock: on a machine of two cores they add up to 200 %, what nobody wanted included.
The disk's row is beside that: how long it was at work, for whoever. Where py-spy is at hand (`pip install py-spy`) the
functions that the broker and Spark's workers spend their time in are listed, too.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
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

LOOK_S = 0.05
"""How often threads are looked at: what a thread that ended did after the last look is lost."""
TOP = 12
RATE = 97
"""Looks per second of py-spy; a prime number, so that it does not beat with anything."""

Work = Callable[[], Sample]
Threads = dict[tuple[int, int], tuple[str, float]]
"""By process and thread: what it does, and its processor seconds so far."""
Spent = dict[str, float]
"""Processor seconds by what a thread does; and how long processors and the disk had nothing to do, or had."""


def main(bench: Bench, names: Sequence[str], out: Path) -> int:
    """The table, on the console and in profile.md and profile.json."""
    accounting.required()
    found: dict[str, dict[str, object]] = {}
    text = ["| workload | seconds | thread | s | of the wall clock |", "|---|---|---|---|---|"]
    tops: list[str] = []
    for name, octets in product(names or PROFILES, SIZES):
        title = f"{name}, {octets} B"
        print(f"-- {title}", flush=True)
        with PROFILES[name](bench, octets) as work:
            work()  # warm
            took, spent = _spent(bench, work)
            tops += [f"\n{title}, {line}" for line in _functions(bench, work)]
        found[title] = {"seconds": took, "spent": spent}
        for what, seconds in sorted(spent.items(), key=lambda item: -item[1]):
            text.append(f"| {title} | {took:.2f} | {what} | {seconds:.2f} | {seconds / took:.0%} |")
    table = "\n".join([*text, *tops]) + "\n"
    print(table)
    out.mkdir(parents=True, exist_ok=True)
    (out / "profile.md").write_text(table)
    (out / "profile.json").write_text(json.dumps(found, indent=2) + "\n")
    return 0


# --- processor time, by thread ------------------------------------------------------------------------------


def _spent(bench: Bench, work: Work) -> tuple[float, Spent]:
    """Wall seconds of one run, and the processor seconds of everybody below this process."""
    before, waiting = _threads(bench), accounting.waiting(bench.place)
    done = _watching(bench)
    began = time.perf_counter()
    work()
    took = time.perf_counter() - began
    watcher, seen = done()
    waited = accounting.waiting(bench.place)
    last = {key: what for key, what in {**seen, **_threads(bench)}.items() if key[1] != watcher}
    spent: Spent = {}
    for key, (what, seconds) in last.items():
        used = seconds - before.get(key, ("", 0.0))[1]
        if used > 0:
            spent[what] = spent.get(what, 0.0) + used
    spent |= {what: seconds - waiting[what] for what, seconds in waited.items()}
    return took, {what: seconds for what, seconds in spent.items() if seconds >= 0.01 * took}


def _watching(bench: Bench) -> Callable[[], tuple[int | None, Threads]]:
    """Look at the threads again and again, since helper processes and workers end before the workload does.

    What is returned ends it, and gives the id of the thread that looked, and what it saw.
    """
    seen: Threads = {}
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(LOOK_S):
            seen.update(_threads(bench))

    thread = threading.Thread(target=watch, name="profile", daemon=True)
    thread.start()

    def done() -> tuple[int | None, Threads]:
        stop.set()
        thread.join()
        return thread.native_id, seen

    return done


def _threads(bench: Bench) -> Threads:
    """What every thread below this process does, and its processor seconds so far."""
    broker = bench.broker.pid
    found = {}
    for pid in accounting.tree(os.getpid()):
        kind = _kind(pid, broker)
        if not kind:
            continue  # it has ended; what was seen before counts
        for thread, (name, seconds) in accounting.threads(pid).items():
            found[pid, thread] = (f"{kind}: {_part(kind, name, main=thread == pid)}", seconds)
    return found


def _kind(pid: int, broker: int) -> str:
    if pid == broker:
        return "broker"
    if pid == os.getpid():
        return "this program"
    command = accounting.command(pid)
    if not command:
        return ""
    if "benchmarks.roles" in command:
        return f"client ({command.split('benchmarks.roles ')[1].split(' ')[0]})"
    if "java" in command.split(" ")[0]:
        return "JVM"
    return next((kind for part, kind in _PYTHON if part in command), "Python for plans")


_PYTHON = (
    ("pyspark.worker", "Python of tasks"),
    ("streaming_source_runner", "Python of the source on the driver"),
    ("streaming_sink_runner", "Python of the sink on the driver"),
)
"""Spark's Python processes, by the module that they run; what is left plans queries and commits batches."""

_JVM_PARTS = (
    ("Executor task", "tasks"),
    ("GC", "garbage collector"),
    ("G1", "garbage collector"),
    ("C1 ", "compiler"),
    ("C2 ", "compiler"),
    ("stream exec", "micro-batches"),
)


def _part(kind: str, name: str, *, main: bool) -> str:
    """A thread's part, by its name where it has one: libzmq and the JVM name theirs, Python's are the rest."""
    if name.startswith("ZMQ"):
        return "ZeroMQ IO"
    if kind == "JVM":
        return next((part for start, part in _JVM_PARTS if name.startswith(start)), "other")
    if main:
        return "loop" if kind == "broker" else "main thread"
    return "commit and record threads" if kind == "broker" else "client IO and other threads"


# --- functions, by py-spy -----------------------------------------------------------------------------------


def _functions(bench: Bench, work: Work) -> Iterator[str]:
    """The functions on top of the stacks of the broker and of Spark's workers; nothing without py-spy."""
    spy = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if spy is None:
        return
    targets = {"broker": bench.broker.pid, "Spark's Python workers": bench.jvm}
    files = {what: bench.place / f"stacks-{pid}" for what, pid in targets.items()}
    running = []
    for what, pid in targets.items():
        command = [
            spy,
            "record",
            "--subprocesses",
            "--gil",
            "--format",
            "raw",
            "--rate",
            str(RATE),
            "--pid",
            str(pid),
        ]
        command += ["--output", str(files[what]), "--duration", "3600"]
        running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    work()
    for process in running:
        process.send_signal(signal.SIGINT)
        process.wait()
    for what, file in files.items():
        if file.exists():
            yield from _top(what, file.read_text())


def _top(what: str, stacks: str) -> Iterator[str]:
    """py-spy's raw format: "outer;...;inner count" lines."""
    leaves: Counter[str] = Counter()
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        leaves[stack.rpartition(";")[2]] += int(count)
    total = sum(leaves.values())
    if total:
        yield f"{what}, by the function that holds the interpreter:\n"
        for name, times in leaves.most_common(TOP):
            yield f"  {times / total:6.1%}  {name}"


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
"""Ours only: a peer's profile says nothing about where our time goes."""
