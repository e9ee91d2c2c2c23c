"""The environment of every scenario: one broker, a proxy for it, Spark applications, and their queries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mtl
from mtl.testing import RunningBroker, broker
from tests.kills.app import Job
from tests.kills.application import Application
from tests.kills.holds import Holds
from tests.kills.wire import Wire
from tests.support.contents import texts

LIMIT = 200
"""Contents of a batch, over both resources."""

BATCHES = 3
CHUNK = 25
"""Contents that the broker stores together, so that a task reads several packs and can be stopped between two."""

RUNS = 4
"""The largest number of starts of a query; one with more does not recover."""


@dataclass
class Bench:
    """`connection` leads to the broker directly, Spark's own through `wire`."""

    place: Path
    broker: RunningBroker
    connection: mtl.Connection
    wire: Wire
    holds: Holds
    _applications: dict[str, Application] = field(default_factory=dict)

    def application(self, master: str = "local[2]") -> Application:
        """A running application; a killed one is replaced."""
        found = self._applications.get(master)
        if found is None or not found.running:
            found = self._applications[master] = Application(self.place, master, self.holds.directory)
        return found

    def query(self, name: str, **job: Any) -> Query:
        """A query over two new resources, which have the contents of three batches."""
        made = Query(self, name, job)
        for resource in made.resources:
            self.connection.create_resource(resource)
            self.connection.create_resource(f"{resource}-copy")
            made.publish(resource, LIMIT * BATCHES // 2)
        return made

    def tidy(self) -> None:
        """Restore the bench after a failed scenario: no process is held, no application runs, the broker does."""
        self.holds.release()
        self.end()
        if not self.broker.running:
            self.broker.start()

    def end(self) -> None:
        for application in self._applications.values():
            if application.running:
                application.kill()


class Query:
    """One streaming query from its first start to its end, in any number of runs."""

    def __init__(self, bench: Bench, name: str, job: dict[str, Any]) -> None:
        self.bench = bench
        self.name = name
        self.resources = [f"{name}-a", f"{name}-b"]
        self.checkpoint = bench.place / "checkpoints" / name
        self.master = job.pop("master", "local[2]")
        self.published: dict[str, list[str]] = {resource: [] for resource in self.resources}
        self._skipped = dict.fromkeys(self.resources, 0)
        self.job: Job = {
            "kind": job.pop("kind", "copy"),
            "endpoint": bench.wire.endpoint,
            "checkpoint": str(self.checkpoint),
            "read": {
                "resources": ",".join(self.resources),
                "group": name,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(LIMIT),
                **job.pop("read", {}),
            },
            "write": job.pop("write", {}),
        }
        assert not job, job
        self.errors: list[str] = []
        self.starts = 0

    # --- its source -----------------------------------------------------------------------------------------

    def publish(self, resource: str, count: int) -> None:
        """More contents, in chunks."""
        known = self.published[resource]
        bodies = [f"{resource} {number}" for number in range(len(known) + 1, len(known) + count + 1)]
        known += bodies
        with self.bench.connection.writer(resource, packed=True) as writer:
            for number, body in enumerate(bodies, 1):
                writer.send(body.encode())
                if not number % CHUNK:
                    writer.flush()

    def skip(self, resource: str) -> None:
        """Skip contents that exist already."""
        self._skipped[resource] = len(self.published[resource])

    # --- its runs -------------------------------------------------------------------------------------------

    @property
    def application(self) -> Application:
        return self.bench.application(self.master)

    def start(self) -> None:
        """Let the application run the query to its end."""
        self.starts += 1
        assert self.starts <= RUNS, f"started {RUNS} times, and still not at its end: {self.errors}"
        self.application.begin(self.job)

    def start_until(self, hold: str) -> int:
        """Start the query; returns the process that `hold` stops, soon after the start."""
        self.bench.holds.arm(hold)
        self.start()
        return self.reached(hold)

    def reached(self, hold: str) -> int:
        """The process that `hold` stops."""
        return self.bench.holds.reached(hold, self.application.over)

    def end(self) -> str | None:
        """The error that ended this run; None if the query completed."""
        error = self.application.result()
        if error is not None:
            self.errors.append(error)
        return error

    def run(self) -> str | None:
        self.start()
        return self.end()

    def recover(self, *, killed: bool) -> None:
        """Run to the end like a supervisor: restart each ended process."""
        if killed:
            self.start()
        while self.end() is not None:
            self.start()

    # --- state ----------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The query's id, the same after every restart."""
        found: str = json.loads((self.checkpoint / "metadata").read_text(encoding="utf-8"))["id"]
        return found

    @property
    def committed(self) -> int:
        """The last batch published by the broker; -1 for none."""
        return max(
            (application.version for application in self.bench.connection.stages(self.id).applications),
            default=-1,
        )

    @property
    def replays(self) -> int:
        """Commits that the broker recognised as repeated."""
        return sum(application.replays for application in self.bench.connection.stages(self.id).applications)

    @property
    def stages(self) -> set[str]:
        """Uncommitted stages; after the end of the query they remain until they expire."""
        return {stage.stage for stage in self.bench.connection.stages(self.id).stages}

    def contents(self, target: str) -> list[str]:
        """Every visible content of a resource, in order."""
        return texts(self.bench.connection, target)

    def judge(self, *, suffix: str = "copy", ordered: bool = True) -> None:
        """Check that every content exists once, in order, and that the group's position is not ahead of the query."""
        for resource, published in self.published.items():
            bodies = published[self._skipped[resource] :]
            found = self.contents(f"{resource}-{suffix}")
            twice, lost = len(found) - len(set(found)), len(set(bodies) - set(found))
            assert sorted(found) == sorted(bodies), f"{resource}: {lost} lost, {twice} twice"
            assert not ordered or found == bodies, f"{resource}: not in order"
            assert self.position(resource) <= len(published) + 1, f"{resource}: the group is ahead"

    def position(self, resource: str) -> int:
        """The group's position: its first unconfirmed content."""
        (cursor,) = self.bench.connection.cursors(group=self.job["read"]["group"], resource=resource)
        return cursor.position

    @property
    def confirmed(self) -> bool:
        """Whether the group has confirmed all contents. The lease of a killed reader process holds the position back
        until it expires and a later confirm arrives.
        """
        return all(self.position(name) == len(bodies) + 1 for name, bodies in self.published.items())


@contextmanager
def bench(place: Path) -> Iterator[Bench]:
    """The environment, in `place`."""
    place.mkdir(parents=True, exist_ok=True)
    with (
        broker(place / "data") as running,
        mtl.connect(running.endpoint) as connection,
        Wire(int(running.endpoint.rpartition(":")[2])) as wire,
    ):
        made = Bench(place, running, connection, wire, Holds(place / "holds"))
        try:
            yield made
        finally:
            made.end()
