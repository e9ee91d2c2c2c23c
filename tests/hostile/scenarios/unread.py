"""Peers that ask for everything and read nothing: readers of contents, and clients with unread replies."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import zmq

import mtl
from mtl.limits import MAX_RESOURCES_PER_LEASE
from mtl.testing import RunningBroker
from mtl.wire.packs import encode_pack
from tests.hostile.harness import MIB, PASSWORD, own_memory, scenario
from tests.hostile.scenarios.contents import count_of
from tests.support.minimal_client import LEASE, SUMMON, MinimalClient, earliest, minimal_client

USERS = {"greedy": ("read r.*",), "modest": ("read r.*",)}

UNSENT_MIB, ANSWERS_MIB = 64, 4
CONFIG = f"[quotas]\nunsent-bytes = {UNSENT_MIB << 20}\nunsent-answer-bytes = {ANSWERS_MIB << 20}\n"

CACHES_MIB = 128
"""The newest contents (TAIL_BYTES), and what the process needs for the rest of the scenario."""

RETURNED_S = 30.0
"""Until the memory of peers that have left is returned; the broker looks for it every few seconds."""


@contextmanager
def logged_in(broker: RunningBroker, user: str) -> Iterator[MinimalClient]:
    client = MinimalClient(broker.endpoint)
    try:
        client.open("log", login=(user, PASSWORD))
        yield client
    finally:
        client.close()


def unread(client: MinimalClient, **lease: Any) -> None:
    """A reader that summons `r` and reads nothing."""
    granted = client.granted("Reader", resources=["r"], confirm="none", **lease)
    flow = client.connect(granted["port"], hwm=1)
    flow.ask(LEASE, granted["lease"])
    flow.ask(SUMMON, "r")


def read_all(client: MinimalClient, contents: int, octets: int) -> None:
    """Read `r` from the beginning, through the socket."""
    reader = client.lease("Reader", resources=["r"], **earliest(confirm="none", packed=True))
    reader.summon("r")
    for sequence in range(1, contents + 1):
        found, _, _, body = reader.read()
        assert found == sequence
        assert len(body) > octets


def await_memory(broker: RunningBroker, most: float) -> None:
    until = time.monotonic() + RETURNED_S
    while (left := own_memory(broker.pid)) > most:
        assert time.monotonic() < until, f"{left:.0f} MiB are left, more than {most:.0f}"
        time.sleep(0.1)  # no event tells of it


@scenario(memory=UNSENT_MIB + CACHES_MIB, config=CONFIG, users=USERS)
def unread_packs(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Packed and plain readers of one user at every place of a resource, and one of it and one of another user that
    read everything meanwhile. When the readers have left, their memory is returned.
    """
    readers, contents = (160, 160) if heavy else (40, 96)
    pack = bytes(encode_pack([bytes(MIB)]))
    with logged_in(broker, "greedy") as own, logged_in(broker, "modest") as another:
        with mtl.connect(broker.endpoint) as admin:
            admin.create_resource("r")
        with minimal_client(broker.endpoint) as writing:
            writer = writing.lease("Writer", resources=["r"], confirm="full", packed=True)
            for number in range(1, contents + 1):
                writer.content(number, pack, table=count_of(1))
                writer.await_confirm(number)
        before = own_memory(broker.pid)
        with logged_in(broker, "greedy") as deaf:
            for number in range(readers):
                place = 1 if number % 2 else 1 + number * contents // readers
                unread(deaf, packed=number % 4 < 3, **{"from": place})
            began = time.perf_counter()
            read_all(another, contents, MIB)
            read_all(own, contents, MIB)
            seconds = time.perf_counter() - began
            yield f"{readers} readers; two others read {contents} MiB each in {seconds:.1f} s meanwhile"
        await_memory(broker, before + UNSENT_MIB / 2)


@scenario(memory=ANSWERS_MIB + 32, config=CONFIG, users=USERS)
def unread_replies(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Long answers, which one user asks for on many connections and never reads; another client of this user gets its
    replies.
    """
    peers, rounds, at_once = (160, 40, 3) if heavy else (10, 5, 3)
    names = [f"r{'x' * 240}{number}" for number in range(MAX_RESOURCES_PER_LEASE)]
    with logged_in(broker, "greedy") as client, logged_in(broker, "greedy") as deaf:
        code, answer = client.ask("Resource.Describe", resources=names)
        assert (code, sorted(answer["missing"])) == (404, sorted(names))
        body = json.dumps(deaf.token | {"resources": names}).encode()
        dealers = [deaf.socket(zmq.DEALER, hwm=1) for _ in range(peers)]
        for dealer in dealers:
            dealer.setsockopt(zmq.RCVBUF, 4_096)  # replies wait in the broker and not in the system
            dealer.connect(broker.endpoint)
        for _ in range(rounds):  # the requests take less memory than their answers
            for dealer in dealers * at_once:
                dealer.send_multipart([b"", b"Resource.Describe", body])
            for _ in range(at_once):
                assert client.ask("Resource.Describe", resource=names[0])[0] == 404
        requests = rounds * at_once
        yield f"{peers} connections, {requests} requests each for answers of {len(str(answer)) >> 10} KiB"
