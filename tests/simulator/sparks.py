"""Applications that write as Spark does: a driver with a checkpoint, tasks that fill stages, one commit per version.

The checkpoint outlives the driver: it has the current version before its tasks start, and marks it as done after the
answer to its commit. After a crash in between, the next driver runs that version again with its own tasks, and commits
it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mtl.client.control import Call, Outcome
from mtl.client.writer_part import WriterOptions
from mtl.errors import Refused
from mtl.wire import control
from tests.simulator.model import Model, Tag, Violation
from tests.simulator.network import Routers
from tests.simulator.process import Process, is_of_the_disk
from tests.simulator.world import World
from tests.simulator.writers import Outlet


class Task:
    """One attempt of a task: fills a stage, flushes, seals it; may die, or finish without being used."""

    def __init__(
        self,
        spark: SparkApp,
        label: str,
        count: int,
        done: Callable[[Task], None],
        failed: Callable[[], None],
    ) -> None:
        self.stage = ""
        self.version = spark.version
        self._spark = spark
        self._world = spark.world
        self._process = spark.process
        self._label = label
        self._left = count
        self._number = 0
        self._packed = spark.world.chance(0.5)
        self._done = done
        self._failed = failed
        self._contents: dict[str, list[Tag]] = {}
        self._sealing = False
        self.over = False
        spec = control.StageSpec(application=spark.name, version=spark.version)
        options = WriterOptions(tuple(spark.resources), None, self._packed, spec, 1_000, 1 << 20, None, True)
        self._outlet = Outlet(spark.process, spark.model, options)
        self._process.after(0.0, self._work)

    def _work(self) -> None:
        error = self._outlet.part.error
        if self.over or self._sealing:
            return
        if error is not None:
            self._fail(error)
            return
        if self._outlet.stopped:
            self.abandon()
            self._failed()
            return
        if self._outlet.ready and self._left:
            self._publish()
        if self._outlet.ready and not (self._left or self._outlet.pending or self._sealing):
            self._seal()
            return
        self._process.after(self._world.between(0.001, 0.05), self._work)

    def _publish(self) -> None:
        world = self._world
        for _ in range(1 + world.upto(3)):
            count = min(self._left, 1 + (world.upto(5) if self._packed else 0))
            if not count:
                return
            resource = world.random.choice(self._spark.resources)
            tags = [f"{self._label}.{self._number + n}" for n in range(1, count + 1)]
            if not self._outlet.publish(resource, tags, packed=self._packed):
                return
            for n, tag in enumerate(tags, self._number + 1):
                self._spark.model.publish(tag, resource, self._label, n)
            self._number += count
            self._left -= count
            self._contents.setdefault(resource, []).extend(tags)

    def _seal(self) -> None:
        self._sealing = True
        part = self._outlet.part
        assert part.lease is not None
        assert part.lease.stage is not None
        self.stage = part.lease.stage
        self._process.unwatch(self._outlet.observe)
        part.close(self._sealed, within=None)
        self._process.wake()

    def _fail(self, error: object) -> None:
        if not is_of_the_disk(error):
            raise Violation(f"task {self._label} failed: {error!r}")
        self.over = True
        self._failed()

    def _sealed(self, outcome: Outcome) -> None:
        if self.over:
            return  # given up meanwhile
        self.over = True
        counts = {resource: len(tags) for resource, tags in self._contents.items()}
        if isinstance(outcome, control.LeaseClosed) and outcome.stage is not None:
            if outcome.stage.contents != counts:
                raise Violation(f"{self._label} was sealed with {outcome.stage.contents}, not {counts}")
        elif not (isinstance(outcome, Refused) and outcome.reason == control.UNKNOWN_LEASE):
            self._fail(outcome)
            return
        # A lost lease (after a restart of the broker) leaves a stage whose contents are all confirmed, which suffices.
        self._spark.model.seal(self.stage, self._contents)
        self._done(self)

    def abandon(self) -> None:
        """The attempt is not used: its stage is aborted, or left."""
        if not self.over:
            self.over = True
            self._process.unwatch(self._outlet.observe)
            self._outlet.part.abandon(lambda _: None, within=1.0)


class SparkApp:
    """See the module."""

    def __init__(
        self,
        world: World,
        routers: Routers,
        model: Model,
        name: str,
        resources: Sequence[str],
        *,
        replaces: bool = False,
        pause_s: float = 0.5,
    ) -> None:
        self.world = world
        self.model = model
        self.name = name
        self.resources = list(resources)
        self.replaces = replaces
        """Whether each version replaces the one before, in resources that only this application writes."""
        self.version = 0
        self.pause_s = pause_s
        self.stopped = False
        self.busy = False
        self._routers = routers
        self._attempts = 0
        self._done_version = -1
        self._begin()

    @property
    def settled(self) -> bool:
        """Whether no work is pending."""
        return not self.busy

    def kill(self) -> None:
        """Kill the driver with its tasks; the next one reads the checkpoint."""
        self.process.kill()
        self._begin()

    # --- a driver's life ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.process = Process(self.world, self._routers, self.name)
        self._channel = self.process.channel()
        self._slots: list[list[Task]] = []
        self._sealed: list[Task | None] = []
        # The checkpoint may lack the last commit: then that version is repeated.
        if self.busy or (self.version and self.world.chance(0.3)):
            self.busy = True
            self.process.after(0.05, self._run_version)
        else:
            self.process.after(0.05, self._next_version)

    def _next_version(self) -> None:
        if not self.stopped:
            self.version += 1
            self.busy = True
            self._run_version()

    def _run_version(self) -> None:
        count = self.world.upto(3)
        self._slots = [[] for _ in range(count)]
        self._sealed = [None] * count
        for slot in range(count):
            self._attempt(slot)
        if not count:
            self._commit()

    def _attempt(self, slot: int) -> None:
        """Start an attempt at a partition; sometimes it is abandoned, sometimes another one competes."""
        world = self.world
        self._attempts += 1
        label = f"{self.name}/{self.version}/{slot}/{self._attempts}"
        again, version = world.between(0.1, 1.0), self.version
        task = Task(
            self,
            label,
            world.upto(12),
            lambda done: self._task_done(slot, done),
            lambda: self.process.after(again, lambda: self._attempt_again(slot, version)),
        )
        self._slots[slot].append(task)
        if world.chance(0.1):
            self.process.after(world.between(0.01, 0.5), lambda: self._fail(slot, task))
        elif world.chance(0.1):
            self._attempt(slot)

    def _attempt_again(self, slot: int, version: int) -> None:
        if version == self.version and self._slots and self._sealed[slot] is None:
            self._attempt(slot)

    def _fail(self, slot: int, task: Task) -> None:
        if not task.over:
            task.abandon()
            self._attempt(slot)

    def _task_done(self, slot: int, task: Task) -> None:
        if slot >= len(self._slots) or task not in self._slots[slot] or self._sealed[slot] is not None:
            return  # of a driver that was killed, or a rival was faster: this stage is never named
        self._sealed[slot] = task
        for rival in self._slots[slot]:
            rival.abandon()
        if all(self._sealed):
            self._commit()

    # --- committing -----------------------------------------------------------------------------------------

    def _commit(self) -> None:
        stages = [task.stage for task in self._sealed if task is not None]
        version = self.version
        request = control.StageCommit(
            application=self.name,
            version=version,
            stages=stages,
            query=f"query of {self.name}",
            truncate=self.resources if self.replaces else [],
            digest={"contents": f"{self.name}/{version}"},
        )

        def answered(outcome: Outcome) -> None:
            if isinstance(outcome, control.Committed):
                if outcome.digest != request.digest:
                    raise Violation(f"{self.name} {version} has the digest {outcome.digest}")
                self._committed(version, outcome)
            elif isinstance(outcome, Refused) and outcome.reason == control.STORAGE:
                self.world.note("commit-again", lambda: str(outcome))
                self.process.after(self.world.between(0.1, 2.0), ask)
            else:
                raise Violation(f"{self.name} cannot commit {version}: {outcome!r}")

        def ask() -> None:
            self.model.ask_commit(self.name, version, stages)
            self._channel.submit(Call(request, answered))

        ask()

    def _committed(self, version: int, outcome: control.Committed) -> None:
        self.world.note("committed", lambda: f"{self.name} {version} already={outcome.already}")
        first = {name: published.first for name, published in outcome.resources.items()}
        self.model.tell_commit(self.name, version, first)
        if self.world.chance(0.1):  # a late abort has no effect
            stages = [task.stage for task in self._sealed if task is not None]
            self._channel.submit(Call(control.StageAbort(stages=stages), lambda _: None))
        self.busy = False
        self.process.after(self.world.between(self.pause_s / 50, self.pause_s), self._next_version)
