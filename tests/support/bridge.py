"""A peer's session at a door without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from mtl.client.contents import Content
from mtl.client.reader_part import Start
from mtl.doors.failure_log import PeerAddress
from mtl.doors.peer_session import PeerSession
from mtl.doors.runs import ContentRun
from mtl.wire.fields import Buffer, Value


async def turns() -> None:
    """Let all runnable tasks run."""
    for _ in range(20):
        await asyncio.sleep(0)


class QuietSubscription:
    """A subscription without contents; its end takes some turns of the event loop."""

    place = (1, "incarnation")

    def __init__(self) -> None:
        self.closed = False

    async def some(self) -> Sequence[Content]:
        """Never returns."""
        await asyncio.Event().wait()
        return ()

    async def close(self) -> None:
        """Close."""
        await turns()
        self.closed = True


class ConfirmingBridge:
    """Confirms appends on request. `appends` are the resources and bodies so far, `unconfirmed` the results that are
    not done.
    """

    peer = PeerAddress()
    ended = False

    def __init__(self) -> None:
        self.appends: list[tuple[str, bytes]] = []
        self.unconfirmed: list[asyncio.Future[None]] = []
        self.subscriptions: list[QuietSubscription] = []

    @property
    def session(self) -> PeerSession:
        """The same as a `PeerSession`."""
        return cast("PeerSession", self)

    def end(self) -> None:
        """The peer has gone."""
        self.ended = True

    async def publish(
        self,
        resource: str,
        body: Buffer,
        properties: Mapping[str, Value] | None = None,
    ) -> asyncio.Future[None]:
        """Append one content."""
        return self._append(resource, [bytes(body)])

    async def publish_run(self, run: ContentRun) -> asyncio.Future[None]:
        """Append several contents."""
        return self._append(run.resource, run.bodies)

    def _append(self, resource: str, bodies: list[bytes]) -> asyncio.Future[None]:
        self.appends += [(resource, body) for body in bodies]
        self.unconfirmed.append(asyncio.get_running_loop().create_future())
        return self.unconfirmed[-1]

    async def subscribe(
        self,
        resource: str,
        start: Start,
        incarnation: str | None = None,
        *,
        end: Callable[[], None],
    ) -> QuietSubscription:
        """Begin a subscription."""
        self.subscriptions.append(QuietSubscription())
        return self.subscriptions[-1]

    async def confirm(self) -> None:
        """Confirm the oldest append."""
        self.unconfirmed.pop(0).set_result(None)
        await turns()
