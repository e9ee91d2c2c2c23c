"""Requests: too many, too large, too deep, ambiguous."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import zmq

from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.broker.quotas.quotas import DEFAULTS, Quota
from mtl.limits import MAX_RESOURCES_PER_LEASE
from mtl.net.pace import CONNECTION_BURST
from mtl.testing import RunningBroker
from tests.hostile.harness import PASSWORD, scenario
from tests.hostile.scenarios.connections import OPEN, asked
from tests.support.minimal_client import MinimalClient, minimal_client
from tests.support.zmtp import RawPeer

HUGE = limits.MAX_CONTROL_FRAME
UNDER_WAY = 200


def pipelining(client: MinimalClient) -> zmq.Socket[bytes]:
    """A DEALER to the control port, which need not wait for replies, with a session of the profile log."""
    dealer = client.socket(zmq.DEALER)
    dealer.connect(client.endpoint)
    for command, body in (
        (b"Connection.Open", OPEN),
        (b"Connection.Profile", b'{"profile":"log"}'),
    ):
        dealer.send_multipart([b"", command, body])
        assert dealer.recv_multipart()[1][:1] == b"2"
    return dealer


def answers(
    client: MinimalClient, command: str, bodies: Iterable[dict[str, Any]]
) -> list[tuple[int, dict[str, Any]]]:
    """The answers to requests of this client's session, of which UNDER_WAY are sent before their answers come."""
    dealer = client.socket(zmq.DEALER)
    dealer.connect(client.endpoint)
    found: list[tuple[int, dict[str, Any]]] = []

    def receive() -> None:
        _, code, body = dealer.recv_multipart()
        found.append((int(code), json.loads(body)))

    sent = 0
    for body in bodies:
        if sent - len(found) >= UNDER_WAY:
            receive()
        dealer.send_multipart([b"", command.encode(), json.dumps(client.token | body).encode()])
        sent += 1
    while len(found) < sent:
        receive()
    return found


@scenario()
def tiny_requests(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Requests at the highest rate of one connection, all answered."""
    count, window = (1_000_000 if heavy else 20_000), 200
    with minimal_client(broker.endpoint) as client:
        dealer = pipelining(client)
        for number in range(count + window):
            if number < count:
                dealer.send_multipart([b"", b"Connection.Profile", b'{"profile":"log"}'])
            if number >= window:
                assert dealer.recv_multipart()[1] == b"200"
        yield f"{count:,} requests on one connection"


@scenario(memory=128)
def requests_of_the_largest_size(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Deep, long, ambiguous and impossible JSON, each of a megabyte; only the well-formed is answered."""
    rounds = 50 if heavy else 3
    bodies = {
        b"[" * (HUGE - 1): True,  # its end never arrives
        b'{"a":' * (HUGE // 5): True,
        b'{"profile":"log","x":' + b"9" * (HUGE - 100) + b"}": True,
        b'{"profile":"log","x":"\\ud800' + b"x" * (HUGE - 100) + b'"}': True,
        b'{"profile":"log","x":1e' + b"9" * (HUGE - 100) + b"}": True,
        b'{"profile":"log","x":NaN}': False,
        b'{"profile":"log","x":"\xff\xff"}': False,
        b"{" + b'"profile":"test",' * (HUGE // 18) + b'"profile":"log"}': True,
        b'{"profile":' + b" " * (HUGE - 100) + b"12}": True,
        b'{"profile":"' + b"\\u0041" * (HUGE // 7) + b'"}': True,
    }
    with minimal_client(broker.endpoint) as client:
        dealer = pipelining(client)
        for _ in range(rounds):
            for body in bodies:
                dealer.send_multipart([b"", b"Connection.Profile", body])
        dealer.send_multipart([b"", b"Resource.List", b"{}"])
        answers = 0
        while json.loads(dealer.recv_multipart()[2]).get("resources") is None:
            answers += 1
        assert rounds * sum(bodies.values()) - rounds <= answers <= rounds * (sum(bodies.values()) + 1)
        yield f"{rounds * len(bodies)} requests of up to 1 MiB, {answers} answered"


@scenario(memory=96)
def texts_that_would_be_kept(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Ids, holders and conversations of almost a megabyte each, which the broker would remember."""
    count, text = (1_000 if heavy else 200), "x" * (HUGE - 1_000)
    kept = (
        ("Stage.Commit", {"version": 1, "stages": [], "query": text}),
        ("Connection.Writer", {"resources": ["r"], "confirm": "full", "writer": "w", "holder": text}),
        ("Cursor.Open", {"resource": "r", "group": text}),
        ("Resource.Describe", {"resource": "r", "since": text, "wait": 30_000}),
        ("Connection.Authorize", {"mechanism": "SCRAM-SHA-256", "response": text}),
    )
    with minimal_client(broker.endpoint) as client:
        client.ask("Resource.Create", resource="r")
        for number in range(count):
            command, body = kept[number % len(kept)]
            code, answer = client.ask(command, **({"application": f"a{number}"} | body))
            assert (code, answer["reason"]) == (400, "bad-arguments"), (command, code)
        yield f"{count} requests that name something of almost a megabyte"


@scenario(memory=128, users={"control-waits": ("read [0-9]{6}",)})
def describes_that_never_end_waiting(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Requests with the most names: a user gets its share of what may wait, and others still wait for changes."""
    count = 2_000 if heavy else 110
    names = [f"{number:06}" for number in range(MAX_RESOURCES_PER_LEASE)]
    waiting = DEFAULTS[Quota.WAITING_NAMES] // len(names)
    with minimal_client(broker.endpoint, login=("control-waits", PASSWORD)) as client:
        _, answer = client.ask("Resource.Describe")
        asked_for = {"resources": names, "missing-ok": True, "since": answer["state"], "wait": 30_000}
        body = json.dumps(client.token | asked_for).encode()
        dealer = client.socket(zmq.DEALER)
        dealer.connect(client.endpoint)
        for _ in range(count):
            dealer.send_multipart([b"", b"Resource.Describe", body])
        for _ in range(count - waiting):
            assert dealer.recv_multipart()[1] == b"403"
        yield f"{count:,} waiting requests of {len(body) / 1024:.0f} KiB, all but {waiting} refused"


@scenario()
def patterns_that_explode(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    rounds = 50 if heavy else 5
    patterns = (
        "(a+)+$",
        "((a{99}){99}){99}",
        "(a|aa)+$",
        ".*" * 400 + "x",
        "[" * 900,
        "(" * 900,
        r"(\w+\s?)*!",
        "(?=a)",
    )
    with minimal_client(broker.endpoint) as client:
        for number in range(300):
            client.ask("Resource.Create", resource="a" * 200 + f"{number}", durability="os")
        for _ in range(rounds):
            for pattern in patterns:
                code, _ = client.ask("Resource.List", pattern=pattern)
                assert code in {200, 400}
        yield f"{rounds * len(patterns)} patterns over 300 names"


@scenario()
def sessions_without_end(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """One connection each, which distinguishes them; the longest silent ones are evicted. The peers have several
    addresses, since the broker bounds the new connections of each.
    """
    count = broker_limits.MAX_SESSIONS + 5_000 if heavy else 1_000
    for number in range(count):
        peer = RawPeer(
            broker.endpoint, address=f"127.0.0.{1 + number // (CONNECTION_BURST // 2)}"
        ).shake_hands()
        assert asked(peer, b"Connection.Open", OPEN)[0] == b"201"
        peer.close()
    yield f"{count:,} sessions"
