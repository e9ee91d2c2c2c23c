from __future__ import annotations

import asyncio

import pytest
import zmq

from mtl.errors import OptionError
from mtl.net.aio import AsyncDealer, AsyncRouter
from mtl.net.router import BindFailed, Sent
from tests.support.aio import in_loop

PLACE = "tcp://127.0.0.1:0"


@in_loop
async def test_messages_go_both_ways() -> None:
    router = AsyncRouter(PLACE, hwm=10, max_frame=100)
    dealer = AsyncDealer(router.endpoint, hwm=10, max_frame=100)
    dealer.send_soon([b"", b"hello"])
    identity, *frames = await router.receive()
    assert frames == [b"", b"hello"]
    assert router.send(identity, [b"one", b"two", b"three"]) is Sent.OK
    assert await dealer.receive() == [b"one", b"two", b"three"]
    dealer.close()
    dealer.close()
    router.close()


@in_loop
async def test_a_full_queue_and_a_peer_that_is_not_there_are_answers() -> None:
    router = AsyncRouter(PLACE, hwm=1, max_frame=1 << 20)
    dealer = AsyncDealer(router.endpoint, hwm=1, max_frame=1 << 20)
    dealer.send_soon([b"hello"])
    identity, _ = await router.receive()
    sent = {router.send(identity, [bytes(1 << 20)]) for _ in range(200)}
    assert sent == {Sent.OK, Sent.FULL}
    assert router.send(b"nobody", [b"x"]) is Sent.GONE
    dealer.close()
    router.close()


@in_loop
async def test_the_end_of_a_connection_is_told_after_what_came_before() -> None:
    router = AsyncRouter(PLACE, hwm=10, max_frame=100)
    dealer = AsyncDealer(router.endpoint, hwm=10, max_frame=100)
    dealer.send_soon([b"hello"])
    identity, _ = await router.receive()
    assert router.send(identity, [b"last"]) is Sent.OK
    assert await dealer.receive() == [b"last"]
    waiting = asyncio.create_task(dealer.receive())
    await asyncio.sleep(0)
    router.close()
    assert await waiting is None
    assert await dealer.receive() is None
    dealer.close()


@in_loop
async def test_a_task_that_is_cancelled_is_no_end_of_the_connection() -> None:
    router = AsyncRouter(PLACE, hwm=10, max_frame=100)
    dealer = AsyncDealer(router.endpoint, hwm=10, max_frame=100)
    waiting = asyncio.create_task(dealer.receive())
    await asyncio.sleep(0)  # it has begun to wait
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    dealer.send_soon([b"hello"])
    identity, _ = await router.receive()
    router.send(identity, [b"still here"])
    assert await dealer.receive() == [b"still here"]
    dealer.close()
    router.close()


@pytest.mark.requirement("MC0-03")
@in_loop
async def test_with_curve_only_who_knows_the_key_gets_in() -> None:
    public, secret = zmq.curve_keypair()
    router = AsyncRouter(PLACE, hwm=10, max_frame=10_000, curve_secret=secret)
    clear = AsyncDealer(router.endpoint, hwm=10, max_frame=10_000)
    clear.send_soon([b"in clear"])
    assert await clear.receive() is None
    wrong = AsyncDealer(router.endpoint, hwm=10, max_frame=10_000, curve_server=zmq.curve_keypair()[0])
    wrong.send_soon([b"for another"])
    right = AsyncDealer(router.endpoint, hwm=10, max_frame=10_000, curve_server=public)
    right.send_soon([b"hello"])
    identity, *frames = await router.receive()
    assert frames == [b"hello"]
    assert router.send(identity, [b"welcome"]) is Sent.OK
    assert await right.receive() == [b"welcome"]
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
