"""The protocols as ends of a bridge: their names of a resource, their readers, and their supported properties."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from mtl.client import aio
from mtl.client.contents import Content
from mtl.doors.mbws import client as mbws
from mtl.doors.mc0 import client as mc0
from mtl.doors.micromessage import client as micromessage
from mtl.doors.reactive import client as reactive
from mtl.doors.received import Received

MTL = "mtl"

PATIENCE_S = 20.0
"""Seconds for which a client tries to reach its door during a restart."""


class Producer(Protocol):
    """The common interface of the protocols' writers."""

    @abstractmethod
    async def send(self, body: bytes, *properties: Mapping[str, str]) -> Any:
        """Send one content; waits while too many are in flight. The result depends on the protocol."""

    @abstractmethod
    async def flush(self) -> None:
        """Wait until all is acknowledged."""


class Consumer(Protocol):
    """The common interface of the protocols' readers."""

    @abstractmethod
    async def next(self) -> Received | Content | None:
        """The next content."""


@dataclass(frozen=True)
class End:
    """One protocol. The argument of `connect` is the endpoint of its server."""

    name: str
    connect: Callable[[str], AbstractAsyncContextManager[Any]]
    listen: str = "127.0.0.1:0"
    properties: bool = True
    """Whether contents of the protocol have properties."""
    replays: bool = True
    """Whether a reader can begin with existing contents."""
    spelling: str = "{}"
    """The protocol's name of a resource."""

    def writer(self, connection: Any, resource: str) -> AbstractAsyncContextManager[Producer]:
        """A writer to the resource, which has to exist."""
        opened: AbstractAsyncContextManager[Producer] = connection.writer(self.spelling.format(resource))
        return opened

    def reader(
        self, connection: Any, resource: str, start: str | int
    ) -> AbstractAsyncContextManager[Consumer]:
        """A reader from `start` on; from the end if the protocol has no other start."""
        options = {"start": start} if self.replays else {}
        name = self.spelling.format(resource)
        opened: AbstractAsyncContextManager[Consumer] = connection.reader(name, **options)
        return opened

    async def put(self, writer: Producer, body: bytes, properties: Mapping[str, str]) -> Any:
        """Send one content, with its properties if the protocol has them."""
        return await writer.send(body, *([properties] if self.properties else []))

    def expected_properties(self, properties: Mapping[str, str], producer: End) -> dict[str, str]:
        """The properties that a consumer of this protocol gets for those sent by a `producer` of another."""
        return dict(properties) if self.properties and producer.properties else {}


ENDS = {
    end.name: end
    for end in (
        End(MTL, aio.connect),
        End(
            "mc0",
            lambda place: mc0.connect(place, retry_deadline=PATIENCE_S),
            listen="tcp://127.0.0.1:0",
            replays=False,
        ),
        End("mbws", lambda place: mbws.connect(place, retry_deadline=PATIENCE_S)),
        End(
            "micromessage",
            lambda place: micromessage.connect(place, retry_deadline=PATIENCE_S),
            spelling="topic/{}",
        ),
        End("reactive", lambda place: reactive.connect(place, timeout=PATIENCE_S), properties=False),
    )
}

DOORS = {name: end for name, end in ENDS.items() if name != MTL}


async def taken(reader: Consumer, count: int) -> list[Received | Content]:
    """The next `count` contents."""
    found = []
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(count):
            content = await reader.next()
            assert content is not None, "the resource ended"
            found.append(content)
    return found
