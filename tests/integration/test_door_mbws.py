"""The MBWS door with a real broker, tested by bare WebSockets that implement only the document."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from mtl.doors.limits import MBWS_WINDOW
from mtl.doors.mbws.codec import Acknowledge, Connect, Kind, Message, decode, encode
from mtl.doors.mbws.intake import DEAD
from mtl.doors.mbws.session import MBLWS, MBWS
from mtl.testing import RunningBroker
from tests.support.aio import in_loop, until
from tests.support.mbws import at, bare, bodies_of, in_log, names, numbered, written


@pytest.mark.requirement(
    "MBWS-01", "MBWS-02", "MBWS-03", "MBWS-08", "MBWS-09", "MBWS-18", "MBWS-38", "MBWS-58"
)
@pytest.mark.parametrize("kind", Kind)
@in_loop
async def test_a_client_of_the_document_alone_works(shared: RunningBroker, kind: Kind) -> None:
    a = next(names)
    async with at(shared) as (opened, broker_client), bare(opened, f"address={a}&from=earliest") as client:
        connected = await client.connect(kind=kind)
        assert connected.name.startswith("urn:uuid:")
        assert connected.numbers == ()
        for n in range(3):
            await client.send(Message((a,), b"%d" % n, "text/plain", (("k", "v"),)), kind=kind)
        data_frames = [await client.socket.recv() for _ in range(4)]
        assert all(isinstance(data, str) is (kind is Kind.TEXT) for data in data_frames)
        frames = [decode(data) for data in data_frames]
        while (
            len([frame for frame in frames if isinstance(frame, Message)]) < 3 or Acknowledge(3) not in frames
        ):
            frames.append(await client.receive())
        assert [frame for frame in frames if isinstance(frame, Message)] == [
            Message((a,), b"%d" % n, "text/plain", (("k", "v"), ("mtl-sequence", str(n + 1))))
            for n in range(3)
        ]
        assert await in_log(broker_client, a) == [b"0", b"1", b"2"]


@pytest.mark.requirement("MBWS-03", "MBWS-04")
@in_loop
async def test_the_subprotocol_is_negotiated(shared: RunningBroker) -> None:
    async with at(shared) as (opened, _):
        for offered in ([MBLWS, MBWS], ["other", MBWS]):
            async with connect(
                opened.endpoint, subprotocols=[Subprotocol(name) for name in offered]
            ) as socket:
                assert socket.subprotocol == next(name for name in offered if name != "other")
        for nothing in ([Subprotocol("other")], None):
            with pytest.raises(InvalidStatus, match="400"):
                await connect(opened.endpoint, subprotocols=nothing)


@pytest.mark.requirement("MBWS-05", "MBWS-11")
@pytest.mark.parametrize("subprotocol", [MBWS, MBLWS])
@in_loop
async def test_an_answered_close_acknowledges_all_messages_before_it(
    shared: RunningBroker, subprotocol: str
) -> None:
    a = next(names)
    async with at(shared) as (opened, broker_client):
        name = ""
        async with bare(opened, subprotocol=subprotocol) as client:
            if subprotocol == MBWS:
                name = (await client.connect()).name
            await client.send(*numbered(a, range(500)))
            await client.socket.close()
            assert client.socket.close_code == 1000
        assert await in_log(broker_client, a) == [b"%d" % n for n in range(500)]
        if name:
            async with bare(opened) as client:
                assert (await client.connect(name, 0, 1, 500)).name != name


@pytest.mark.requirement("MBWS-33", "MBWS-34", "MBWS-35")
@in_loop
async def test_without_recovery_messages_are_sent_at_once(shared: RunningBroker) -> None:
    a = next(names)
    async with (
        at(shared) as (opened, _),
        bare(opened, f"address={a}&from=earliest&frames=text", MBLWS) as client,
    ):
        await client.send(Connect(), Acknowledge(77), *numbered(a, range(3)))
        for n in range(3):
            data = await client.socket.recv()
            assert isinstance(data, str)
            assert decode(data) == Message((a,), b"%d" % n, "", (("mtl-sequence", str(n + 1)),))
        client.break_off()
        await until(lambda: not opened.peers)  # type: ignore[attr-defined]
        assert not len(opened._connections)  # type: ignore[attr-defined]


@pytest.mark.requirement("MBWS-37", "MBWS-38")
@in_loop
async def test_a_message_is_written_to_each_of_its_addresses(shared: RunningBroker) -> None:
    a, b = next(names), next(names)
    query = f"address={a}&from=earliest&address={b}&from=earliest"
    async with at(shared) as (opened, broker_client), bare(opened, query) as client:
        await client.connect()
        await client.send(Message((a, "", b, a), b"both"))
        messages = await client.messages(2)
        assert sorted(message.addresses for message in messages) == [(a,), (b,)]
        assert [message.body for message in messages] == [b"both", b"both"]
        for address in (a, b):
            assert await in_log(broker_client, address) == [b"both"]


@pytest.mark.requirement("MBWS-40", "MBWS-41")
@in_loop
async def test_an_undeliverable_message_is_acknowledged_and_a_dead_letter(shared: RunningBroker) -> None:
    a = next(names)
    async with at(shared, create=(DEAD, a)) as (opened, broker_client), bare(opened) as client:
        await client.connect()
        await client.send(
            Message(("nowhere", a), b"unknown", "t/t", (("k", "v"),)),
            Message((), b"no address"),
            Message((a,), b"bad", "", (("mtl-sequence", "1"),)),
            Message((a,), b"long", "", tuple((f"{n:04}", "x" * 60) for n in range(990))),
            Message((a,), b"good"),
        )
        await client.acknowledged(5)
        assert await in_log(broker_client, a) == [b"unknown", b"good"]
        async with broker_client.reader(DEAD, start="earliest", until=5) as log:
            letters = {content.body: content.properties async for content in log}
        assert set(letters) == {b"unknown", b"no address", b"bad", b"long"}
        assert letters[b"unknown"].items() >= {"k": "v", "content-type": "t/t"}.items()
        assert letters[b"unknown"]["dead-letter-address"] == "nowhere"
        assert "broker's" in str(letters[b"bad"]["dead-letter-reason"])
    async with at(shared, create=()) as (opened, _), bare(opened) as client:
        await client.connect()
        await client.send(Message(("nowhere",), b""))
        await client.acknowledged(1)


@pytest.mark.parametrize(
    ("query", "data", "code"),
    [
        ("", [b"\3\0\0\0"], 1002),
        ("", [b"\1\0\0", b"\2\1"], 1002),
        ("", [b"\1\0\0", "9 "], 1002),
        ("", [b"\1\1x\1\0"], 1002),
        ("", [b"\1\1\xff\0"], 1007),
        ("", [b"\1\0\0", b"\3\0\0\0" + bytes((4 << 20) + 1)], 1009),
        ("", [bytes(5 << 20)], 1009),
        ("x=y", [], 1008),
        ("address=a%00b", [], 1008),
        ("address=nowhere", [b"\1\0\0"], 1008),
    ],
)
@in_loop
async def test_invalid_requests_end_with_a_close_code(
    shared: RunningBroker, query: str, data: list[bytes | str], code: int
) -> None:
    async with at(shared, create=()) as (opened, _), bare(opened, query) as client:
        for message in data:
            with suppress(ConnectionClosed):
                await client.socket.send(message)
        assert await client.closed() == code
        await until(lambda: not opened.peers)  # type: ignore[attr-defined]
        assert not len(opened._connections)  # type: ignore[attr-defined]


@in_loop
async def test_a_client_without_connect_frame_is_disconnected(
    shared: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtl.doors.mbws.peer.MBWS_CONNECT_S", 0.05)
    async with at(shared) as (opened, _), bare(opened) as client:
        assert await client.closed() == 1002


@in_loop
async def test_unacknowledged_messages_do_not_exceed_the_window(shared: RunningBroker) -> None:
    a = next(names)
    async with at(shared) as (opened, broker_client), bare(opened, f"address={a}&from=earliest") as client:
        await written(broker_client, a, range(MBWS_WINDOW + 100))
        await client.connect()
        assert bodies_of(await client.messages(MBWS_WINDOW)) == list(range(MBWS_WINDOW))
        more = asyncio.create_task(client.messages(100))
        done, _ = await asyncio.wait({more}, timeout=0.1)
        assert not done
        await client.send(Acknowledge(99))
        done, _ = await asyncio.wait({more}, timeout=0.1)
        assert not done
        await client.send(Acknowledge(100))
        assert bodies_of(await more) == list(range(MBWS_WINDOW, MBWS_WINDOW + 100))


@in_loop
async def test_a_slow_client_gets_every_message(shared: RunningBroker) -> None:
    a = next(names)
    async with (
        at(shared) as (opened, broker_client),
        bare(opened, f"address={a}&from=earliest", MBLWS) as client,
    ):
        await broker_client.create_resource(a, exist_ok=True)
        async with broker_client.writer(a) as w:
            for n in range(100):
                await w.send(b"%d" % n + bytes(100_000))
        bodies = [message.body.rstrip(b"\0") for message in await client.messages(100)]
        assert bodies == [b"%d" % n for n in range(100)]


@pytest.mark.requirement("MBWS-55")
@in_loop
async def test_a_peer_may_count_characters_in_binary_frames(shared: RunningBroker) -> None:
    a = "größe-" + next(names)
    query = f"address=gr%C3%B6%C3%9Fe-{a.removeprefix('größe-')}&from=earliest&lengths=characters"
    async with at(shared) as (opened, _), bare(opened, query, MBLWS) as client:
        await client.socket.send(encode(Message((a,), b"hi"), Kind.BINARY, characters=True))
        data = await client.socket.recv()
        assert decode(data, characters=True) == Message((a,), b"hi", "", (("mtl-sequence", "1"),))
