"""Applications that write: they publish numbered contents through the real client, and check their settlement."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from mtl.client.writer_part import WriterOptions, WriterPart
from mtl.errors import Fenced
from mtl.wire.commands import packed_properties
from mtl.wire.fields import EMPTY, encode_table
from mtl.wire.packs import encode_pack
from tests.simulator.model import Model, Tag, Violation
from tests.simulator.network import Routers
from tests.simulator.process import Process, is_of_the_disk
from tests.simulator.world import World

_TABLE = encode_table({"kind": "simulated"})
_RESERVED_TABLE = encode_table({"mtl-mine": 1})


@dataclass(slots=True)
class Item:
    """Contents that were published as one, under the numbers first..last of their writer."""

    resource: str
    first: int
    last: int
    tags: list[Tag]
    bad: bool = False


class Outlet:
    """A WriterPart, and which of its contents were confirmed or refused. A writer or a task has one for each of its
    lives.
    """

    def __init__(self, process: Process, model: Model, options: WriterOptions) -> None:
        self.model = model
        self.part = WriterPart(process.loop, process.channel(), options)
        self.pending: deque[Item] = deque()
        self.stopped = False
        """Whether a stage refused good contents: its log was stopped by the disk, and another stage is needed."""
        self._staged = options.stage is not None
        self._world = process.world
        process.watch(self.observe)
        self.part.flow.start()
        process.wake()

    @property
    def epoch(self) -> int:
        """The epoch of the name in its last grant; 0 before the first."""
        return self.part.lease.epoch or 0 if self.part.lease is not None else 0

    @property
    def ready(self) -> bool:
        """Whether a lease was granted, so that numbers are known."""
        return self.part.lease is not None and self.part.error is None

    def publish(self, resource: str, tags: list[Tag], *, packed: bool, bad: bool = False) -> bool:
        """Publish tags as one pack, or the one tag; False when the window is full."""
        part, size = self.part, 64 * len(tags)
        if not part.writer.room(len(tags), size):
            return False
        if packed:
            tables = [_TABLE if self._world.chance(0.1) else EMPTY for _ in tags]
            body: object = encode_pack([tag.encode() for tag in tags], tables)
            table = packed_properties(len(tags) + bad)
        else:
            body = tags[0].encode()
            table = _RESERVED_TABLE if bad else _TABLE if self._world.chance(0.1) else EMPTY
        sent = part.writer.publish(resource, table, body, len(tags) + (packed and bad))  # type: ignore[arg-type]
        last = sent.sequence + len(tags) + (packed and bad) - 1
        self.pending.append(Item(resource, sent.sequence, last, tags, bad))
        if part.idle:
            part.idle = False
            part._loop.post(part.run)
        return True

    def observe(self) -> None:
        """Remove the settled contents."""
        writer = self.part.writer
        while writer.refused:
            refused = writer.refused.popleft()
            item = next((x for x in self.pending if x.last == refused.last), None)
            if item is None or not (item.bad or self._staged):
                raise Violation(f"good contents were refused: {refused}")
            self.stopped |= not item.bad
            self.model.refuse(item.tags)
            self.pending.remove(item)
        while self.pending and self.pending[0].last <= writer.confirmed:
            item = self.pending.popleft()
            if item.bad:
                raise Violation(f"{item} was confirmed, which can never be stored")
            self.model.confirm(item.tags)


class WriterApp:
    """Writes to its resources under a name that lasts, in a process that may be killed and started again."""

    def __init__(
        self,
        world: World,
        routers: Routers,
        model: Model,
        name: str,
        resources: Sequence[str],
        *,
        packed: bool,
        bad: float,
        pace_s: float,
    ) -> None:
        self.world = world
        self.name = name
        self.stopped = False
        self._routers = routers
        self._model = model
        self._resources = list(resources)
        self._packed = packed
        self._bad = bad
        self._pace_s = pace_s
        self._count = 0
        self._again: deque[tuple[str, list[Tag]]] = deque()
        self._label = name
        self._rivals = 0
        self._lives: list[Outlet] = []
        self._begin([])

    def _begin(self, unknown: list[Item]) -> None:
        """Start a new process; its lease shows which unsettled contents of the former one are stored."""
        self.process = Process(self.world, self._routers, self.name)
        holder = f"{self.name} {self.world.random.getrandbits(32)}"
        options = WriterOptions(
            tuple(self._resources), self.name, self._packed, None, 1_000, 1 << 20, None, True, holder=holder
        )
        self._unknown = unknown
        self.outlet = outlet = Outlet(self.process, self._model, options)
        self._lives.append(outlet)
        self.process.watch(self._granted)
        self.process.after(0.0, lambda: self._work(outlet))

    def _granted(self) -> None:
        lease = self.outlet.part.lease
        if lease is None or not self._unknown:
            return
        unknown, self._unknown = self._unknown, []
        lost = []
        for item in unknown:
            if item.bad:
                continue
            if item.last <= (lease.last or {}).get(item.resource, 0):
                self._model.confirm(item.tags)
            else:
                lost.append((item.resource, item.tags))
        self._again.extendleft(reversed(lost))

    def kill(self) -> None:
        """Kill the process; its application starts another one, which continues."""
        self.process.kill()
        self._begin(self._unknown + list(self.outlet.pending))

    def rival(self) -> None:
        """Another process opens the name with its own contents; the former one has to be fenced, and ends."""
        former, outlet, label = self.process, self.outlet, self._label

        def check_end() -> None:
            error = outlet.part.error
            if isinstance(error, Fenced):
                self.world.note("fenced", lambda: label)
            elif error is not None and not is_of_the_disk(error):
                raise Violation(f"writer {label} failed: {error!r}")
            if error is not None:
                former.kill()

        former.watch(check_end)
        self._again.clear()
        self._rivals += 1
        self._label = f"{self.name}~{self._rivals}"
        self._count = 0
        self._begin([])

    @property
    def settled(self) -> bool:
        """Whether all its published contents are confirmed or refused."""
        return self.outlet.ready and not (self.outlet.pending or self._again or self._unknown)

    def _work(self, outlet: Outlet) -> None:
        if outlet is not self.outlet or self._failed():
            return
        if self.outlet.ready and not self._unknown:
            self._publish()
        pause = self.world.between(self._pace_s / 4, self._pace_s * 4)
        self.process.after(pause, lambda: self._work(outlet))

    def _publish(self) -> None:
        while self._again:
            if not self._send(*self._again[0]):
                return
            self._again.popleft()
        if self.stopped:
            return
        world = self.world
        for _ in range(1 + world.upto(3)):
            resource = world.random.choice(self._resources)
            bad = world.chance(self._bad)
            tags = [self._tag(resource) for _ in range(1 + (world.upto(7) if self._packed else 0))]
            if not self._send(resource, tags, bad=bad):
                self._again.append((resource, tags))
                return

    def _send(self, resource: str, tags: list[Tag], *, bad: bool = False) -> bool:
        return self.outlet.publish(resource, tags, packed=self._packed, bad=bad)

    def _tag(self, resource: str) -> Tag:
        self._count += 1
        tag = f"{self._label}.{self._count}"
        self._model.publish(tag, resource, self._label, self._count)
        return tag

    def _failed(self) -> bool:
        """Whether the disk ended this process; then the application starts another one after a while."""
        error = self.outlet.part.error
        if error is None:
            return False
        if isinstance(error, Fenced):
            self._fenced()
        elif is_of_the_disk(error):
            self.process.after(self.world.between(0.05, 2.0), self.kill)
        else:
            raise Violation(f"writer {self.name} failed: {error!r}")
        return True

    def _fenced(self) -> None:
        """Fenced by a delayed first request of an earlier process; then another one opens the name again."""
        epochs = [outlet.epoch for outlet in self._lives if outlet is not self.outlet]
        if all(0 < epoch < self.outlet.epoch for epoch in epochs):
            raise Violation(f"{self._label} was fenced in epoch {self.outlet.epoch} by none of {epochs}")
        self.process.kill()
        self.rival()
