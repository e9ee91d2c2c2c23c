"""A peer's subscriptions and contents, which count for its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import cast

import pytest

from mtl import Content
from mtl.client.aio import Connection
from mtl.doors import limits
from mtl.doors.bridge import Bridge
from mtl.doors.failure_log import PeerAddress
from mtl.doors.peer_messages import DoorRefusal
from mtl.doors.peer_session import PeerSession, Source, Subscription
from mtl.doors.pools import DoorQuota, Shares
from mtl.errors import Fenced, MtlError, Refused
from mtl.shares import SHARE
from mtl.wire.control import QUOTA
from tests.support.aio import in_loop
from tests.support.bridge import ConfirmingBridge
from tests.support.texts import in_order

PEER = PeerAddress("192.0.2.1", 7)
ALICE, BOB = PeerAddress("192.0.2.1", 7, "alice"), PeerAddress("192.0.2.1", 8, "bob")


class FailedSource:
    """A reader whose lease has ended."""

    async def next(self) -> Content | None:
        raise Fenced("another reader has the group")

    async def some(self, contents: int, octets: int) -> Sequence[Content]:
        raise Fenced("another reader has the group")

    async def close(self) -> None:
        """It is."""


class FullSource(FailedSource):
    """A reader of contents that are half as large as the share of unsent octets."""

    async def some(self, contents: int, octets: int) -> Sequence[Content]:
        return [Content("a", 1, b"", bytes(limits.DOOR_UNSENT // SHARE // 2))]


def end_nothing() -> None:
    """No peer is slow."""


class Readers:
    """A connection whose readers are `source`, unless opening one raises `error`."""

    def __init__(self, error: BaseException | None = None, source: type[FailedSource] = FailedSource) -> None:
        self.error = error
        self.source = source
        self.windows: list[int] = []
        self.shares = Shares(100)
        self.bridge = Bridge(self._connection, [])
        self.session = PeerSession(self.bridge, self.shares, PEER)

    async def _connection(self) -> Connection:
        return cast("Connection", self)

    async def reader(self, _resource: str, *, window_bytes: int, **_: object) -> Source:
        if self.error is not None:
            raise self.error
        self.windows.append(window_bytes)
        return self.source()


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
        await readers.session.subscribe("a", "latest", end=end_nothing)
    assert caplog.messages == messages
    assert (readers.shares.subscriptions.used, readers.bridge.idle) == (0, True)


@in_loop
async def test_subscriptions_of_a_door_are_bounded_until_they_are_closed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DOOR_SUBSCRIPTIONS", 2 * SHARE)
    readers = Readers()
    opened = [await readers.session.subscribe("a", "latest", end=end_nothing) for _ in range(2)]
    assert (readers.shares.subscriptions.used, readers.bridge.idle) == (2, False)
    with pytest.raises(DoorRefusal) as refused:
        await readers.session.subscribe("a", "latest", end=end_nothing)
    assert (refused.value.status, refused.value.reason) == (403, QUOTA)
    assert len(caplog.messages) == 1
    for subscription in opened:
        await subscription.close()
    assert (readers.shares.subscriptions.used, readers.bridge.idle) == (0, True)
    await readers.session.subscribe("a", "latest", end=end_nothing)
    assert readers.shares.subscriptions.used == 1


@in_loop
async def test_a_failed_subscription_is_reported_and_raises_until_it_is_closed() -> None:
    reported: list[MtlError] = []
    ended: list[bool] = []
    count = partial(Shares(100).unsent.replace, owner="a")
    subscription = Subscription(
        FailedSource(), lambda: ended.append(True), reported.append, count, end_nothing
    )
    with pytest.raises(Fenced):
        await subscription.some()
    assert [type(error) for error in reported] == [Fenced]
    await subscription.close()
    await subscription.close()
    assert ended == [True]
    with pytest.raises(Fenced):
        await subscription.some()
    assert len(reported) == 1, "a closed subscription is not reported"


@in_loop
async def test_contents_of_an_owner_wait_at_its_share_and_those_of_others_do_not() -> None:
    broker = ConfirmingBridge()
    shares = Shares(100, {DoorQuota.INBOUND_OCTETS: 1_000})
    alice, bob = (PeerSession(cast("Bridge", broker), shares, peer) for peer in (ALICE, BOB))
    await alice.publish("a", b"x" * 400)
    waiting = asyncio.create_task(alice.publish("a", b"y" * 400))
    await bob.publish("b", b"z" * 400)
    assert [body[:1] for _, body in broker.appends] == [b"x", b"z"]
    assert not waiting.done()
    await broker.confirm()
    await waiting
    assert [body[:1] for _, body in broker.appends] == [b"x", b"z", b"y"]
    while broker.unconfirmed:
        await broker.confirm()
    assert shares.inbound.held == 0


@in_loop
async def test_a_session_counts_until_its_end_and_ends_once() -> None:
    shares = Shares(8)
    sessions = [PeerSession(cast("Bridge", None), shares, ALICE) for _ in range(2)]
    with pytest.raises(DoorRefusal, match=in_order("2 sessions", "quotas.sessions", 2)):
        PeerSession(cast("Bridge", None), shares, ALICE)
    PeerSession(cast("Bridge", None), shares, BOB)
    sessions[0].end()
    sessions[0].end()
    assert shares.sessions.used == 2
    PeerSession(cast("Bridge", None), shares, ALICE)


@in_loop
async def test_the_slowest_subscription_of_an_owner_is_ended_and_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DOOR_UNSENT", 1 << 20)
    readers, ended = Readers(source=FullSource), list[str]()
    slow, quick, third = [
        await readers.session.subscribe("a", "latest", end=partial(ended.append, name))
        for name in ("slow", "quick", "third")
    ]
    await slow.some()
    for _ in range(10):
        await quick.some()
    assert ended == []
    await third.some()
    assert ended == [], "the third one's task may belong to the peer that is ended"
    await asyncio.sleep(0)
    assert ended == ["slow"]
    [message] = caplog.messages
    assert message.startswith("the subscription of 192.0.2.1:7 to 'a' failed: 503")
    for subscription in (slow, quick, third):
        await subscription.close()
    assert readers.shares.unsent.used == 0


@in_loop
async def test_the_windows_of_many_subscriptions_are_smaller_until_they_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "DOOR_UNSENT", 16 * limits.DOOR_READER_OCTETS)
    readers = Readers()
    opened = [await readers.session.subscribe("a", "latest", end=end_nothing) for _ in range(25)]
    assert readers.windows[0] == limits.DOOR_READER_OCTETS
    assert readers.windows[-1] < limits.DOOR_READER_OCTETS // 8
    for subscription in opened:
        await subscription.close()
    await readers.session.subscribe("a", "latest", end=end_nothing)
    assert readers.windows[-1] == limits.DOOR_READER_OCTETS
