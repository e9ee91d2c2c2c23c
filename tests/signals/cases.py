"""The blocking calls, each as a case: a call that is repeated until a signal interrupts it, and what has to be true."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from functools import partial
from uuid import uuid4

import mtl
import mtl.aio
from mtl.client.consuming import QueuedContent
from mtl.client.contents import Content
from mtl.wire import control
from tests.bridging.ends import DOORS
from tests.signals import doors

MANY = 500
"""Contents that a case writes for its readers at a time."""


class Case:
    """Base of the cases; `resource` is its own. A call takes about `length` times PAUSE_S of the storm."""

    length = 1

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.resource = f"signals-{uuid4().hex}"
        self.connection = mtl.connect(endpoint)
        self.connection.create_resource(self.resource)

    def call(self) -> None:
        """The blocking call."""
        raise NotImplementedError

    def interrupted(self) -> None:
        """What has to be true after each signal."""

    def check(self) -> None:
        """The process works: requests, writing and reading."""
        with mtl.connect(self.endpoint) as other:
            other.create_resource("works", exist_ok=True)
            with other.writer("works") as writer:
                number = writer.send(b"x")
                writer.flush(timeout=30.0)
                assert writer.confirmed >= number
            start = other.describe("works")["works"].next - 1
            with other.reader("works", start=start) as reader:
                assert reader.next(timeout=30.0) is not None
        assert self.connection.describe(self.resource)

    def end(self) -> None:
        """The last check."""
        self.connection.close()

    def fill(self) -> None:
        """Write contents for readers."""
        with self.connection.writer(self.resource, packed=True) as writer:
            for number in range(MANY):
                writer.send(b"%d" % number)


class Describe(Case):
    def call(self) -> None:
        self.connection.describe(self.resource)


class LongPoll(Case):
    def call(self) -> None:
        state = self.connection.describe(self.resource).state
        self.connection.describe(self.resource, since=state, wait=0.05)


class Create(Case):
    def call(self) -> None:
        self.connection.create_resource(self.resource, exist_ok=True)


class Connect(Case):
    def call(self) -> None:
        mtl.connect(self.endpoint).close()


class OpenReader(Case):
    def call(self) -> None:
        self.connection.reader(self.resource).close()


class OpenHolder(Case):
    """The holder of a group: the next one takes the group over from one that was interrupted."""

    def call(self) -> None:
        self.connection.reader(self.resource, group="g").close()


class OpenWriter(Case):
    def call(self) -> None:
        self.connection.writer(self.resource, name="one").close()


class OpenConsumer(Case):
    def call(self) -> None:
        self.connection.consumer(self.resource).close()


class Blocks(Case):
    """Ctrl-C within blocks, and in their ends."""

    def call(self) -> None:
        with mtl.connect(self.endpoint) as own, own.writer(self.resource) as writer:
            writer.send(b"x")


class NextWithout(Case):
    """Without contents."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint)
        self.reader = self.connection.reader(self.resource)

    def call(self) -> None:
        self.reader.next()

    def check(self) -> None:
        super().check()
        with self.connection.writer(self.resource) as writer:
            writer.send(b"x")
        assert self.reader.next(timeout=30.0) is not None


class Next(Case):
    """Reads contents one by one: an interrupted call loses none, and gives none twice."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint)
        self.fill()
        self.reader = self.connection.reader(self.resource, window_contents=50)
        self.seen = 0

    def call(self) -> None:
        self.see(self.reader.next())

    def see(self, content: Content | None) -> None:
        assert content is not None
        assert content.sequence == self.seen + 1, (content.sequence, self.seen)
        self.seen = content.sequence

    def interrupted(self) -> None:
        # A content may have been returned, and its number not noted: then the position is behind it.
        assert self.reader.position in {self.seen + 1, self.seen + 2}, (self.reader.position, self.seen)
        assert self.reader.position is not None
        self.seen = self.reader.position - 1
        if self.connection.describe(self.resource)[self.resource].next - self.seen < MANY // 2:
            self.fill()

    def end(self) -> None:
        while (content := self.reader.next(timeout=1.0)) is not None:
            self.see(content)
        assert self.seen + 1 == self.connection.describe(self.resource)[self.resource].next
        super().end()


class Iterate(Next):
    """The same by iteration."""

    def call(self) -> None:
        for content in self.reader:
            self.see(content)


class Batches(Next):
    """The same by packs."""

    def call(self) -> None:
        for pack in self.reader.batches():
            assert pack.first == self.seen + 1, (pack.first, self.seen)
            self.seen = pack.first + pack.count - 1

    def interrupted(self) -> None:
        assert self.reader.position is not None
        assert self.reader.position >= self.seen + 1
        self.seen = self.reader.position - 1
        if self.connection.describe(self.resource)[self.resource].next - self.seen < MANY // 2:
            self.fill()


class Consume(Case):
    """Consumes and confirms: every content is confirmed in the end, although the window is small."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint)
        self.fill()
        self.consumer = self.connection.consumer(self.resource, window_contents=20)
        self.content: QueuedContent | None = None

    def call(self) -> None:
        self.content = self.content or self.consumer.next(timeout=30.0)
        assert self.content is not None
        self.content.confirm()
        self.content = None

    def interrupted(self) -> None:
        queues = self.connection.queues(resource=self.resource)
        if queues and (queues[0].ready or 0) < MANY // 4:
            self.fill()


class Send(Case):
    """Publishes in a window that is full at once: no number is used twice, and none is left out."""

    packed = False

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint)
        self.writer = self.connection.writer(self.resource, window_contents=3, packed=self.packed)
        self.count = 0
        self.returned: set[int] = set()

    def call(self) -> None:
        self.count += 1
        number = self.writer.send(b"%d" % self.count)
        self.returned.add(number)

    def end(self) -> None:
        self.writer.close()
        with self.connection.reader(
            self.resource, until=self.connection.describe(self.resource)[self.resource].next
        ) as reader:
            bodies = [int(content.body) for content in reader]
        assert bodies == sorted(set(bodies)), "in order, and once"
        assert len(bodies) == self.writer.confirmed >= len(self.returned)
        super().end()


class SendPacked(Send):
    """The same in packs."""

    packed = True


class Flush(Send):
    """Publishes and flushes."""

    def call(self) -> None:
        super().call()
        self.writer.flush()


class Seal(Case):
    """Stages: written, sealed, and aborted by the next one's describe."""

    def call(self) -> None:
        stage = control.StageSpec(application=self.resource, version=0)
        with self.connection.writer(self.resource, stage=stage) as writer:
            writer.send(b"x")
            sealed = writer.seal()
        self.connection.stage_abort([sealed.stage])


class PingHolder(Case):
    """A holder of a group."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint)
        self.fill()
        self.reader = self.connection.reader(self.resource, group="g")

    def call(self) -> None:
        content = self.reader.next(timeout=0.0)
        if content is not None:
            self.reader.confirm(content.sequence)
        self.reader.ping_holder()


class Asyncio(Case):
    """asyncio.run: the signal cancels the main task."""

    length = 10
    began = False

    def call(self) -> None:
        self.began = False
        # A signal at the end of the last `asyncio.run` may have left its handler, which strikes anywhere in this one.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            asyncio.run(self._begin())
        except asyncio.CancelledError:
            if self.began:
                raise
            # `asyncio.Runner.run` forgets a signal that strikes between its handler's registration and its next line.
            raise KeyboardInterrupt from None

    async def _begin(self) -> None:
        self.began = True
        task = asyncio.current_task()
        assert task is not None
        try:
            await self.main()
        except asyncio.CancelledError:
            raise
        except Exception as failed:  # of any kind: only the cancellation may leave the call
            raise AssertionError(f"the cancellation became {failed!r}") from failed
        cancelled = task.cancelling()
        await asyncio.sleep(0)  # a cancellation that came after the last wait is raised here
        assert not cancelled, "the cancellation was swallowed"

    async def main(self) -> None:
        """The case."""
        async with mtl.aio.connect(self.endpoint) as own, own.writer(self.resource) as writer:
            await writer.send(b"x")
            await writer.flush()
            async with own.reader(self.resource, start="latest") as reader:
                await reader.next()


class AsyncioConsumer(Asyncio):
    """The same with requests and a consumer."""

    async def main(self) -> None:
        async with mtl.aio.connect(self.endpoint) as own, own.consumer(self.resource) as consumer:
            await own.describe(self.resource)
            async with own.writer(self.resource) as writer:
                await writer.send(b"x")
            content = await consumer.next()
            assert content is not None
            content.confirm()


class DoorClient(Asyncio):
    """The client of a door, under asyncio.run as well."""

    def __init__(self, endpoint: str, name: str) -> None:
        super().__init__(endpoint)
        self.protocol, self.place = DOORS[name], doors.place(name)

    async def main(self) -> None:
        end = self.protocol
        async with (
            end.connect(self.place) as own,
            end.reader(own, self.resource, "latest") as reader,
            end.writer(own, self.resource) as writer,
        ):
            await end.put(writer, b"x", {})
            await writer.flush()
            assert await reader.next()


CASES: dict[str, Callable[[str], Case]] = {
    "describe": Describe,
    "long-poll": LongPoll,
    "create": Create,
    "connect": Connect,
    "reader": OpenReader,
    "holder": OpenHolder,
    "writer": OpenWriter,
    "consumer": OpenConsumer,
    "blocks": Blocks,
    "next-without": NextWithout,
    "next": Next,
    "iterate": Iterate,
    "batches": Batches,
    "consume": Consume,
    "send": Send,
    "send-packed": SendPacked,
    "flush": Flush,
    "seal": Seal,
    "ping-holder": PingHolder,
    "asyncio": Asyncio,
    "asyncio-consumer": AsyncioConsumer,
    **{f"door-{name}": partial(DoorClient, name=name) for name in DOORS},
}
