from __future__ import annotations

import asyncio

from mtl.doors.limits import RS_PART
from mtl.doors.reactive import codec
from mtl.doors.reactive.link import ReactiveLink
from mtl.doors.reactive.session import ReactiveRole
from tests.support.aio import in_loop


class Written:
    """A transport that records writes and receives no octets."""

    waiting = 0

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    peer = None

    async def read(self, incomplete: int = 0) -> bytes:
        return b""

    def write(self, octets: bytes) -> None:
        self.writes.append(octets)

    async def wait_drained(self) -> None:
        """There is nothing to wait for."""

    async def close_transport(self) -> None:
        self.writes.append(b"shut")

    def abort(self) -> None:
        """There is no connection to abort."""


def linked() -> tuple[ReactiveLink, Written]:
    """The end of a door whose stream 1 has an unbounded subscription of the peer."""
    transport = Written()
    link = ReactiveLink(ReactiveRole.SERVER, transport)
    list(
        link.session.received(
            codec.encode(codec.ClientHello()) + codec.encode(codec.Subscribe("orders", 1, 2**63 - 1))
        )
    )
    link.session.publishing.accept(1)
    return link, transport


@in_loop
async def test_messages_of_one_loop_turn_are_one_write() -> None:
    link, transport = linked()
    for body in (b"a", b"b", b"c"):
        await link.publish(1, body)
    assert not transport.writes
    await asyncio.sleep(0)
    (octets,) = transport.writes
    messages = list(codec.ReactiveDecoder().feed(octets))
    assert messages == [codec.ServerHello(), codec.Subscribed(1), codec.OnNexts(1, (b"a", b"b", b"c"))]


@in_loop
async def test_small_elements_are_combined_and_large_ones_split() -> None:
    link, transport = linked()
    half, large = bytes(RS_PART // 2), bytes(RS_PART + 1)
    await link.publish_all(1, [half, half, b"a", large, b"b", b"c"])
    await asyncio.sleep(0)
    _, _, *messages = codec.ReactiveDecoder().feed(b"".join(transport.writes))
    assert messages == [
        codec.OnNexts(1, (half, half, b"a")),
        codec.OnNextPart(1, 0, bytes(RS_PART)),
        codec.OnNextLastPart(1, 0, b"\0"),
        codec.OnNexts(1, (b"b", b"c")),
    ]


@in_loop
async def test_large_output_is_written_without_waiting_for_the_loop() -> None:
    link, transport = linked()
    await link.publish(1, bytes(3 * RS_PART))
    assert len(transport.writes) >= 3
    assert max(map(len, transport.writes)) < 2 * RS_PART


@in_loop
async def test_pending_messages_are_written_before_the_end() -> None:
    link, transport = linked()
    link.session.send_goodbye("enough")
    link.flush()
    await link.close_transport()
    await asyncio.sleep(0)
    octets, end = transport.writes
    assert list(codec.ReactiveDecoder().feed(octets))[-1] == codec.Goodbye("enough")
    assert end == b"shut"


@in_loop
async def test_close_waits_for_the_end_of_the_connection() -> None:
    link, _ = linked()
    closing = asyncio.create_task(link.close("enough"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not closing.done()
    await link.close_transport()
    await asyncio.wait_for(closing, 10)
