from __future__ import annotations

import asyncio

import pytest
import zmq

from mtl.errors import OptionError
from mtl.net.aio import AsyncDealer, AsyncRouter
from mtl.net.router import BindFailed, Sent
from tests.support.aio import in_loop

PLACE = "tcp://127.0.0.1:0"


async def heard(router: AsyncRouter) -> tuple[bytes, list[bytes]]:
    """The next message, which comes alone."""
    ((identity, (frames,)),) = (await router.receive(10)).items()
    return identity, frames


@in_loop
async def test_messages_go_both_ways() -> None:
    router = AsyncRouter(PLACE, hwm=10, max_frame=100)
    dealer = AsyncDealer(router.endpoint, hwm=10, max_frame=100)
    dealer.send_soon([b"", b"hello"])
    identity, frames = await heard(router)
    assert frames == [b"", b"hello"]
    assert router.send(identity, [b"one", b"two", b"three"]) is Sent.OK
    assert await dealer.receive(10) == [[b"one", b"two", b"three"]]
    dealer.close()
    dealer.close()
    router.close()


@in_loop
async def test_a_full_queue_and_a_peer_that_is_not_there_are_answers() -> None:
    router = AsyncRouter(PLACE, hwm=1, max_frame=1 << 20)
    dealer = AsyncDealer(router.endpoint, hwm=1, max_frame=1 << 20)
    dealer.send_soon([b"hello"])
    identity, _ = await heard(router)
    sent = {router.send(identity, [bytes(1 << 20)]) for _ in range(200)}
    assert sent == {Sent.OK, Sent.FULL}
    assert router.send(b"nobody", [b"x"]) is Sent.GONE
    dealer.close()
    router.close()


@in_loop
async def test_the_end_of_a_connection_is_told_after_what_came_before() -> None:
    for _ in range(30):  # a wake-up that is lost was lost in one of five
        router = AsyncRouter(PLACE, hwm=10, max_frame=100)
        dealer = AsyncDealer(router.endpoint, hwm=10, max_frame=100)
        dealer.send_soon([b"hello"])
        identity, _ = await heard(router)
        assert router.send(identity, [b"last"]) is Sent.OK
        assert await dealer.receive(10) == [[b"last"]]
        waiting = asyncio.create_task(dealer.receive(10))
        await asyncio.sleep(0)
        router.close()
        async with asyncio.timeout(20):
            assert await waiting == []
        assert await dealer.receive(10) == []
        dealer.close()


@in_loop
async def test_what_came_together_is_received_together_and_by_peer() -> None:
    router = AsyncRouter(PLACE, hwm=10, max_frame=100)
    one, two = (AsyncDealer(router.endpoint, hwm=10, max_frame=100) for _ in range(2))
    received: dict[bytes, list[list[bytes]]] = {}
    for dealer in (one, two):
        for n in range(50):  # more than the queues take: the rest follows
            dealer.send_soon([b"%d" % n, b""])
    while sum(map(len, received.values())) < 100:
        burst = await router.receive(7)
        assert 0 < sum(map(len, burst.values())) <= 7
        for identity, messages in burst.items():
            received.setdefault(identity, []).extend(messages)
    assert list(received.values()) == [[[b"%d" % n, b""] for n in range(50)]] * 2
    for dealer in (one, two):
        dealer.close()
    router.close()


@in_loop
async def test_a_task_that_is_cancelled_is_no_end_of_the_connection() -> None:
    router = AsyncRouter(PLACE, hwm=10, max_frame=100)
    dealer = AsyncDealer(router.endpoint, hwm=10, max_frame=100)
    waiting = asyncio.create_task(dealer.receive(10))
    await asyncio.sleep(0)  # it has begun to wait
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    dealer.send_soon([b"hello"])
    identity, _ = await heard(router)
    router.send(identity, [b"still here"])
    assert await dealer.receive(10) == [[b"still here"]]
    dealer.close()
    router.close()


@pytest.mark.requirement("MC0-03")
@in_loop
async def test_with_curve_only_who_knows_the_key_gets_in() -> None:
    public, secret = zmq.curve_keypair()
    router = AsyncRouter(PLACE, hwm=10, max_frame=10_000, curve_secret=secret)
    clear = AsyncDealer(router.endpoint, hwm=10, max_frame=10_000)
    clear.send_soon([b"in clear"])
    assert await clear.receive(10) == []
    wrong = AsyncDealer(router.endpoint, hwm=10, max_frame=10_000, curve_server=zmq.curve_keypair()[0])
    wrong.send_soon([b"for another"])
    right = AsyncDealer(router.endpoint, hwm=10, max_frame=10_000, curve_server=public)
    right.send_soon([b"hello"])
    identity, frames = await heard(router)
    assert frames == [b"hello"]
    assert router.send(identity, [b"welcome"]) is Sent.OK
    assert await right.receive(10) == [[b"welcome"]]
    for dealer in (clear, wrong, right):
        dealer.close()
    router.close()


@in_loop
async def test_places_that_cannot_be() -> None:
    router = AsyncRouter(PLACE, hwm=10, max_frame=100)
    with pytest.raises(BindFailed, match="cannot listen"):
        AsyncRouter(router.endpoint, hwm=10, max_frame=100)
    with pytest.raises(OptionError, match="no endpoint"):
        AsyncDealer("tcp://", hwm=10, max_frame=100)
    router.close()
