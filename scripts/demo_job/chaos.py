"""The kills and their outcomes. Their moments are defined by progress, never by the clock: a clock would kill the
query of a fast machine after its end and that of a slow one before its beginning.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from demo_job.processes import Failed, Spark
from demo_job.progress import Checkpoint
from mtl.client.connection import Connection
from mtl.testing import RunningBroker


class Moment(Enum):
    """A moment within a micro-batch. The value is its description for people."""

    READING = "while batch {batch} was being read"
    WRITING = "while the windows of batch {batch} were being written"
    ANSWERED = "between the broker's answer to Stage.Commit of batch {batch} and Spark's commit log"
    AMIDST = "in the middle of batch {batch}"


BROKER, QUERY = "broker", "query"

BLOWS: tuple[tuple[Moment, tuple[str, ...]], ...] = (
    (Moment.READING, (BROKER,)),
    (Moment.WRITING, (BROKER,)),
    (Moment.ANSWERED, (QUERY,)),
    (Moment.AMIDST, (QUERY,)),
    (Moment.ANSWERED, (QUERY, BROKER)),
)
"""Each kill is in a later batch than the one before, and only after that one is survived."""

LEAST_BATCHES = len(BLOWS) + 2
"""The first batch closes no window, and after the last one nothing can fail."""

LONGEST_JITTER_S = 0.3
"""The usual duration of a batch in seconds."""


@dataclass(frozen=True)
class Blow:
    """Kill `victims` at `moment` of the first batch from `batch` on that reaches it, `jitter` seconds later."""

    moment: Moment
    victims: tuple[str, ...]
    batch: int
    jitter: float = 0.0


def plan(batches: int, seed: int) -> list[Blow]:
    """All of BLOWS, distributed at random over a query of so many batches."""
    if batches < LEAST_BATCHES:
        raise ValueError(f"{batches} batches are too few for {len(BLOWS)} blows; it takes {LEAST_BATCHES}")
    chance = random.Random(seed)
    chosen = sorted(chance.sample(range(1, batches - 1), len(BLOWS)))
    blows = []
    for batch, (moment, victims) in zip(chosen, BLOWS, strict=True):
        waits = moment in {Moment.READING, Moment.AMIDST}  # the other two would be over
        blows.append(Blow(moment, victims, batch, chance.uniform(0, LONGEST_JITTER_S) if waits else 0.0))
    return blows


@dataclass(frozen=True)
class Sight:
    """The state of a query as seen from outside: the newest batch in Spark's offset log and in its commit log, the
    batch whose commit the broker answered last, and the batches that have stages in the broker.
    """

    planned: int = -1
    committed: int = -1
    answered: int = -1
    staged: Collection[int] = ()


def struck(blow: Blow, sight: Sight) -> int | None:
    """The batch that is now at the blow's moment; None if there is none."""
    batch = sight.planned
    if batch < blow.batch or batch <= sight.committed:
        return None
    now = {
        Moment.READING: sight.answered < batch and batch not in sight.staged,
        Moment.WRITING: sight.answered < batch and batch in sight.staged,
        Moment.ANSWERED: sight.answered == batch,
        Moment.AMIDST: sight.answered < batch,
    }[blow.moment]
    return batch if now else None


class Hook:
    """The other end of the sink in `held`: it reads the published batch, and makes the sink wait."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hold = path.with_name(f"{path.name}.hold")

    @property
    def answered(self) -> int:
        """The batch whose commit the broker answered last."""
        return int(self.path.read_text(encoding="utf-8")) if self.path.exists() else -1

    def hold(self) -> None:
        """Make the sink wait after the next answer."""
        self._hold.touch()

    def release(self) -> None:
        """Let the sink continue."""
        self._hold.unlink(missing_ok=True)


@dataclass
class Event:
    """One kill, and its outcome."""

    victims: str
    moment: str
    progress: str
    done: int
    """Progress in contents: those sent during publishing, later those in committed batches."""
    outcome: str = ""


@dataclass(frozen=True)
class Scene:
    """Everything that can be observed and killed; `contents` are in the feed, `limit` of them in a batch."""

    query: Spark
    broker: RunningBroker
    connection: Connection
    checkpoint: Checkpoint
    hook: Hook
    contents: int
    limit: int

    @property
    def replays(self) -> int:
        """The number of repeated commits of the query that the broker has recognised."""
        applications = self.connection.stages(application=self.checkpoint.query).applications
        return sum(application.replays for application in applications)

    def observe(self, moment: Moment) -> Sight:
        """The present state. Stages are included only if the moment depends on them, since that needs a request."""
        planned, committed = self.checkpoint.planned, self.checkpoint.committed
        staged: set[int] = set()
        if moment in {Moment.READING, Moment.WRITING} and planned > committed:
            staged = {
                stage.version for stage in self.connection.stages(application=self.checkpoint.query).stages
            }
        return Sight(planned, committed, self.hook.answered, staged)


@dataclass
class _Wound:
    """A kill whose survival is not known yet."""

    blow: Blow
    batch: int
    event: Event
    replays: int
    since: float
    restarts: int = 0


class Chaos:
    """Carries out the kills, one after the other, while a query runs. `print_line` prints a line."""

    def __init__(self, scene: Scene, blows: list[Blow], print_line: Callable[[str], None]) -> None:
        self.events: list[Event] = []
        self._scene = scene
        self._blows = blows
        self._print_line = print_line
        self._wound: _Wound | None = None

    def step(self) -> None:
        """One check: kill if it is time, or find out whether the last kill is survived."""
        if self._wound is not None:
            self._heal(self._wound)
        elif self._blows:
            self._try(self._blows[0])

    def ended(self, code: int) -> None:
        """The query ended by itself with this exit code. It is restarted once per kill; otherwise Failed."""
        wound = self._wound
        if wound is None or wound.restarts:
            raise Failed(f"the query failed with exit code {code}:\n{self._scene.query.tail()}")
        wound.restarts += 1
        self._scene.query.start()

    def finish(self) -> None:
        """The query is done. Failed if a kill is missing, or no replay was recognised."""
        self.step()
        if self._blows or self._wound is not None:
            raise Failed(f"the query ended too early: {len(self._blows)} kills are missing")
        if not self._scene.replays:
            raise Failed(
                "the broker recognised no repeated commit, although the query was killed before it knew"
            )

    def _try(self, blow: Blow) -> None:
        scene = self._scene
        if blow.moment is Moment.ANSWERED and scene.checkpoint.committed >= blow.batch - 1:
            scene.hook.hold()
        batch = struck(blow, scene.observe(blow.moment))
        if batch is None:
            return
        if blow.jitter and scene.query.wait(blow.jitter) is not None:
            return
        if struck(blow, scene.observe(blow.moment)) == batch:
            self._strike(blow, batch)
        else:  # over already: sooner, in the next batch
            self._blows[0] = replace(blow, batch=batch + 1, jitter=blow.jitter / 4)

    def _strike(self, blow: Blow, batch: int) -> None:
        scene = self._scene
        replays = scene.replays
        if QUERY in blow.victims:
            scene.query.kill()
        if BROKER in blow.victims:
            scene.broker.kill()
        since = time.monotonic()
        if scene.checkpoint.committed < batch:
            self._wound = self._record(blow, batch, replays, since)
            self._blows.pop(0)
        scene.hook.release()
        if BROKER in blow.victims:
            scene.broker.start()
        if QUERY in blow.victims:
            scene.query.start()

    def _record(self, blow: Blow, batch: int, replays: int, since: float) -> _Wound:
        done = min(batch * self._scene.limit, self._scene.contents)
        event = Event(
            " and ".join(blow.victims),
            blow.moment.value.format(batch=batch),
            f"{done:,} of {self._scene.contents:,} contents done",
            done,
        )
        self.events.append(event)
        self._print_line(f"killed the {event.victims} {event.moment} ({event.progress})")
        return _Wound(blow, batch, event, replays, since)

    def _heal(self, wound: _Wound) -> None:
        if self._scene.checkpoint.committed < wound.batch:
            return
        took = f"batch {wound.batch} done {time.monotonic() - wound.since:.1f} s later"
        if QUERY not in wound.blow.victims:
            how = (
                "the query failed and was started again" if wound.restarts else "the query waited and went on"
            )
        elif wound.blow.moment is not Moment.ANSWERED:
            how = "started again, it did the batch again"
        elif self._scene.replays > wound.replays:
            how = "started again, it committed again, which the broker knew: nothing was published twice"
        else:
            how = "started again, but the broker did NOT recognise the repeated commit"
        wound.event.outcome = f"{how}; {took}"
        self._print_line(f"  {wound.event.outcome}")
        self._wound = None


class Interruption:
    """Kills the broker once, when so many contents of the feed are sent: some of them are not confirmed yet."""

    def __init__(
        self, broker: RunningBroker, at: int, contents: int, print_line: Callable[[str], None]
    ) -> None:
        self._broker = broker
        self._at: int | None = at
        self._contents = contents
        self._print_line = print_line
        self.event: Event | None = None

    def moved(self, sent: int, confirmed: int) -> None:
        """So many contents are sent and confirmed now."""
        if self._at is None or sent < self._at:
            return
        self._at = None
        self._broker.kill()
        self._broker.start()
        progress = f"{sent:,} of {self._contents:,} contents sent, {confirmed:,} confirmed"
        self.event = Event(BROKER, "while the flights were being published", progress, sent)
        self._print_line(f"killed the {BROKER} {self.event.moment} ({progress})")

    def survived(self) -> Event:
        """Everything is published."""
        if self.event is None:
            raise Failed("the flights were published before the broker could be killed")
        self.event.outcome = "the writer reconnected and sent unconfirmed contents again"
        self._print_line(f"  {self.event.outcome}")
        return self.event
