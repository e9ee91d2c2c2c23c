"""Revocation: a user is removed while its leases read under load and more of its requests wait for the disk."""

from __future__ import annotations

import json
import os
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import zmq

from mtl.broker.runtime.users import Users
from mtl.testing import RunningBroker
from tests.hostile.harness import PASSWORD, add_user, scenario
from tests.support.minimal_client import (
    CONTENT,
    LEASE,
    RESPONSE,
    SUMMON,
    Flow,
    MinimalClient,
    minimal_client,
    short,
    u64,
)

PATIENCE_S = 20.0
EDIT_S = 5.0
"""The longest allowed duration of a change of the users while the broker writes its records."""
MARK = b"written after the user was removed"
ASKED = 40
"""The number of requests for leases on resources that do not exist yet, sent before the removal, and repeatedly until
it takes effect.
"""


class Victim:
    """A user with a bound reading lease, and a socket on which requests need not wait for their answers."""

    def __init__(self, broker: RunningBroker, name: str, client: MinimalClient) -> None:
        self.name, self._client, self._asked = name, client, 0
        self.tokens: list[str] = []
        self._session = self._logged_in()
        assert client.ask("Connection.Profile", profile="log", session=self._session)[0] == 200
        granted = client.granted(
            "Reader", resources=["load"], confirm="none", session=self._session, **{"from": "earliest"}
        )
        self.port = granted["port"]
        self.flow = client.connect(self.port)
        self.flow.lease(granted["lease"])
        self.flow.summon("load")
        self._dealer = client.socket(zmq.DEALER)
        self._dealer.connect(broker.endpoint)

    def _logged_in(self) -> str:
        """Log in; a running broker finds a new user within a second."""
        response = b64encode(f"\0{self.name}\0{PASSWORD}".encode()).decode()
        until = time.monotonic() + PATIENCE_S
        while True:
            code, reply = self._client.ask("Connection.Authorize", mechanism="PLAIN", response=response)
            if code == 201:
                return str(reply["session"])
            assert time.monotonic() < until, reply
            time.sleep(1.0)  # no event reports it; slower than the limit of log-ins
            self._client.open("log")

    def ask(self, count: int) -> None:
        """Requests for leases; each waits for the creation of its resource."""
        for _ in range(count):
            self._asked += 1
            body = {"resources": [f"new-{self.name}-{self._asked}"], "session": self._session}
            self._dealer.send_multipart([b"", b"Connection.Reader", json.dumps(body).encode()])

    def answered(self, count: int) -> set[bytes]:
        """The codes of this number of answers; tokens of leases are kept."""
        codes = set()
        for _ in range(count):
            _, code, body = self._dealer.recv_multipart()
            codes.add(code)
            if code == b"202":
                self.tokens.append(json.loads(body)["lease"])
        return codes

    def until_removed(self) -> None:
        """Send requests until the broker requires another log-in."""
        until = time.monotonic() + PATIENCE_S
        while b"401" not in self.answered(ASKED):
            assert time.monotonic() < until, "the removed user is still served"
            self.ask(ASKED)

    def hears_nothing(self) -> None:
        """Check that neither the reading flow nor any lease granted in between delivers contents written after the
        removal.
        """
        self.flow.sequence += 1
        self.flow.send(SUMMON, u64(self.flow.sequence) + short("load"))
        while (received := self.flow.receive()) != (RESPONSE + u64(self.flow.sequence), b"403"):
            assert received[0][:1] == CONTENT, received
            assert received[1] != MARK, "it read what was written after it was removed"
        for token in self.tokens:
            other = self._client.connect(self.port)
            other.send(LEASE, u64(1) + short(token))
            assert other.receive() == (RESPONSE + u64(1), b"403"), "a lease survived its user"
            other.dealer.close()


@contextmanager
def load(client: MinimalClient) -> Iterator[dict[str, Any]]:
    """Contents without end, and records that change all the time: resources are created and deleted."""
    over, counts = threading.Event(), {"written": 0, "made": 0}

    def write(flow: Flow) -> None:
        while not over.is_set():
            for _ in range(50):
                counts["written"] += 1
                flow.content(counts["written"], os.urandom(100))
            flow.await_confirm(counts["written"])
        counts["written"] += 1
        flow.content(counts["written"], MARK)
        flow.await_confirm(counts["written"])

    def make(other: MinimalClient) -> None:
        while not over.is_set():
            counts["made"] += 1
            assert other.ask("Resource.Create", resource=f"busy{counts['made']}")[0] == 200
            assert other.ask("Resource.Delete", resource=f"busy{counts['made']}")[0] == 200

    with minimal_client(client.endpoint) as other:
        flow = client.lease("Writer", resources=["load"], confirm="full")
        threads = [threading.Thread(target=write, args=(flow,)), threading.Thread(target=make, args=(other,))]
        for thread in threads:
            thread.start()
        try:
            yield counts
        finally:
            over.set()
            for thread in threads:
                thread.join()


@scenario(
    memory=256,
    config='auto-create = ["new-*"]\n[authentication]\nplain-without-encryption = true\n',
)
def revocation_under_load(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Users are removed while they read and while their requests wait. None reads contents written afterwards, and no
    lease granted in between can be bound.
    """
    names = [f"user{n}" for n in range(20 if heavy else 4)]
    slowest = 0.0
    for name in names:
        add_user(broker.data, name, "read .*", "manage .*")
    with minimal_client(broker.endpoint) as client:
        assert client.ask("Resource.Create", resource="load")[0] == 200
        clients = [MinimalClient(broker.endpoint) for _ in names]
        try:
            for victim_client in clients:
                victim_client.open("log")
            victims = [
                Victim(broker, name, victim_client)
                for name, victim_client in zip(names, clients, strict=True)
            ]
            with load(client) as counts:
                for victim in victims:
                    victim.ask(ASKED)
                    began = time.monotonic()
                    with Users(broker.data) as users:
                        users.remove(victim.name)
                    slowest = max(slowest, time.monotonic() - began)
                    victim.until_removed()
            assert slowest < EDIT_S, f"a user was removed after {slowest:.1f} s only"
            for victim in victims:
                victim.hears_nothing()
        finally:
            for victim_client in clients:
                with suppress(zmq.ZMQError):
                    victim_client.close()
    granted = sum(len(victim.tokens) for victim in victims)
    yield (
        f"{len(names)} users removed, {granted} leases of theirs granted before, {counts['written']:,} contents "
        f"and {counts['made']:,} resources meanwhile"
    )
