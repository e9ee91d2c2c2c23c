"""One peer of the door, without a socket and a broker."""

from __future__ import annotations

import pytest

from mtl.doors.failure_log import PeerAddress
from mtl.doors.limits import MC0_TOPICS
from mtl.doors.mc0.codec import ID, TEXT, Mc0Message, Verb, decode, encode
from mtl.doors.mc0.peer import Mc0Peer
from mtl.net.router import SendOutcome
from tests.support.aio import in_loop, until
from tests.support.bridge import ConfirmingBridge


class Sent:
    """The messages that the door sent to the peer."""

    def __init__(self) -> None:
        self.messages: list[Mc0Message] = []

    def __call__(self, frames: list[bytes]) -> SendOutcome:
        self.messages.append(decode(frames)[0])
        return SendOutcome.OK


def new_peer() -> tuple[Mc0Peer, ConfirmingBridge, Sent]:
    bridge, sent = ConfirmingBridge(), Sent()
    peer = Mc0Peer(
        bridge.bridge,
        PeerAddress(),
        sent,
        clock=lambda: 0.0,
        gone=lambda: None,
        given_up=lambda: None,
        absent=False,
    )
    return peer, bridge, sent


async def answer(peer: Mc0Peer, sent: Sent, verb: Verb, *topics: str) -> Mc0Message:
    """The answer to a request."""
    before = len(sent.messages)
    request = Mc0Message(verb, {ID: "1"}, tuple(topic.encode() for topic in topics))
    await peer.inbox.put([encode(request)])
    await until(lambda: len(sent.messages) > before)
    (message,) = sent.messages[before:]
    return message


@in_loop
async def test_unsub_closes_the_subscription_before_its_answer() -> None:
    peer, bridge, sent = new_peer()
    assert (await answer(peer, sent, Verb.SUB, "a", "b")).verb is Verb.OK
    assert (await answer(peer, sent, Verb.UNSUB, "a")).verb is Verb.OK
    assert [subscription.closed for subscription in bridge.subscriptions] == [True, False]
    await peer.stop()


@pytest.mark.requirement("MC0-10", "MC0-24")
@in_loop
async def test_a_subscription_beyond_the_limit_is_an_error() -> None:
    peer, bridge, sent = new_peer()
    topics = [f"{number}" for number in range(MC0_TOPICS)]
    assert (await answer(peer, sent, Verb.SUB, *topics)).verb is Verb.OK
    refused = await answer(peer, sent, Verb.SUB, "one more")
    assert refused.verb is Verb.ERROR
    assert f"{MC0_TOPICS} subscriptions are the most" in refused.headers[TEXT]
    assert len(bridge.subscriptions) == MC0_TOPICS
    assert (await answer(peer, sent, Verb.UNSUB, topics[0])).verb is Verb.OK
    assert (await answer(peer, sent, Verb.SUB, "one more")).verb is Verb.OK
    await peer.stop()


@in_loop
async def test_a_stopped_peer_has_closed_its_subscriptions() -> None:
    peer, bridge, sent = new_peer()
    await answer(peer, sent, Verb.SUB, "a", "b")
    await peer.stop()
    assert [subscription.closed for subscription in bridge.subscriptions] == [True, True]
