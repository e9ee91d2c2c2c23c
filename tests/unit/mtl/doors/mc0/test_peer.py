"""One peer of the door, without a socket and a broker."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from mtl.doors.limits import MC0_TOPICS
from mtl.doors.mc0.codec import ID, TEXT, TOPIC, Mc0Message, Verb, decode, encode
from mtl.doors.mc0.peer import Batch, Mc0Peer
from mtl.net.router import SendOutcome
from tests.support.aio import in_loop, until
from tests.support.bridge import ConfirmingBridge


class Sent:
    """The messages that the door sent to the peer."""

    def __init__(self) -> None:
        self.messages: list[Mc0Message] = []
        self.full = 0
        """So many attempts find the peer's queue full."""
        self.on_message: Callable[[], object] = bool

    def __call__(self, frames: list[bytes]) -> SendOutcome:
        if self.full:
            self.full -= 1
            return SendOutcome.FULL
        self.messages.append(decode(frames)[0])
        self.on_message()
        return SendOutcome.OK


def new_peer(given_up: Callable[[], None] = lambda: None) -> tuple[Mc0Peer, ConfirmingBridge, Sent]:
    bridge, sent = ConfirmingBridge(), Sent()
    peer = Mc0Peer(
        bridge.session,
        sent,
        clock=lambda: 0.0,
        gone=lambda: None,
        given_up=given_up,
        absent=False,
    )
    return peer, bridge, sent


async def answer(peer: Mc0Peer, sent: Sent, verb: Verb, *topics: str) -> Mc0Message:
    """The answer to a request."""
    before = len(sent.messages)
    request = Mc0Message(verb, {ID: "1"}, tuple(topic.encode() for topic in topics))
    peer.inbox.put_nowait(Batch([encode(request)]))
    await until(lambda: len(sent.messages) > before)
    (message,) = sent.messages[before:]
    return message


@in_loop
async def test_unsub_closes_the_subscription_before_its_answer() -> None:
    peer, bridge, sent = new_peer()
    assert (await answer(peer, sent, Verb.SUB, "a", "b")).verb is Verb.OK
    sent.on_message = lambda: closed.extend(subscription.closed for subscription in bridge.subscriptions)
    closed: list[bool] = []
    assert (await answer(peer, sent, Verb.UNSUB, "a")).verb is Verb.OK
    assert closed == [True, False]
    await peer.stop()


@pytest.mark.requirement("MC0-10")
@in_loop
async def test_messages_that_arrive_together_go_to_their_topics() -> None:
    peer, bridge, _ = new_peer()
    puts = [("a", b"1"), ("b", b"2"), ("b", b"3"), ("a", b"4")]
    peer.inbox.put_nowait(
        Batch([encode(Mc0Message(Verb.PUT, {TOPIC: topic}, (body,))) for topic, body in puts])
    )
    await until(lambda: len(bridge.appends) == len(puts))
    assert bridge.appends == puts
    assert len(bridge.unconfirmed) == 3, "messages in a row to one topic are published together"
    await peer.stop()


@pytest.mark.requirement("MC0-10", "MC0-24")
@in_loop
async def test_a_subscription_beyond_the_limit_is_an_error() -> None:
    peer, bridge, sent = new_peer()
    topics = [f"{number}" for number in range(MC0_TOPICS)]
    assert (await answer(peer, sent, Verb.SUB, *topics)).verb is Verb.OK
    refused = await answer(peer, sent, Verb.SUB, "one more")
    assert refused.verb is Verb.ERROR
    assert refused.headers[TEXT].startswith(f"413 too-many: {MC0_TOPICS} subscriptions are the most")
    assert len(bridge.subscriptions) == MC0_TOPICS
    assert (await answer(peer, sent, Verb.UNSUB, topics[0])).verb is Verb.OK
    assert (await answer(peer, sent, Verb.SUB, "one more")).verb is Verb.OK
    await peer.stop()


@in_loop
async def test_answers_wait_in_order_for_a_full_queue() -> None:
    peer, _, sent = new_peer()
    sent.full = 3
    peer.inbox.put_nowait(
        Batch([encode(Mc0Message(Verb.SUB, {ID: number}, (b"a",))) for number in ("1", "2")])
    )
    await until(lambda: len(sent.messages) == 2)
    assert [message.headers[ID] for message in sent.messages] == ["1", "2"]
    assert sent.full == 0
    await peer.stop()


@pytest.mark.parametrize(("octets", "answers"), [(1, 9_000), (60_000, 100)])
@in_loop
async def test_a_peer_that_reads_no_answers_is_disconnected(octets: int, answers: int) -> None:
    """An answer repeats the ID of its request, so answers are counted by their octets."""
    ends: list[str] = []
    peer, _, sent = new_peer(lambda: ends.append("given up"))
    sent.full = sys.maxsize
    noop = encode(Mc0Message(Verb.NOOP, {ID: "n" * octets}))
    peer.inbox.put_nowait(Batch([noop] * (answers // 2)))
    await until(peer.inbox.empty)
    assert not ends
    peer.inbox.put_nowait(Batch([noop] * (answers // 2)))
    await until(lambda: bool(ends))
    sent.full = 0
    assert sent.messages == []
    await peer.stop()


@in_loop
async def test_the_answers_to_a_lost_peer_are_dropped() -> None:
    peer, _, sent = new_peer()
    sent.full = 3
    peer.inbox.put_nowait(Batch([encode(Mc0Message(Verb.NOOP, {ID: "1"}))] * 3))
    sent.on_message = peer.connection_lost
    await until(lambda: len(sent.messages) == 1)
    sent.on_message = bool
    await until(lambda: peer._retry is None)
    assert not peer._backlog
    await peer.stop()


@in_loop
async def test_a_stopped_peer_has_closed_its_subscriptions() -> None:
    peer, bridge, sent = new_peer()
    await answer(peer, sent, Verb.SUB, "a", "b")
    await peer.stop()
    assert [subscription.closed for subscription in bridge.subscriptions] == [True, True]
