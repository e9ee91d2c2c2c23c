"""A door's way to the broker: subscriptions that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from mtl import Content
from mtl.client.aio import Connection
from mtl.doors import bridge as bridges
from mtl.doors.bridge import Bridge, Shares, Source, Subscription
from mtl.doors.failure_log import PeerAddress
from mtl.doors.peer_messages import DoorRefusal
from mtl.errors import Fenced, MtlError, Refused
from mtl.wire.control import OVERLOADED
from tests.support.aio import in_loop

PEER = PeerAddress("192.0.2.1", 7)


class FailedSource:
    """A reader whose lease has ended."""

    async def next(self) -> Content | None:
        raise Fenced("another reader has the group")

    async def some(self, contents: int, octets: int) -> Sequence[Content]:
        raise Fenced("another reader has the group")

    async def close(self) -> None:
        """It is."""


class Readers:
    """A connection whose readers are `FailedSource`, unless opening one raises `error`."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.shares = Shares()
        self.bridge = Bridge(self._connection, [], self.shares)

    async def _connection(self) -> Connection:
        return cast("Connection", self)

    async def reader(self, _resource: str, **_: object) -> Source:
        if self.error is not None:
            raise self.error
        return FailedSource()


class Writers:
    """A connection with writers that confirm nothing; `closed` are the resources whose writers were closed."""

    def __init__(self) -> None:
        self.closed: list[str] = []
        self.bridge = Bridge(self._connection, [], Shares())

    async def _connection(self) -> Connection:
        return cast("Connection", self)

    async def writer(self, resource: str, **_: object) -> FakeWriter:
        return FakeWriter(resource, self.closed)


class FakeWriter:
    error = None

    def __init__(self, resource: str, closed: list[str]) -> None:
        self._resource = resource
        self._closed = closed

    async def send_run(self, *_: object) -> int:
        return 1

    def settled(self, _: int) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        self._closed.append(self._resource)


@in_loop
async def test_a_closed_bridge_has_closed_its_writers() -> None:
    writers = Writers()
    await writers.bridge.publish("a", b"1")
    await writers.bridge.close()
    assert writers.closed == ["a"]


@pytest.mark.parametrize(
    ("error", "messages"),
    [
        (
            Refused(403, "not-authorized"),
            ["the subscription of 192.0.2.1:7 to 'a' failed: 403 not-authorized"],
        ),
        (asyncio.CancelledError(), []),
    ],
)
@in_loop
async def test_a_subscription_that_does_not_open_is_not_counted_and_its_error_is_logged(
    caplog: pytest.LogCaptureFixture, error: BaseException, messages: list[str]
) -> None:
    readers = Readers(error)
    with pytest.raises(type(error)):
        await readers.bridge.subscribe(PEER, "a", "latest")
    assert caplog.messages == messages
    assert (readers.shares.subscriptions, readers.bridge.idle) == (0, True)


@in_loop
async def test_subscriptions_of_a_door_are_bounded_until_they_are_closed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridges, "DOOR_SUBSCRIPTIONS", 2)
    readers = Readers()
    opened = [await readers.bridge.subscribe(PEER, "a", "latest") for _ in range(2)]
    assert (readers.shares.subscriptions, readers.bridge.idle) == (2, False)
    with pytest.raises(DoorRefusal) as refused:
        await readers.bridge.subscribe(PEER, "a", "latest")
    assert (refused.value.status, refused.value.reason) == (503, OVERLOADED)
    assert len(caplog.messages) == 1
    for subscription in opened:
        await subscription.close()
    assert (readers.shares.subscriptions, readers.bridge.idle) == (0, True)
    await readers.bridge.subscribe(PEER, "a", "latest")
    assert readers.shares.subscriptions == 1


@in_loop
async def test_a_failed_subscription_is_reported_and_raises_until_it_is_closed() -> None:
    reported: list[MtlError] = []
    ended: list[bool] = []
    subscription = Subscription(FailedSource(), lambda: ended.append(True), reported.append)
    with pytest.raises(Fenced):
        await subscription.some()
    assert [type(error) for error in reported] == [Fenced]
    await subscription.close()
    await subscription.close()
    assert ended == [True]
    with pytest.raises(Fenced):
        await subscription.some()
    assert len(reported) == 1, "a closed subscription is not reported"
