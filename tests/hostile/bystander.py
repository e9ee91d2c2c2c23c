"""python -m tests.hostile.bystander ENDPOINT [asks]: writes, reads and sends requests until it has to stop, or only
sends requests; then it prints its measurements.

It uses only pyzmq and struct: tests.support.minimal_client.
"""

from __future__ import annotations

import json
import select
import sys
import time
from collections.abc import Callable

from tests.support.minimal_client import CONFIRM, MinimalClient, minimal_client

RESOURCE = "bystander"
PAUSE_S = 0.01
AGAIN = b"\0\1"
"""The flags of a Reject: only this content, with recycle."""


class Bystander:
    """One writer and one reader of a resource, and a session for requests."""

    def __init__(self, client: MinimalClient, *, writes: bool) -> None:
        self._client = client
        self._writes = writes
        assert client.ask("Resource.Create", resource=RESOURCE)[0] == 200
        self._reader = client.lease("Reader", resources=[RESOURCE], confirm="full", **{"from": "earliest"})
        self._reader.summon(RESOURCE)
        self._writer = (
            client.lease("Writer", resources=[RESOURCE], confirm="full") if writes else self._reader
        )
        self._written = 0
        self.answers = 0
        self.slowest = 0.0

    def _timed(self, work: Callable[[], None]) -> None:
        began = time.perf_counter()
        work()
        self.answers += 1
        self.slowest = max(self.slowest, time.perf_counter() - began)

    def live(self) -> None:
        """One write, one read and one request."""
        if self._writes:
            self._timed(self._write)
            self._timed(self._read)
        self._timed(self._ask)

    def _write(self) -> None:
        """Write until confirmed: a broker with full memory rejects all contents with recycle."""
        self._written += 1
        while True:
            self._writer.content(self._written, b"%d" % self._written)
            header, _ = self._writer.receive()
            assert int.from_bytes(header[1:9], "big") == self._written
            if header[:1] == CONFIRM:
                return
            assert header[9:] == AGAIN, header
            time.sleep(PAUSE_S)

    def _read(self) -> None:
        sequence, _, _, body = self._reader.read()
        assert (sequence, body) == (self._written, b"%d" % self._written)
        self._reader.confirm(sequence)

    def _ask(self) -> None:
        code, described = self._client.ask("Resource.Describe", resource=RESOURCE)
        assert (code, described["resources"][0]["next"]) == (200, self._written + 1)


def main() -> None:
    """See the module."""
    with minimal_client(sys.argv[1]) as client:
        other_client = Bystander(client, writes=sys.argv[2:] != ["asks"])
        other_client.live()
        other_client.slowest = 0.0  # the slow first round does not count
        print("served", flush=True)
        while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
            other_client.live()
        other_client.live()
        print(json.dumps({"answers": other_client.answers, "slowest": other_client.slowest}))


if __name__ == "__main__":
    main()
