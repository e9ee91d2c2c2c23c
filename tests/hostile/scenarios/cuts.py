"""Connections cut in the middle of transfers, in every profile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import zmq

import mtl
from mtl.testing import RunningBroker
from tests.hostile.harness import scenario
from tests.support.cutting_proxy import BEHIND, HERE, CuttingProxy
from tests.support.minimal_client import Flow, MinimalClient, minimal_client

BETWEEN_S = 0.06
TEST = "resource"
"""The resource of profile test."""
REDELIVERED = b"mtl-redelivered"


@contextmanager
def through_a_proxy(broker: RunningBroker, profile: str, resource: str) -> Iterator[tuple[CuttingProxy, str]]:
    """A proxy for all ports of the broker, and its endpoint."""
    ports = {int(broker.endpoint.rpartition(":")[2])}
    with minimal_client(broker.endpoint, profile) as client:
        if profile != "test":
            assert client.ask("Resource.Create", resource=resource)[0] == 200
            ports.add(client.granted("Writer", resources=[resource], confirm="full", packed=True)["port"])
    with minimal_client(broker.endpoint, profile) as client:
        ports.add(client.granted("Writer", resources=[resource])["port"])
    with CuttingProxy(*ports) as proxy:
        yield proxy, broker.endpoint.replace(BEHIND, HERE)


def cutting(proxy: CuttingProxy, times: int) -> threading.Thread:
    def cut() -> None:
        for _ in range(times):
            time.sleep(BETWEEN_S)  # at a random point of the transfer, different for each cut
            proxy.cut()

    thread = threading.Thread(target=cut)
    thread.start()
    return thread


def write(endpoint: str, resource: str, count: int, profile: str, *, packed: bool) -> threading.Thread:
    """The project's writer, pipelining across every cut."""

    def run() -> None:
        with (
            mtl.connect(endpoint, profile=profile, request_timeout=1.0) as connection,
            connection.writer(resource, packed=packed) as writer,
        ):
            for number in range(count):
                writer.send(b"%d" % number)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def log(broker: RunningBroker, heavy: bool, *, packed: bool) -> str:
    """No content is lost, repeated or out of order: the writer resends unconfirmed contents, the reader continues
    behind its last content.
    """
    count, cuts = (400_000, 60) if heavy else (20_000, 6)
    count *= 10 if packed else 1
    resource = "cut-packs" if packed else "cut"
    with through_a_proxy(broker, "log", resource) as (proxy, endpoint):
        with mtl.connect(endpoint, request_timeout=1.0) as connection:
            threads = [cutting(proxy, cuts), write(endpoint, resource, count, "log", packed=packed)]
            with connection.reader(resource, start="earliest", packed=packed) as reader:
                for number, content in zip(range(count), reader, strict=False):
                    assert (content.sequence, bytes(content.body)) == (number + 1, b"%d" % number)
            for thread in threads:
                thread.join()
        return f"{count:,} contents, each once and in order, through {proxy.cuts} cut connections"


@scenario()
def cuts_in_profile_log(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    yield log(broker, heavy, packed=False)


@scenario()
def cuts_in_profile_log_of_packs(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    yield log(broker, heavy, packed=True)


class Again:
    """A plain reader that requests a new lease after a silence."""

    def __init__(self, endpoint: str, profile: str, resource: str, confirm: str) -> None:
        self._endpoint, self._profile = endpoint, profile
        self._resource, self._confirm = resource, confirm
        self._client: MinimalClient | None = None
        self._lease = ""
        self._flow: Flow | None = None

    def read(self) -> tuple[int, str, bytes, bytes] | None:
        """The next content; None after a silence, with a new lease."""
        try:
            if self._flow is None:
                self._flow = self._begin()
            found = self._flow.read()
            if self._confirm == "full":
                self._flow.confirm(found[0])
        except zmq.Again:
            self.close()
            return None
        return found

    def _begin(self) -> Flow:
        self._client = client = MinimalClient(self._endpoint)
        client.req.setsockopt(zmq.RCVTIMEO, 500)
        client.open(self._profile)
        if self._lease:
            client.ask("Lease.Close", lease=self._lease)  # its unconfirmed contents go to other consumers
        lease = client.granted("Reader", resources=[self._resource], confirm=self._confirm)
        self._lease = lease["lease"]
        flow = client.connect(lease["port"])
        flow.dealer.setsockopt(zmq.RCVTIMEO, 500)
        flow.lease(self._lease)
        flow.summon(self._resource)
        return flow

    def close(self) -> None:
        self._flow = None
        if self._client is not None:
            self._client.close()
            self._client = None


@scenario()
def cuts_in_profile_queue(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Every content arrives, and redeliveries are marked."""
    count, cuts = (100_000, 30) if heavy else (5_000, 4)
    deliveries: dict[bytes, int] = {}
    with through_a_proxy(broker, "queue", "cut-queue") as (proxy, endpoint):
        consumer = Again(endpoint, "queue", "cut-queue", "full")
        threads = [cutting(proxy, cuts), write(endpoint, "cut-queue", count, "queue", packed=False)]
        while len(deliveries) < count:
            found = consumer.read()
            if found is not None:
                _, _, properties, body = found
                assert body not in deliveries or REDELIVERED in properties, "a second delivery without a mark"
                deliveries[body] = deliveries.get(body, 0) + 1
        for thread in threads:
            thread.join()
        consumer.close()
        again = sum(times - 1 for times in deliveries.values())
        yield f"{count:,} contents, {again} delivered again, through {proxy.cuts} cut connections"


@scenario()
def cuts_in_profile_test(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """No contents are kept for absent readers; a continued lease is in order, and a new one starts at 1."""
    rounds = 30 if heavy else 5
    with through_a_proxy(broker, "test", TEST) as (proxy, endpoint):
        with minimal_client(broker.endpoint, "test") as client:
            writer = client.lease("Writer", resources=["resource"])
            for _ in range(rounds):
                reader = Again(endpoint, "test", TEST, "none")
                reader._flow = reader._begin()
                for number in range(1, 201):
                    writer.content(number, b"%d" % number)
                for number in range(1, 101):
                    found = reader.read()
                    assert found is not None
                    assert (found[0], found[3]) == (number, b"%d" % number)
                proxy.cut()
                reader.close()
            writer.quiet()
        yield f"{rounds} readers cut after 100 of 200 contents, {proxy.cuts} connections"
