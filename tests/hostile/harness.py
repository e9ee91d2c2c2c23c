"""Execution of a scenario: a broker process, a concurrent bystander that has to be served, and the measured cost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtl.testing import RunningBroker, broker
from tests.support.processes import killed_after

ROOT = Path(__file__).parents[2]
MIB = 1 << 20

PATIENCE_S = 3.0
"""The longest allowed delay of one answer to a bystander, on a busy machine."""


@dataclass(frozen=True)
class Scenario:
    """`play(broker, heavy)` attacks, checks its own results, and returns a short description. `memory` is the allowed
    growth of the broker in MiB; `config` has lines of the broker's configuration. Without `writes` the bystander only
    sends requests.
    """

    name: str
    play: Callable[[RunningBroker, bool], str]
    memory: int
    config: str
    writes: bool = True


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    *, memory: int = 64, config: str = "", writes: bool = True
) -> Callable[[Callable[[RunningBroker, bool], str]], Callable[[RunningBroker, bool], str]]:
    """Register a function under its name."""

    def register(play: Callable[[RunningBroker, bool], str]) -> Callable[[RunningBroker, bool], str]:
        name = play.__name__
        SCENARIOS[name] = Scenario(name.replace("_", " "), play, memory, config, writes)
        return play

    return register


@dataclass(frozen=True)
class Measured:
    """One row: description and seconds, the broker's private memory before and at most (MiB), its largest number of
    open files, the number of answers to the bystander and the longest delay of one in ms.
    """

    name: str
    done: str
    seconds: float
    before: float
    most: float
    files: int
    answers: int
    slowest: float


class Watch:
    """Samples the broker's process every few milliseconds."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.memory: list[float] = [own_memory(pid)]
        self.files: list[int] = [open_files(pid)]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._over.wait(0.02):
            self.memory.append(own_memory(self._pid))
            self.files.append(open_files(self._pid))

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


def own_memory(pid: int) -> float:
    """Private MiB of this process, without mapped files, which the system can reclaim."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) / 1024 for line in status if line.startswith("RssAnon"))


def open_files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


@contextmanager
def bystander(endpoint: str, *, writes: bool) -> Iterator[dict[str, Any]]:
    """A well-behaved client in a separate process, so that the attack does not slow it. Its results are in the yielded
    dict after the block.
    """
    results: dict[str, Any] = {}
    with killed_after(
        subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.bystander", endpoint, *(() if writes else ("asks",))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "served\n", "the bystander was never served"
        try:
            yield results
            report, _ = process.communicate("stop\n", timeout=30)
            results |= json.loads(report)
        finally:
            process.kill()


def measure(scenario: Scenario, place: Path, *, heavy: bool) -> Measured:
    """Run a scenario with its own broker and check it. Raises AssertionError for a violated bound."""
    place.mkdir(parents=True, exist_ok=True)
    config = place / "broker.toml"
    config.write_text(scenario.config, encoding="utf-8")
    with (
        broker(place / "data", config) as running,
        bystander(running.endpoint, writes=scenario.writes) as results,
    ):
        watch, began = Watch(running.pid), time.perf_counter()
        try:
            done = scenario.play(running, heavy)
        finally:
            seconds = time.perf_counter() - began
            watch.stop()
    row = Measured(
        scenario.name,
        done,
        seconds,
        watch.memory[0],
        max(watch.memory),
        max(watch.files),
        results["answers"],
        results["slowest"] * 1000,
    )
    assert results["answers"] > 0, row
    assert results["slowest"] < PATIENCE_S, row
    assert row.most - row.before < scenario.memory, row
    return row
