"""Applications that read a resource in order from their last position, and ranges of it, as Spark's tasks do."""

from __future__ import annotations

from mtl.client.log_reader_part import LogReaderPart
from mtl.client.reader_part import ReaderOptions, Start
from mtl.protocol.reading import Delivery, PlainRun
from mtl.wire.commands import packed_count
from mtl.wire.packs import decode_pack, unpack
from tests.simulator.model import Model, Tag, Violation
from tests.simulator.network import Routers
from tests.simulator.process import Process, is_of_the_disk
from tests.simulator.world import World

_WINDOW = (50, 16 << 10)


def options(resource: str, start: Start, *, packed: bool, **more: object) -> ReaderOptions:
    """Options of a simulated reader: a small window, so that credit is needed."""
    asked: dict[str, object] = {
        "until": None,
        "group": None,
        "holder": None,
        "holding_epoch": None,
        "window_contents": _WINDOW[0],
        "window_bytes": _WINDOW[1],
        "incarnation": None,
        "skip_lost": False,
    }
    return ReaderOptions(resource, start, packed=packed, **(asked | more))  # type: ignore[arg-type]


def tags_of(delivery: Delivery | PlainRun, *, packed: bool) -> list[Tag]:
    """The bodies of a delivery, cut to its range."""
    if isinstance(delivery, PlainRun):
        return [bytes(body).decode() for body in delivery.bodies]
    content = delivery.content
    if not packed:
        return [bytes(content.body).decode()]
    batch = decode_pack(content.body, packed_count(content.properties) or 1)
    cut = batch.slice(delivery.skip, delivery.end - delivery.first)
    return [bytes(body).decode() for _, body in unpack(cut)]


class ReaderApp:
    """Reads one resource in order, remembers its position, and is killed now and then."""

    def __init__(
        self, world: World, routers: Routers, model: Model, name: str, resource: str, *, packed: bool
    ) -> None:
        self.world = world
        self.name = name
        self.resource = resource
        self.position = 1
        self.pause_s = 0.02
        self.stopped = False
        self._routers = routers
        self._model = model
        self._packed = packed
        self.begin()

    def begin(self) -> None:
        """A new life, from `position` on."""
        self.process = Process(self.world, self._routers, self.name)
        self.channel = self.process.channel()
        self.part = LogReaderPart(self.process.loop, self.channel, self.asked())
        self.part.flow.start()
        self.part.summon()
        self.process.wake()
        self._consume_later()

    @property
    def settled(self) -> bool:
        """Whether it has got all contents delivered to any reader."""
        return self.position >= self._model.end(self.resource)

    def asked(self) -> ReaderOptions:
        """The next lease request."""
        return options(self.resource, self.position, packed=self._packed)

    def kill(self) -> None:
        """Kill the process; the next one starts at a stored position, the present or an older one."""
        self.process.kill()
        if self.world.chance(0.5):
            self.position = max(1, self.position - self.world.upto(20))
        self.begin()

    def done(self, end: int) -> None:
        """The application has processed all contents below `end`."""
        self.position = end
        self.part.finished = end
        self.part.credit()

    def _consume_later(self) -> None:
        self.process.after(self.world.between(self.pause_s / 10, self.pause_s * 3), self._consume)

    def _consume(self) -> None:
        if is_of_the_disk(self.part.error):
            self.process.after(self.world.between(0.05, 2.0), self.kill)
            return
        part, queue = self.part, self.part.queue
        self.check()
        if part is not self.part:
            return  # another life has begun
        for _ in range(min(len(queue), 1 + self.world.upto(7))):
            self._take(queue.popleft())
        self._consume_later()

    def check(self) -> None:
        """This reader has no end."""
        if self.part.error is not None:
            raise Violation(f"reader {self.name} failed at {self.position}: {self.part.error!r}")

    def _take(self, delivery: Delivery | PlainRun) -> None:
        if delivery.first != self.position:
            raise Violation(f"{self.name} was at {self.position} and is given {delivery.first}")
        tags = tags_of(delivery, packed=self._packed)
        if len(tags) != delivery.end - delivery.first:
            raise Violation(f"{self.name}: {len(tags)} contents for {delivery.first} to {delivery.end}")
        self._model.show(self.resource, delivery.first, tags)
        self.done(delivery.end)


class RangeApp(ReaderApp):
    """Reads one range [first, end) after the other, each in a lease of its own."""

    def __init__(
        self, world: World, routers: Routers, model: Model, name: str, resource: str, *, packed: bool
    ) -> None:
        self.end = 0
        self.ranges = 0
        super().__init__(world, routers, model, name, resource, packed=packed)

    def asked(self) -> ReaderOptions:
        """The rest of the range."""
        return options(self.resource, self.position, packed=self._packed, until=self.end or 1)

    @property
    def settled(self) -> bool:
        """Whether the present range is done."""
        return self.position >= self.end

    def kill(self) -> None:
        """The task is repeated."""
        self.process.kill()
        self.begin()

    def check(self) -> None:
        """At the end of the range, start another one."""
        super().check()
        if self.position < self.end or not self.part.ended or self.part.queue:
            return
        known = self._model.end(self.resource) - 1
        if known and not self.stopped:
            self.ranges += 1
            self.process.kill()
            self.position = 1 + self.world.upto(known - 1)
            self.end = self.position + 1 + self.world.upto(known - self.position)
            self.begin()
