from __future__ import annotations

import asyncio
import select
import socket
import time

import pytest
import zmq

from mtl.errors import OptionError
from mtl.net.aio import AsyncDealer, AsyncRouter
from mtl.net.endpoint import Curve
from mtl.net.origin import key_of
from mtl.net.outgoing import Outgoing
from mtl.net.router import BindFailed, SendOutcome
from tests.support.aio import in_loop, until
from tests.support.zmtp import GREETING, RawPeer

PLACE = "tcp://127.0.0.1:0"


async def receive_one(router: AsyncRouter) -> tuple[tuple[str, bytes], list[bytes]]:
    """The next message, which arrives alone, and the address for an answer."""
    ((connection, identity, (frames,)),) = await router.receive(10)
    return (connection, identity), frames


async def shaken(router: AsyncRouter, identity: bytes) -> RawPeer:
    """A peer with this identity; the router completes the handshake meanwhile."""
    return await asyncio.to_thread(RawPeer(router.endpoint, identity).shake_hands)


@in_loop
async def test_messages_travel_in_both_directions() -> None:
    router = AsyncRouter(PLACE, hwm=10, max_frame=100)
    dealer = AsyncDealer(router.endpoint, hwm=10, max_frame=100)
    dealer.send_soon([b"", b"hello"])
    way, frames = await receive_one(router)
    assert frames == [b"", b"hello"]
    assert router.send(*way, "me", [b"one", b"two", b"three"]) is SendOutcome.OK
    assert await dealer.receive(10) == [[b"one", b"two", b"three"]]
    dealer.close()
    dealer.close()
    router.close()


@pytest.mark.requirement("MC0-01")
@in_loop
async def test_the_ends_announce_the_socket_types_router_and_dealer() -> None:
    router = AsyncRouter(PLACE, hwm=10, max_frame=100)
    peer = await shaken(router, b"me")
    assert b"Socket-Type\0\0\0\6ROUTER" in peer.ready
    peer.close()
    router.close()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dealer = AsyncDealer(f"tcp://127.0.0.1:{listener.getsockname()[1]}", hwm=10, max_frame=100)
        near, _ = await asyncio.to_thread(listener.accept)
        with near:
            near.settimeout(20)
            near.sendall(GREETING)
            sent = b""
            while b"READY" not in sent or b"Identity" not in sent:
                sent += await asyncio.to_thread(near.recv, 1_000)
        assert b"Socket-Type\0\0\0\6DEALER" in sent
        dealer.close()


@in_loop
async def test_send_returns_full_or_gone() -> None:
    router = AsyncRouter(PLACE, hwm=2, max_frame=1 << 20)  # with 1 libzmq waits for ever behind ZAP
    dealer = AsyncDealer(router.endpoint, hwm=1, max_frame=1 << 20)
    dealer.send_soon([b"hello"])
    way, _ = await receive_one(router)
    sent = {router.send(*way, "me", [bytes(1 << 20)]) for _ in range(200)}
    assert sent == {SendOutcome.OK, SendOutcome.FULL}
    assert router.send(way[0], b"nobody", "me", [b"x"]) is SendOutcome.GONE
    dealer.close()
    router.close()


@in_loop
async def test_peers_of_one_owner_that_read_nothing_leave_room_to_another_owner() -> None:
    pool = Outgoing(8 << 20, lambda _: 2 << 20)
    router = AsyncRouter(PLACE, hwm=1_000, max_frame=1 << 20, outgoing=pool)
    peers = [await shaken(router, b"%d" % number) for number in range(4)]
    ways = []
    for peer in peers:
        peer.send(b"hello")
        ways.append((await receive_one(router))[0])
    *deaf, reads = ways
    for way in deaf:
        for _ in range(200):
            router.send(*way, "me", [bytes(1 << 18)])
    assert 0 < pool.octets <= 2 << 20
    assert router.send(*reads, "you", [bytes(1 << 20)]) is SendOutcome.OK
    for peer in peers:
        peer.close()
    router.close()


@in_loop
async def test_the_end_of_a_connection_is_received_after_its_messages() -> None:
    for _ in range(30):  # a wake-up that is lost was lost in one of five
        router = AsyncRouter(PLACE, hwm=10, max_frame=100)
        dealer = AsyncDealer(router.endpoint, hwm=10, max_frame=100)
        dealer.send_soon([b"hello"])
        way, _ = await receive_one(router)
        assert router.send(*way, "me", [b"last"]) is SendOutcome.OK
        assert await dealer.receive(10) == [[b"last"]]
        waiting = asyncio.create_task(dealer.receive(10))
        await asyncio.sleep(0)
        router.close()
        async with asyncio.timeout(20):
            assert await waiting == []
        assert await dealer.receive(10) == []
        dealer.close()


@in_loop
async def test_waiting_messages_are_received_together_grouped_by_peer() -> None:
    router = AsyncRouter(PLACE, hwm=10, max_frame=100)
    first, second = (AsyncDealer(router.endpoint, hwm=10, max_frame=100) for _ in range(2))
    received: dict[bytes, list[list[bytes]]] = {}
    for dealer in (first, second):
        for n in range(50):  # more than the queues take: the rest follows
            dealer.send_soon([b"%d" % n, b""])
    while sum(map(len, received.values())) < 100:
        burst = await router.receive(7)
        assert 0 < sum(len(arrived.messages) for arrived in burst) <= 7
        for arrived in burst:
            received.setdefault(arrived.identity, []).extend(arrived.messages)
    assert list(received.values()) == [[[b"%d" % n, b""] for n in range(50)]] * 2
    for dealer in (first, second):
        dealer.close()
    router.close()


@in_loop
async def test_a_send_of_a_dealer_leaves_the_event_of_an_earlier_message() -> None:
    router = AsyncRouter(PLACE, hwm=10, max_frame=100)
    dealer = AsyncDealer(router.endpoint, hwm=10, max_frame=100)
    dealer.send_soon([b"hello"])
    way, _ = await receive_one(router)
    waiting = asyncio.create_task(dealer.receive(10))
    await asyncio.sleep(0)  # it has begun to wait
    router.send(*way, "me", [b"earlier"])
    wait_for_event(dealer._socket)
    dealer.send_soon([b"later"])
    async with asyncio.timeout(20):
        assert await waiting == [[b"earlier"]]
    dealer.close()
    router.close()


@in_loop
async def test_a_send_of_a_router_leaves_the_event_of_an_earlier_message() -> None:
    router = AsyncRouter(PLACE, hwm=10, max_frame=100)
    dealer = AsyncDealer(router.endpoint, hwm=10, max_frame=100)
    dealer.send_soon([b"hello"])
    way, _ = await receive_one(router)
    waiting = asyncio.create_task(receive_one(router))
    await asyncio.sleep(0)  # it has begun to wait
    dealer.send_soon([b"earlier"])
    wait_for_event(router._router.socket)
    router.send(*way, "me", [b"later"])
    async with asyncio.timeout(20):
        assert await waiting == (way, [b"earlier"])
    dealer.close()
    router.close()


def wait_for_event(socket: zmq.Socket[bytes]) -> None:
    """Wait, in this turn of the event loop, for an event that the next send takes from the socket's descriptor: it
    does so some milliseconds after the send before.
    """
    assert select.select([int(socket.fd)], [], [], 20)[0]
    time.sleep(0.01)


@in_loop
async def test_a_close_right_after_a_send_ends_the_waiting_task() -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    router = AsyncRouter(PLACE, hwm=10, max_frame=100)
    dealer = AsyncDealer(router.endpoint, hwm=10, max_frame=100)
    waiting = asyncio.create_task(dealer.receive(10))
    await asyncio.sleep(0)  # it has begun to wait
    dealer.send_soon([b"hello"])
    dealer.close()
    async with asyncio.timeout(20):
        assert await waiting == []
    await asyncio.sleep(0)
    assert failures == []
    router.close()


@in_loop
async def test_a_connection_that_is_marked_as_lost_ends_the_waiting_task() -> None:
    router = AsyncRouter(PLACE, hwm=10, max_frame=100)
    dealer = AsyncDealer(router.endpoint, hwm=10, max_frame=100)
    dealer.send_soon([b"hello"])
    await receive_one(router)
    waiting = asyncio.create_task(dealer.receive(10))
    await asyncio.sleep(0)  # it has begun to wait
    dealer.mark_lost()
    async with asyncio.timeout(20):
        assert await waiting == []
        assert await dealer.receive(10) == []
    dealer.close()
    router.close()


@in_loop
async def test_a_cancelled_receive_does_not_end_the_connection() -> None:
    router = AsyncRouter(PLACE, hwm=10, max_frame=100)
    dealer = AsyncDealer(router.endpoint, hwm=10, max_frame=100)
    waiting = asyncio.create_task(dealer.receive(10))
    await asyncio.sleep(0)  # it has begun to wait
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    dealer.send_soon([b"hello"])
    way, _ = await receive_one(router)
    router.send(*way, "me", [b"still here"])
    assert await dealer.receive(10) == [[b"still here"]]
    dealer.close()
    router.close()


@pytest.mark.requirement("MC0-03")
@in_loop
async def test_with_curve_only_a_client_with_the_server_key_is_admitted() -> None:
    public, secret = zmq.curve_keypair()
    router = AsyncRouter(PLACE, hwm=10, max_frame=10_000, curve_secret=secret)
    clear = AsyncDealer(router.endpoint, hwm=10, max_frame=10_000)
    clear.send_soon([b"in clear"])
    assert await clear.receive(10) == []
    wrong = AsyncDealer(
        router.endpoint, hwm=10, max_frame=10_000, curve=Curve(zmq.curve_keypair()[0], *zmq.curve_keypair())
    )
    wrong.send_soon([b"for another"])
    right = AsyncDealer(router.endpoint, hwm=10, max_frame=10_000, curve=Curve(public, *zmq.curve_keypair()))
    right.send_soon([b"hello"])
    way, frames = await receive_one(router)
    assert frames == [b"hello"]
    assert router.send(*way, "me", [b"welcome"]) is SendOutcome.OK
    assert await right.receive(10) == [[b"welcome"]]
    for dealer in (clear, wrong, right):
        dealer.close()
    router.close()


@in_loop
async def test_a_lost_connection_is_reported_at_once_and_after_its_messages() -> None:
    lost: list[str] = []
    router = AsyncRouter(PLACE, hwm=1_000, max_frame=100, lost=lost.append)
    peer = await shaken(router, b"peer")
    peer.send(b"first")
    way, _ = await receive_one(router)
    for n in range(100):
        peer.send(b"%d" % n)
    peer.close()
    await until(lambda: lost == [way[0]])
    assert router.send(*way, "me", [b"too late"]) is SendOutcome.GONE
    received = []
    while (arrived := await router.receive(7))[0].messages:
        received += [frames for burst in arrived for frames in burst.messages]
    assert received == [[b"%d" % n] for n in range(100)]
    assert arrived == [(way[0], b"", [])]
    router.close()


@in_loop
async def test_messages_are_not_sent_to_another_connection_of_the_identity() -> None:
    router = AsyncRouter(PLACE, hwm=10, max_frame=100)
    victim = await shaken(router, b"victim")
    victim.send(b"hello")
    way, _ = await receive_one(router)
    victim.close()
    assert await router.receive(10) == [(way[0], b"", [])]
    thief = await shaken(router, b"victim")
    thief.send(b"me, too")
    its, _ = await receive_one(router)
    assert its[1] == way[1]
    assert router.send(*way, "me", [b"secret"]) is SendOutcome.GONE
    assert router.send(*its, "me", [b"for the thief"]) is SendOutcome.OK
    assert thief.receive() == [b"for the thief"]
    thief.close()
    router.close()


@in_loop
async def test_cutting_a_connection_frees_its_identity() -> None:
    router = AsyncRouter(PLACE, hwm=10, max_frame=100)
    silent = await shaken(router, b"one")
    silent.send(b"hello")
    way, _ = await receive_one(router)
    router.cut(way[0])
    assert await router.receive(10) == [(way[0], b"", [])]
    router.cut(way[0])  # which is over
    again = await shaken(router, b"one")
    again.send(b"again")
    after, frames = await receive_one(router)
    assert (after[1], frames) == (b"one", [b"again"])
    assert after[0] != way[0]
    for peer in (silent, again):
        peer.close()
    router.close()


@in_loop
async def test_only_admitted_keys_connect_and_a_connection_has_its_key() -> None:
    public, secret = zmq.curve_keypair()
    known, unknown = zmq.curve_keypair(), zmq.curve_keypair()
    router = AsyncRouter(
        PLACE, hwm=10, max_frame=10_000, curve_secret=secret, admits=lambda key: key == known[0].decode()
    )
    wrong = AsyncDealer(router.endpoint, hwm=10, max_frame=10_000, curve=Curve(public, *unknown))
    wrong.send_soon([b"hello"])
    assert await wrong.receive(10) == []
    right = AsyncDealer(router.endpoint, hwm=10, max_frame=10_000, curve=Curve(public, *known))
    right.send_soon([b"hello"])
    way, _ = await receive_one(router)
    assert key_of(way[0]) == known[0].decode()
    for dealer in (wrong, right):
        dealer.close()
    router.close()


@in_loop
async def test_invalid_endpoints_are_refused() -> None:
    router = AsyncRouter(PLACE, hwm=10, max_frame=100)
    with pytest.raises(BindFailed, match="cannot listen"):
        AsyncRouter(router.endpoint, hwm=10, max_frame=100)
    with pytest.raises(OptionError, match="not an endpoint"):
        AsyncDealer("tcp://", hwm=10, max_frame=100)
    router.close()
