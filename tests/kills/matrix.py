"""The matrix: every process of a query is killed at every step of a trigger. Data; how one is done is at the end."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum

from tests.kills.application import kill
from tests.kills.bench import Bench, Query
from tests.kills.holds import await_
from tests.kills.wire import FROM_BROKER, TO_BROKER

BATCH = 1
"""The batch of the kill: there is one before it and one after it."""

GATE = f"trigger-{BATCH}"


class Victim(Enum):
    """The killed process."""

    DRIVER = "driver"
    READER = "reader process"
    WORKERS = "executor workers"
    BROKER = "broker"
    COMMITTER = "sink process"


@dataclass(frozen=True)
class Moment:
    """A step of the trigger. `hold` is where it waits for the kill (stepped.py). With `wire` it continues from there,
    and its request (or the broker's answer) is stopped in flight.
    """

    step: str
    when: str
    hold: str
    wire: int | None = None

    @property
    def name(self) -> str:
        return f"{self.when} {self.step}"


MOMENTS = (
    Moment("offsets logged", "before", "planned"),
    Moment("offsets logged", "after", "logged"),
    Moment("progress confirmed", "before", "confirming"),
    Moment("progress confirmed", "after", "confirmed"),
    Moment("lease opened", "before", "leasing"),
    Moment("lease opened", "after", "leased"),
    Moment("half the rows read", "before", "reading"),
    Moment("half the rows read", "after", "half-read"),
    Moment("staged", "before", "staging"),
    Moment("staged", "after", "sent"),
    Moment("stage confirmed", "before", "flushed"),
    Moment("stage confirmed", "after", "sealed"),
    Moment("Stage.Commit sent", "before", "committing"),
    Moment("Stage.Commit sent", "after", "committing", TO_BROKER),
    Moment("Stage.Commit answered", "before", "committing", FROM_BROKER),
    Moment("Stage.Commit answered", "after", "committed"),
    Moment("commit log written", "before", "done"),
    Moment("commit log written", "after", f"trigger-{BATCH + 1}"),
)

COMMITTING = {"committing", "committed", "done"}
"""Steps in the process in which Spark calls the sink's commit; it lives only for that call."""


@dataclass(frozen=True)
class Kill:
    """One cell of the matrix."""

    victim: Victim
    moment: Moment

    @property
    def name(self) -> str:
        return f"{self.victim.value} {self.moment.name}"

    def play(self, bench: Bench, label: str) -> str:
        """Kill, recover, and check the result; returns a description."""
        query = bench.query(label)
        reader = query.start_until(GATE)
        bench.holds.arm(self.moment.hold)
        bench.holds.let_go(GATE)
        held = query.reached(self.moment.hold)
        with ExitStack() as stopped:
            if self.moment.wire is not None:
                stopped.enter_context(bench.wire.stopped(self.moment.wire))
                bench.holds.release()
                await_(lambda: self._on_its_way(bench, query), "no Stage.Commit on the wire")
            self._strike(bench, query, reader, held)
        bench.holds.release()
        if self.victim is Victim.BROKER:
            bench.broker.start()
        query.recover(killed=self.victim is Victim.DRIVER)
        query.judge()
        assert query.replays == 1 or not self._must_be_known, (
            "the broker did not know the batch that it had published"
        )
        return outcome(query)

    @property
    def _must_be_known(self) -> bool:
        """Whether a published batch is requested again: by Spark, or by the sink whose answer was lost."""
        if self.victim is Victim.BROKER:
            return self.moment.wire == FROM_BROKER
        published = self.moment.wire == FROM_BROKER or self.moment.hold in {"committed", "done"}
        return published and self.victim in {Victim.DRIVER, Victim.COMMITTER}

    def _on_its_way(self, bench: Bench, query: Query) -> bool:
        if self.moment.wire == TO_BROKER:
            return bench.wire.waiting(b"Stage.Commit")
        return query.committed == BATCH

    def _strike(self, bench: Bench, query: Query, reader: int, held: int) -> None:
        if self.victim is Victim.DRIVER:
            query.application.kill()
        elif self.victim is Victim.READER:
            kill(reader)
        elif self.victim is Victim.COMMITTER:
            kill(held)
        elif self.victim is Victim.WORKERS:
            for pid in query.application.workers():
                kill(pid)
        else:
            bench.broker.kill()
            bench.wire.cut()  # octets in flight are lost with it


def outcome(query: Query) -> str:
    """A description of the end of a query."""
    remarks = ["went on" if query.starts == 1 else "started again"]
    if query.starts > 2:
        remarks[0] += f" {query.starts - 1} times"
    if query.replays:
        remarks.append("the broker knew the batch")
    if query.stages:
        remarks.append(f"{len(query.stages)} stages left to expire")
    if not query.confirmed:
        remarks.append("its group confirms with the next run")
    return ", ".join(remarks)


def _kills() -> list[Kill]:
    """Every process at every step; the sink's process while it exists."""
    return [
        Kill(victim, moment)
        for victim in Victim
        for moment in MOMENTS
        if victim is not Victim.COMMITTER or moment.hold in COMMITTING
    ]


KILLS = _kills()

LIGHT = (
    "reader process after offsets logged",
    "executor workers after half the rows read",
    "broker after stage confirmed",
    "broker before Stage.Commit answered",
    "sink process before commit log written",
    "driver after Stage.Commit answered",
)
"""The cells in the test suite: each process once, at its hardest step."""
