"""The mc0 door with a real broker: its client, and bare DEALERs that implement only the document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import zmq
import zmq.asyncio

from mtl.client import aio
from mtl.client.aio import Connection
from mtl.doors.addresses import DEFAULTS
from mtl.doors.config import DoorConfig
from mtl.doors.mc0 import client as mc0
from mtl.doors.mc0.door import Mc0Door
from mtl.doors.running import Door, running
from mtl.errors import Refused, Unreachable
from mtl.net.curve import read_public, write_keys
from mtl.testing import RunningBroker
from mtl.wire.fields import Value
from tests.support.aio import in_loop, until
from tests.support.doors import BODIES, PROPERTIES, door
from tests.support.zmtp import RawPeer

ANYWHERE = "tcp://127.0.0.1:0"


class Bare:
    """A DEALER and the document."""

    def __init__(self, endpoint: str, *before: bytes) -> None:
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(endpoint)
        self._before = list(before)

    async def send(self, *frames: str | bytes) -> None:
        encoded = [frame.encode() if isinstance(frame, str) else frame for frame in frames]
        await self._socket.send_multipart([*self._before, *encoded])

    async def receive(self) -> list[bytes]:
        return list(await self._socket.recv_multipart())

    async def ask(self, *frames: str | bytes) -> list[bytes]:
        await self.send(*frames)
        return await self.receive()

    async def silent(self, seconds: float = 0.1) -> bool:
        return not await self._socket.poll(int(seconds * 1000))

    def close(self) -> None:
        self._socket.close()
        self._context.term()


@asynccontextmanager
async def at(broker: RunningBroker, max_sessions: int = 100) -> AsyncIterator[tuple[Door, Connection]]:
    async with door("mc0", broker.endpoint, ANYWHERE, max_sessions=max_sessions) as opened:
        yield opened


async def shaken(endpoint: str, identity: bytes) -> RawPeer:
    """A peer with this identity, whose TCP connection is driven by the test."""
    return await asyncio.to_thread(RawPeer(endpoint, identity).shake_hands)


async def ask(peer: RawPeer, *frames: bytes) -> list[bytes]:
    peer.send(*frames)
    return await asyncio.to_thread(peer.receive)


async def ask_until_answered(endpoint: str, identity: bytes, *frames: bytes) -> tuple[RawPeer, list[bytes]]:
    """Send the request on new connections until one is answered: a ROUTER ignores a second one of an identity."""
    for _ in range(20):
        peer = await shaken(endpoint, identity)
        peer.socket.settimeout(1.0)
        try:
            return peer, await ask(peer, *frames)
        except TimeoutError:
            peer.close()
    raise TimeoutError


@asynccontextmanager
async def bare(endpoint: str, *before: bytes) -> AsyncIterator[Bare]:
    client = Bare(endpoint, *before)
    try:
        yield client
    finally:
        client.close()


@pytest.mark.requirement("MC0-01", "MC0-02", "MC0-22", "MC0-23", "MC0-27")
@in_loop
async def test_put_messages_are_delivered_and_durable(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, broker_client), mc0.connect(opened.endpoint) as c:
        async with c.reader("orders") as r:
            async with c.writer("orders") as w:
                for body in BODIES:
                    await w.send(body, PROPERTIES)
            received = [await r.next() for _ in BODIES]
        assert [content.body for content in received] == BODIES
        assert [content.sequence for content in received] == [1, 2, 3, 4]
        assert all(content.properties == PROPERTIES for content in received)
        assert received[0].content_type == PROPERTIES["content-type"]
        async with broker_client.reader("orders", until=5) as log:
            stored = [(content.body, content.properties) async for content in log]
        assert stored == [(body, PROPERTIES) for body in BODIES]


@in_loop
async def test_properties_are_copied_when_sent(mtl_broker: RunningBroker) -> None:
    async with (
        at(mtl_broker) as (opened, broker_client),
        mc0.connect(opened.endpoint) as c,
        c.writer("orders") as w,
    ):
        properties: dict[str, Value] = {"n": 1}
        await w.send(b"", properties)
        properties["n"] = True  # which is equal
        await w.send(b"", properties)
        await w.flush()
        async with broker_client.reader("orders", start="earliest", until=3) as log:
            assert [content.properties async for content in log] == [{"n": "1"}, {"n": "true"}]


@in_loop
async def test_contents_of_an_mtl_writer_are_delivered(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, broker_client), mc0.connect(opened.endpoint, compat="mc0d") as c:
        async with c.reader("orders") as r, broker_client.writer("orders") as w:
            await w.send(b"typed", {"n": 7, "ok": True, "raw": b"\x00\xff", "none": None})
            received = await r.next()
        assert received.properties == {"n": "7", "ok": "true", "raw": "AP8=", "none": ""}


@pytest.mark.requirement("MC0-05", "MC0-07", "MC0-09", "MC0-13", "MC0-20", "MC0-21", "MC0-25", "MC0-26")
@pytest.mark.parametrize("before", [(), (b"",)], ids=["bare", "delimited"])
@in_loop
async def test_a_client_of_the_document_alone_works(
    mtl_broker: RunningBroker, before: tuple[bytes, ...]
) -> None:
    lead = list(before)
    async with at(mtl_broker) as (opened, _), bare(opened.endpoint, *before) as client:
        assert await client.ask("NOOP", "ID", "1234") == [*lead, b"OK", b"ID", b"1234"]
        await client.send("CONNECT", "VERSION", "0.1", "TTL", "60000")
        await client.send("NOOP")
        assert await client.silent()
        assert await client.ask("SUB", "ID", "s", "", "topic1", "topic2") == [*lead, b"OK", b"ID", b"s"]
        assert await client.ask("SUB", "ID", "t", "", "topic1") == [*lead, b"OK", b"ID", b"t"]
        await client.send("PUT", "TOPIC", "topic1", "X-REPLY-TO", "me", "", b"a", b"", b"c")
        message = await client.receive()
        assert message[: len(lead) + 3] == [*lead, b"MESSAGE", b"TOPIC", b"topic1"]
        assert message[-4:] == [b"", b"a", b"", b"c"]
        headers = dict(zip(message[len(lead) + 1 : -4 : 2], message[len(lead) + 2 : -4 : 2], strict=True))
        assert headers == {b"TOPIC": b"topic1", b"X-REPLY-TO": b"me", b"X-mtl-sequence": b"1"}
        await client.send("UNSUB", "", "topic1")
        assert await client.ask("PUT", "ID", "p", "TOPIC", "topic1", "", b"x") == [*lead, b"OK", b"ID", b"p"]
        assert await client.silent()
        assert await client.ask("DISCONNECT", "ID", "d") == [*lead, b"OK", b"ID", b"d"]


@pytest.mark.requirement("MC0-10", "MC0-24")
@in_loop
async def test_invalid_messages_are_answered_with_error(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, _), bare(opened.endpoint) as client:
        wrong: list[tuple[list[str | bytes], bytes]] = [
            (["PUT", "ID", "1", "", "x"], b"TOPIC"),
            (["PUT", "ID", "1", "TOPIC", "t", "X-mtl-count", "3", "", "x"], b"broker's"),
            (["PUT", "ID", "1", "TOPIC", "t", "", bytes(5 << 20)], b"split it"),
            (["SUB", "ID", "1"], b"topics"),
            (["CONNECT", "ID", "1", "VERSION", "1.0"], b"0.x"),
            (["CONNECT", "ID", "1", "TTL", "soon"], b"whole number"),
            (["MESSAGE", "ID", "1", "TOPIC", "t", "", "x"], b"not a message of a client"),
            (["NOOP", "ID", "1", "odd"], b"no value"),
            (["HELLO", "ID", "1"], b"no verb"),
        ]
        for frames, words in wrong:
            error, message, text, key, number = await client.ask(*frames)
            assert (error, message, key, number) == (b"ERROR", b"MESSAGE", b"ID", b"1"), frames
            assert words in text
        assert (await client.ask(b"\xff"))[:2] == [b"ERROR", b"MESSAGE"]
        malformed: list[list[str | bytes]] = [
            ["NOOP", b"\xff", "x", "ID", b"\xfe"],
            ["PUT", "ID", b"\xfe", "", *["x"] * 10_000],
        ]
        for bad in malformed:
            error, _, _, *carried = await client.ask(*bad)
            assert (error, carried) == (b"ERROR", [b"ID", b"\xfe"])
        await client.send("ERROR", "MESSAGE", "whatever", "ID", "7")
        assert await client.silent()


@pytest.mark.requirement("MC0-11")
@in_loop
async def test_each_id_gets_one_answer_ok_or_error(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, _), bare(opened.endpoint) as client:
        done = [
            ("NOOP",),
            ("CONNECT", "TTL", "60000"),
            ("SUB", "", "t"),
            ("UNSUB", "", "t"),
            ("PUT", "TOPIC", "t", "", "x"),
        ]
        failing = [("SUB",), ("UNSUB",), ("PUT", "", "x"), ("CONNECT", "TTL", "0"), ("MESSAGE",), ("MAYBE",)]
        for number, (verb, *rest) in enumerate((*done, *failing)):
            await client.send(verb, *rest)  # without an ID: OK is silence, ERROR is not
            await client.send(verb, "ID", f"{number}", *rest)
            if number >= len(done):
                assert [(await client.receive())[0], b"MESSAGE" in await client.receive()] == [
                    b"ERROR",
                    True,
                ], verb
            else:
                assert await client.receive() == [b"OK", b"ID", b"%d" % number], verb
        assert await client.ask("DISCONNECT", "ID", "last") == [b"OK", b"ID", b"last"]
        assert await client.silent()


@pytest.mark.requirement("MC0-30")
@in_loop
async def test_defaults_are_those_of_the_implementations(mtl_broker: RunningBroker) -> None:
    assert DEFAULTS["mc0"].endswith(":61616")
    async with at(mtl_broker) as (opened, _), mc0.connect(opened.endpoint):  # no keys: nothing is encrypted
        (peer,) = opened.peers.values()  # type: ignore[attr-defined]
        await until(lambda: peer._session.ttl == 30.0)


@in_loop
async def test_unknown_topics_are_errors_unless_created(mtl_broker: RunningBroker) -> None:
    async with (
        door("mc0", mtl_broker.endpoint, ANYWHERE, create=("a*",)) as (opened, _),
        mc0.connect(opened.endpoint) as c,
    ):
        async with c.writer("apples") as w:
            await w.send(b"1")
        with pytest.raises(Refused, match="unknown-resource"):
            await c.reader("pears")
        writer = await c.writer("pears")
        with pytest.raises(Refused, match="unknown-resource"):
            await (await writer.send(b"1"))


@pytest.mark.requirement("MC0-16", "MC0-17", "MC0-18", "MC0-28")
@in_loop
async def test_a_silent_client_gets_noops_and_becomes_absent(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, _), bare(opened.endpoint) as client:
        assert await client.ask("SUB", "ID", "s", "", "t") == [b"OK", b"ID", b"s"]
        await client.send("CONNECT", "TTL", "1000")
        assert await client.receive() == [b"NOOP"]
        assert await client.silent(0.3)  # absent by then: no more NOOPs
        error, _, text = await client.ask("NOOP")
        assert error == b"ERROR"
        assert b"SUB again" in text
        assert await client.ask("PUT", "ID", "p", "TOPIC", "t", "", "x") == [b"OK", b"ID", b"p"]
        assert await client.silent()  # the subscription has ended
        await client.send("CONNECT", "TTL", "10000")
        assert await client.ask("SUB", "ID", "s", "", "t") == [b"OK", b"ID", b"s"]


@pytest.mark.requirement("MC0-29")
@in_loop
async def test_the_client_reconnects_to_a_restarted_door(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, _):
        endpoint = opened.endpoint
        c = await mc0.connect(endpoint, ttl=0.5)
        r = await c.reader("orders")
        w = await c.writer("orders")
        await (await w.send(b"before"))
        assert (await r.next()).body == b"before"
    async with door("mc0", mtl_broker.endpoint, endpoint) as (opened, _):
        await (await w.send(b"while away"))
        while True:  # the new subscription follows some time after the connection
            answered = await w.send(b"after")
            if (await r.next()).body in {b"while away", b"after"}:
                break
        await answered
        await c.close()


@pytest.mark.requirement("MC0-03")
@in_loop
async def test_a_door_with_a_key_requires_curve(mtl_broker: RunningBroker, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path / "door")
    config = DoorConfig(listen=ANYWHERE, curve_key_file=str(private), create=("*",))
    async with aio.connect(mtl_broker.endpoint) as inner, running("mc0", config, inner) as opened:
        key = read_public(str(public)).decode()
        async with mc0.connect(opened.endpoint, curve_server=key) as c, c.writer("orders") as w:
            await (await w.send(b"secret"))
        with pytest.raises(Unreachable):
            await mc0.connect(opened.endpoint, retry_deadline=0.2)


@pytest.mark.requirement("MC0-08")
@in_loop
async def test_answered_messages_survive_a_kill_of_the_broker(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, broker_client), mc0.connect(opened.endpoint) as c:
        await (await (await c.writer("orders")).send(b"first"))
        w = await c.writer("orders")
        answered = [await w.send(b"%d" % n) for n in range(500)]
        await answered[100]
        await asyncio.to_thread(mtl_broker.kill)
        answered += [await w.send(b"%d" % n) for n in range(500, 900)]
        await asyncio.to_thread(mtl_broker.restart)
        await w.flush()
        async with broker_client.reader("orders", until=902) as log:
            assert [content.body async for content in log] == [b"first", *(b"%d" % n for n in range(900))]


@in_loop
async def test_a_slow_subscriber_gets_every_message_within_a_window(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, broker_client), bare(opened.endpoint) as client:
        client._socket.setsockopt(zmq.RCVHWM, 1)
        assert await client.ask("SUB", "ID", "s", "", "big") == [b"OK", b"ID", b"s"]
        async with broker_client.writer("big") as w:
            for n in range(200):
                await w.send(b"%d" % n + bytes(100_000))
        assert isinstance(opened, Mc0Door)
        (peer,) = opened.peers.values()
        await until(lambda: peer._full_since is not None)
        bodies = [(await client.receive())[-1] for _ in range(200)]
        assert [int(body.rstrip(b"\0")) for body in bodies] == list(range(200))


@in_loop
async def test_a_full_door_refuses_clients_until_others_leave(
    mtl_broker: RunningBroker,
) -> None:
    async with at(mtl_broker, max_sessions=1) as (opened, _):
        async with bare(opened.endpoint) as first_client, bare(opened.endpoint) as second_client:
            assert await first_client.ask("NOOP", "ID", "1") == [b"OK", b"ID", b"1"]
            error, *_ = await second_client.ask("NOOP", "ID", "1")
            assert error == b"ERROR"
        await until(lambda: not opened.peers)  # type: ignore[attr-defined]
        async with bare(opened.endpoint) as later_client:
            assert await later_client.ask("NOOP", "ID", "1") == [b"OK", b"ID", b"1"]


@pytest.mark.requirement("MC0-18")
@in_loop
async def test_a_subscription_ends_with_its_connection(
    mtl_broker: RunningBroker,
) -> None:
    async with at(mtl_broker) as (opened, broker_client):
        await broker_client.create_resource("t", exist_ok=True)
        victim = await shaken(opened.endpoint, b"victim")
        assert await ask(victim, b"SUB", b"ID", b"s", b"", b"t") == [b"OK", b"ID", b"s"]
        victim.close()
        await until(lambda: not opened.peers)  # type: ignore[attr-defined]
        thief = await shaken(opened.endpoint, b"victim")
        assert await ask(thief, b"NOOP", b"ID", b"n") == [b"OK", b"ID", b"n"]
        async with broker_client.writer("t") as w:
            await w.settled(await w.send(b"secret"))
        assert await ask(thief, b"PUT", b"ID", b"p", b"TOPIC", b"u", b"", b"x") == [b"OK", b"ID", b"p"]
        assert await ask(thief, b"NOOP", b"ID", b"m") == [b"OK", b"ID", b"m"]  # and no MESSAGE before it
        thief.close()


@pytest.mark.requirement("MC0-18")
@in_loop
async def test_a_silent_peer_loses_its_identity_after_its_ttl(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, _):
        hanging = await shaken(
            opened.endpoint, b"one"
        )  # as after a loss of its machine: its TCP connection stays open
        assert await ask(hanging, b"CONNECT", b"ID", b"c", b"TTL", b"300") == [b"OK", b"ID", b"c"]
        assert await asyncio.to_thread(hanging.hung_up)
        again, (error, _, text) = await ask_until_answered(
            opened.endpoint, b"one", b"PUT", b"TOPIC", b"t", b"", b"x"
        )
        assert error == b"ERROR"
        assert b"SUB again" in text
        assert await ask(again, b"NOOP", b"ID", b"n") == [b"OK", b"ID", b"n"]
        for peer in (hanging, again):
            peer.close()


@in_loop
async def test_messages_before_a_disconnection_are_handled(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, broker_client):
        peer = await shaken(opened.endpoint, b"brief")
        assert await ask(peer, b"NOOP", b"ID", b"n") == [b"OK", b"ID", b"n"]
        for n in range(500):
            peer.send(b"PUT", b"TOPIC", b"t", b"", b"%d" % n)
        peer.close()
        await until(lambda: not opened.peers)  # type: ignore[attr-defined]
        async with broker_client.reader("t", start="earliest", until=501) as log:
            assert [content.body async for content in log] == [b"%d" % n for n in range(500)]


@pytest.mark.requirement("MC0-19")
@in_loop
async def test_messages_after_a_disconnect_command_are_handled(mtl_broker: RunningBroker) -> None:
    async with (
        at(mtl_broker) as (opened, _),
        bare(opened.endpoint) as first_client,
        bare(opened.endpoint) as second_client,
    ):
        for n in range(300):
            await first_client.send("DISCONNECT")
            await first_client.send("PUT", "ID", f"{n}", "TOPIC", "t", "", bytes(10_000))
        assert [await first_client.receive() for _ in range(300)] == [
            [b"OK", b"ID", b"%d" % n] for n in range(300)
        ]
        assert await second_client.ask("NOOP", "ID", "n") == [b"OK", b"ID", b"n"]
