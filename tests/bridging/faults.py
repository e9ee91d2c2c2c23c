"""Door, broker, clients and network are killed during a transfer of numbered contents, which are checked afterwards."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise

import mtl
from tests.bridging.ends import DOORS, MTL, PATIENCE_S, End
from tests.bridging.places import Site
from tests.support.contents import visible
from tests.support.cutting_proxy import BEHIND, HERE, CuttingProxy

COUNT = 3_000
KILLED_AT = COUNT // 3
END = b"end"
"""The last content, sent repeatedly until the readers get it: some have no replay."""


@dataclass(frozen=True)
class Outcome:
    """The state after the fault."""

    protocol: str
    victim: str
    acknowledged: int
    """The number of acknowledged contents at the kill."""
    doubled: int
    """Contents that are in the log twice, because a client or the door sent them again."""
    missed: int
    """Contents of the log that the protocol's own reader did not get."""

    def __str__(self) -> str:
        """A line of the table."""
        return (
            f"| {self.protocol} | {self.victim} | {self.acknowledged:,} of {COUNT:,} "
            f"| all, in order | {self.doubled} | {self.missed} |"
        )


HEAD = (
    "| protocol | killed | when acknowledged | in the log | doubled there | missed by a reader |\n"
    "|---|---|---|---|---|---|"
)


class Application:
    """One process of `tests.bridging.application`, or two in succession, and their output."""

    def __init__(self, what: str, end: End, place: str, resource: str) -> None:
        self._command = [sys.executable, "-m", "tests.bridging.application", what, end.name, place, resource]
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._news = asyncio.Condition()
        self.lines: list[str] = []

    async def start(self, *arguments: object) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self._command, *map(str, arguments), stdout=asyncio.subprocess.PIPE
        )
        self._listening = asyncio.create_task(self._listen(self._process))

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            if line.endswith(b"\n"):  # a killed process may leave half of one
                async with self._news:
                    self.lines.append(line.decode().rstrip())
                    self._news.notify_all()

    async def wait_for_output(self, enough: Callable[[list[str]], bool]) -> None:
        """Wait until its output satisfies the condition."""
        async with self._news:
            await self._news.wait_for(lambda: enough(self.lines))

    async def kill(self) -> None:
        assert self._process is not None
        assert self._listening is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._listening

    @property
    def acknowledged(self) -> int:
        """The number of acknowledged contents, of a publishing process."""
        return int(self.lines[-1]) if self.lines else 0

    @property
    def received(self) -> list[tuple[int, bytes]]:
        """Sequences and bodies, of a reading process."""
        found = (line.split() for line in self.lines if line != "reading")
        return [(int(sequence), body.encode()) for sequence, body in found]


@dataclass(frozen=True)
class Scene:
    """The processes that may be killed."""

    site: Site
    end: End
    publishing: Application
    reading: Application
    proxy: CuttingProxy


async def _door(scene: Scene) -> None:
    scene.site.kill(scene.end)
    await asyncio.to_thread(scene.site.start, scene.end)


async def _broker(scene: Scene) -> None:
    scene.site.broker.kill()
    await asyncio.to_thread(scene.site.broker.restart)


async def _clients(scene: Scene) -> None:
    await asyncio.gather(scene.publishing.kill(), scene.reading.kill())
    received = scene.reading.received
    await scene.reading.start(received[-1][0] + 1 if received else 1)
    await scene.publishing.start(scene.publishing.acknowledged, COUNT)


async def _network(scene: Scene) -> None:
    scene.proxy.cut()


VICTIMS: dict[str, Callable[[Scene], Awaitable[None]]] = {
    "door": _door,
    "broker": _broker,
    "clients": _clients,
    "network": _network,
}

EXACTLY_ONCE = {("mbws", "network")}
"""Whether the protocol recovers its connection: then no content is sent twice."""


async def play(site: Site, protocol: str, victim: str) -> Outcome:
    """Publish and read through the door, kill the victim in between, and continue to the end.

    Raises `AssertionError` if an acknowledged content is missing, the order is wrong, a reader gets a content twice
    or, if it can replay, misses one, or a protocol that recovers its connection duplicates contents.
    """
    end, resource = DOORS[protocol], f"{victim}-{protocol}"
    with mtl.connect(site.places[MTL], retry_deadline=PATIENCE_S) as c:
        c.create_resource(resource)
        found = re.search(r":(\d+)$", site.places[protocol])
        assert found
        with CuttingProxy(int(found[1])) as proxy:
            place = site.places[protocol].replace(BEHIND, HERE)
            async with _applications(end, place, resource) as (publishing, reading):
                await reading.start(1)
                await reading.wait_for_output(bool)
                await publishing.start(0, COUNT)
                await publishing.wait_for_output(lambda _: publishing.acknowledged >= KILLED_AT)
                acknowledged = publishing.acknowledged
                await VICTIMS[victim](Scene(site, end, publishing, reading, proxy))
                await publishing.wait_for_output(lambda _: publishing.acknowledged >= COUNT)
                log = await asyncio.to_thread(_log, c, resource)
                await _shown_the_end(c, resource, reading)
                received = [content for content in reading.received if content[1] != END]
    return _judged(
        Outcome(protocol, victim, acknowledged, len(log) - COUNT, len(log) - len(received)), log, received
    )


@asynccontextmanager
async def _applications(
    end: End, place: str, resource: str
) -> AsyncIterator[tuple[Application, Application]]:
    both = Application("publish", end, place, resource), Application("read", end, place, resource)
    try:
        yield both
    finally:
        for application in both:
            await application.kill()


def _log(c: mtl.Connection, resource: str) -> list[bytes]:
    """The bodies of all contents of the resource."""
    return [bytes(content.body) for content in visible(c, resource)]


async def _shown_the_end(c: mtl.Connection, resource: str, reading: Application) -> None:
    with c.writer(resource) as writer:
        while not any(line.endswith(f" {END.decode()}") for line in reading.lines):
            writer.send(END)
            writer.flush()
            await asyncio.sleep(0.1)  # a reader without replay may not have reconnected yet


def _judged(outcome: Outcome, log: Sequence[bytes], received: Sequence[tuple[int, bytes]]) -> Outcome:
    first = list(dict.fromkeys(log))
    assert first == [str(number).encode() for number in range(COUNT)], "lost, or out of order"
    assert all(sequence < other for (sequence, _), (other, _) in pairwise(received)), (
        "a reader was given one twice"
    )
    assert all(log[sequence - 1] == body for sequence, body in received)
    if DOORS[outcome.protocol].replays:
        assert outcome.missed == 0
    if (outcome.protocol, outcome.victim) in EXACTLY_ONCE:
        assert outcome.doubled == 0
    return outcome
