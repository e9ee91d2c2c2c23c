"""Execution of a scenario: a broker process with users, another user that has to be served during the attack and after
it, and the measured cost.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mtl.broker.runtime.users import Users, new_password
from mtl.net.curve import read_public, write_keys
from mtl.storage.records import GrantRecord
from mtl.testing import RunningBroker, broker
from tests.hostile.bystander import Phase
from tests.support.processes import killed_after

ROOT = Path(__file__).parents[2]
MIB = 1 << 20

PATIENCE_S = 3.0
"""The longest allowed delay of one answer to the other user, on a busy machine."""

LITTLE: Final = 64
"""The allowed growth of the broker's memory in MiB, unless a scenario needs more."""

PASSWORD: Final = "a password of every user"
ITERATIONS: Final = 4096
"""Those of SCRAM: the smallest allowed number, so that log-ins are fast."""

OTHER: Final = "other"
OTHERS_GRANTS: Final = tuple(f"{right} other[.].*" for right in ("read", "write", "manage"))
"""The user that has to be served, and its grants; shared names that begin with its own need none."""

Play = Callable[[RunningBroker, bool], Iterator[str]]


@dataclass(frozen=True)
class Scenario:
    """`play(broker, heavy)` attacks and checks its own results. It yields a short description once, while its peers
    still have all that they took; then it ends them. `memory` is the allowed growth of the broker in MiB; `config` has
    lines of the broker's configuration; `users` are the names and grants of users that exist from the beginning, with
    PASSWORD. Without `writes` the other user only reads and sends requests. With `curve` the broker has a key, which
    is in `curve.pub` beside its data.
    """

    name: str
    play: Play
    memory: int
    config: str
    users: Mapping[str, tuple[str, ...]]
    writes: bool
    curve: bool

    @property
    def shares(self) -> bool:
        """Whether it can use the broker of other scenarios: it has the default configuration, and needs little memory,
        so that the bound of its memory means something there.
        """
        return not self.config and self.memory == LITTLE and self.writes and not self.curve


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    *,
    memory: int = LITTLE,
    config: str = "",
    users: Mapping[str, tuple[str, ...]] | None = None,
    writes: bool = True,
    curve: bool = False,
) -> Callable[[Play], Play]:
    """Register a function under its name."""

    def register(play: Play) -> Play:
        name = play.__name__
        SCENARIOS[name] = Scenario(name, play, memory, config, users or {}, writes, curve)
        return play

    return register


def add_user(data: Path, name: str, *grants: str) -> None:
    """Add a user with PASSWORD and these grants, such as "read a.*"; a running broker finds it within a second."""
    with Users(data) as users:
        users.add(name, new_password(PASSWORD, os.urandom, ITERATIONS), [])
        users.grant(name, [GrantRecord("/", *grant.split(" ", 1)) for grant in grants])


@dataclass(frozen=True)
class Measured:
    """One row: description and seconds; the broker's private memory in MiB before, at most and after; its largest
    number of open files; and how the other user was served during the attack and after it.
    """

    name: str
    done: str
    seconds: float
    before: float
    most: float
    left: float
    files: int
    during: Phase
    after: Phase


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


class Bystander:
    """The other user, in a process of its own, so that the attack does not slow it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def phase(self) -> Phase:
        """Let it use everything once; how it was served since the last call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("report\n")
        self._process.stdin.flush()
        return Phase(**json.loads(self._process.stdout.readline()))


@contextmanager
def bystander(endpoint: str, *options: str) -> Iterator[Bystander]:
    """The other user, who is served. It needs OTHERS_GRANTS."""
    with killed_after(
        subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.bystander", endpoint, OTHER, PASSWORD, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "served\n", "the other user was never served"
        yield Bystander(process)


@dataclass(frozen=True)
class Arena:
    """A broker with users, and the other user."""

    broker: RunningBroker
    other: Bystander


@contextmanager
def arena(place: Path, *scenarios: Scenario) -> Iterator[Arena]:
    """A broker for scenarios of one configuration, with the users of them all."""
    place.mkdir(parents=True, exist_ok=True)
    config = place / "broker.toml"
    first = scenarios[0]
    options = [] if first.writes else ["--asks"]
    text = first.config
    if first.curve:
        private, public = write_keys(place / "curve")
        text += f'[curve]\nkey-file = "{private}"\n'
        options += ["--server", read_public(str(public)).decode()]
    config.write_text(text, encoding="utf-8")
    add_user(place / "data", OTHER, *OTHERS_GRANTS)
    for name, grants in {n: g for scenario in scenarios for n, g in scenario.users.items()}.items():
        add_user(place / "data", name, *grants)
    with (
        broker(place / "data", config) as running,
        bystander(running.endpoint, *options) as other,
    ):
        yield Arena(running, other)


def measure(scenario: Scenario, arena: Arena, *, heavy: bool) -> Measured:
    """Run a scenario and check it. Raises AssertionError for a violated bound."""
    running, other = arena.broker, arena.other
    other.phase()  # what was before does not count
    watch, began = Watch(running.pid), time.perf_counter()
    try:
        with contextmanager(scenario.play)(running, heavy) as done:
            during = other.phase()
            seconds = time.perf_counter() - began
        after = other.phase()
        left = own_memory(running.pid)
    finally:
        watch.stop()
    row = Measured(
        scenario.name,
        done,
        seconds,
        watch.memory[0],
        max(watch.memory),
        left,
        max(watch.files),
        during,
        after,
    )
    for phase in (during, after):
        assert phase.answers > 0, row
        assert phase.failures == 0, row
        assert phase.slowest < PATIENCE_S, row
    assert row.most - row.before < scenario.memory, row
    return row
