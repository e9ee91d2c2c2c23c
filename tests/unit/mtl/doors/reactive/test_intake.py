"""The contents of one producer, at a broker that confirms on request. The producer is the test."""

from __future__ import annotations

import asyncio
import gc

import pytest

from mtl.doors.limits import DOOR_RUN_CONTENTS, RS_DEMAND
from mtl.doors.reactive import codec
from mtl.doors.reactive.intake import ReactiveIntake
from mtl.doors.reactive.link import ReactiveLink
from mtl.doors.reactive.names import Confirmations
from mtl.doors.reactive.session import ReactiveRole
from mtl.errors import Refused
from tests.support.aio import in_loop
from tests.support.bridge import ConfirmingBridge, turns
from tests.unit.mtl.doors.reactive.test_link import Written

P, Q = 5, 0
"""The Ids of the confirmations, which the producer chose, and of the contents."""


class Producer:
    """A producer with this demand for confirmations, after the beginning of both streams."""

    def __init__(self, *, demand: int) -> None:
        self.bridge = ConfirmingBridge()
        self.ended: list[ReactiveIntake] = []
        self._written = Written()
        self._link = ReactiveLink(ReactiveRole.SERVER, self._written)
        self._decoder = codec.ReactiveDecoder()
        self._send(codec.ClientHello(), codec.Subscribe("$publish/orders", P, demand))
        name = Confirmations("orders", "orders")
        self.intake = ReactiveIntake(self._link, self.bridge.session, name, P, self.ended.append)
        self._send(codec.Subscribed(Q))

    async def received(self) -> list[codec.Message]:
        """The door's messages since the last call."""
        await turns()
        octets = b"".join(self._written.writes)
        self._written.writes.clear()
        return list(self._decoder.feed(octets))

    def request(self, demand: int) -> None:
        """Request confirmations."""
        self._send(codec.RequestMore(P, demand))
        self.intake.send_confirmations()

    def _send(self, *messages: codec.Message) -> None:
        list(self._link.session.received(b"".join(map(codec.encode, messages))))


async def producing(*, demand: int = 100) -> Producer:
    producer = Producer(demand=demand)
    assert await producer.received() == [
        codec.ServerHello(),
        codec.Subscribed(P, 8),
        codec.Subscribe("orders", Q, RS_DEMAND),
    ]
    return producer


def number(n: int) -> bytes:
    return n.to_bytes(8, "big")


@in_loop
async def test_elements_are_confirmed_by_their_count_and_requested_again() -> None:
    producer = await producing()
    await producer.intake.publish((b"a", b"b"))
    await producer.intake.publish((b"c",))
    assert producer.bridge.appends == [("orders", b"a"), ("orders", b"b"), ("orders", b"c")]
    assert await producer.received() == []
    await producer.bridge.confirm()
    assert await producer.received() == [
        codec.OnNextPacked(P, (number(1), number(2))),
        codec.RequestMore(Q, 2),
    ]
    await producer.bridge.confirm()
    assert await producer.received() == [codec.OnNext(P, number(3)), codec.RequestMore(Q, 1)]
    producer.intake.end()


@in_loop
async def test_runs_that_are_confirmed_together_have_one_message() -> None:
    producer = await producing()
    await producer.intake.publish((b"a",))
    await producer.intake.publish((b"b",))
    for appended in producer.bridge.unconfirmed:
        appended.set_result(None)
    assert await producer.received() == [
        codec.OnNextPacked(P, (number(1), number(2))),
        codec.RequestMore(Q, 2),
    ]
    producer.intake.end()


@in_loop
async def test_elements_beyond_one_run_are_published_in_several() -> None:
    producer = await producing()
    bodies = [b"%d" % n for n in range(DOOR_RUN_CONTENTS + 1)]
    await producer.intake.publish(tuple(bodies))
    assert [body for _, body in producer.bridge.appends] == bodies
    assert len(producer.bridge.unconfirmed) == 2
    producer.intake.end()


@in_loop
async def test_confirmations_wait_for_demand_and_requests_for_contents_do_not() -> None:
    producer = await producing(demand=1)
    await producer.intake.publish((b"a", b"b", b"c"))
    await producer.bridge.confirm()
    assert await producer.received() == [codec.OnNext(P, number(1)), codec.RequestMore(Q, 3)]
    producer.request(1)
    assert await producer.received() == [codec.OnNext(P, number(2))]
    producer.request(1)
    assert await producer.received() == [codec.OnNext(P, number(3))]
    producer.intake.end()


@in_loop
async def test_the_end_of_the_contents_is_answered_behind_the_last_confirmation() -> None:
    producer = await producing(demand=0)
    await producer.intake.publish((b"a",))
    producer.intake.finish()
    await producer.bridge.confirm()
    assert await producer.received() == [codec.RequestMore(Q, 1)]
    assert producer.ended == []
    producer.request(1)
    assert await producer.received() == [codec.OnNext(P, number(1)), codec.OnComplete(P)]
    assert producer.ended == [producer.intake]


@in_loop
async def test_the_end_of_confirmed_contents_is_answered_at_once() -> None:
    producer = await producing()
    producer.intake.finish()
    assert await producer.received() == [codec.OnComplete(P)]
    assert producer.ended == [producer.intake]


@in_loop
async def test_a_stop_returns_when_all_contents_are_confirmed_to_the_producer() -> None:
    producer = await producing()
    await producer.intake.publish((b"a",))
    stopping = asyncio.create_task(producer.intake.stop())
    await turns()
    assert not stopping.done()
    await producer.bridge.confirm()
    await stopping
    assert await producer.received() == [
        codec.OnNext(P, number(1)),
        codec.RequestMore(Q, 1),
        codec.OnComplete(P),
    ]


@pytest.mark.parametrize("when", ["at its publication", "later"])
@in_loop
async def test_a_refused_content_ends_both_streams(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = await producing()
    await producer.intake.publish((b"a",))
    refusal = Refused(404, "unknown-resource")
    if when == "later":
        await producer.intake.publish((b"b",))
        producer.bridge.unconfirmed[1].set_exception(refusal)
    else:

        async def refused(_: object) -> None:
            raise refusal

        with monkeypatch.context() as patched:
            patched.setattr(producer.bridge, "publish_run", refused)
            await producer.intake.publish((b"b",))
    await producer.intake.publish((b"c",))
    await producer.bridge.confirm()
    confirmation, request, error, cancel = await producer.received()
    assert (confirmation, request, cancel) == (
        codec.OnNext(P, number(1)),
        codec.RequestMore(Q, 1),
        codec.Cancel(Q),
    )
    assert isinstance(error, codec.OnError)
    assert "unknown-resource" in error.error
    assert producer.ended == [producer.intake]
    appended = list(producer.bridge.appends)
    await producer.intake.publish((b"d",))
    assert producer.bridge.appends == appended


@in_loop
async def test_only_the_first_of_several_failures_is_reported() -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    producer = await producing()
    for body in (b"a", b"b"):
        await producer.intake.publish((body,))
    while producer.bridge.unconfirmed:
        producer.bridge.unconfirmed.pop().set_exception(Refused(404, "unknown-resource"))
    error, cancel = await producer.received()
    assert isinstance(error, codec.OnError)
    assert cancel == codec.Cancel(Q)
    del producer
    gc.collect()
    assert failures == []


@in_loop
async def test_an_end_cancels_the_contents_and_confirms_nothing_more() -> None:
    producer = await producing()
    await producer.intake.publish((b"a",))
    producer.intake.end()
    assert await producer.received() == [codec.Cancel(Q)]
    await producer.bridge.confirm()
    producer.intake.end()
    assert await producer.received() == []
    assert producer.ended == []
