"""python -m tests.hostile.bystander ENDPOINT USER PASSWORD [--asks] [--server KEY]: another user, who uses the broker
all the time.

After each line of its standard input it uses everything once and then prints a phase as one line of JSON: the number of
its answers and of its failures since the line before, the longest delay, and the first failure. With `--asks` it does
not write; `--server` is the broker's CURVE key. It uses only pyzmq and struct: tests.support.minimal_client.
"""

from __future__ import annotations

import argparse
import json
import select
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import zmq

from tests.support.minimal_client import CONFIRM, Flow, MinimalClient

PAUSE_S = 0.01
AGAIN = b"\0\1"
"""The flags of a Reject: only this content, with recycle."""


@dataclass
class Phase:
    """Counts and seconds between two lines of the standard input."""

    answers: int = 0
    failures: int = 0
    slowest: float = 0.0
    slowest_step: str = ""
    failure: str = ""


def ok(client: MinimalClient, command: str, **body: Any) -> dict[str, Any]:
    """The answer to a request that has to be granted."""
    code, answer = client.ask(command, **body)
    assert code in {200, 202}, f"{command}: {code} {answer}"
    return answer


class Visit:
    """A log-in of the user with a profile, and a resource of it that it reads and perhaps writes."""

    def __init__(self, endpoint: str, login: tuple[str, str], server: bytes | None, *, writes: bool) -> None:
        user, _ = login
        self._login = login
        self._endpoint = endpoint
        self._keys = None if server is None else (server, *zmq.curve_keypair())
        self._user = user
        self._writes = writes
        self._resource = f"{user}.r"
        self._state = ""
        self._client = self._logged_in("log")
        try:
            self._ok("Resource.Create", resource=self._resource, **{"exist-ok": True})
            self._written = self._next() - 1
            self._reader = self._lease("Reader", confirm="full", **{"from": self._written + 1})
            self._reader.summon(self._resource)
            self._writer = self._lease("Writer", confirm="full") if writes else self._reader
        except BaseException:  # also when interrupted: nobody else has the connection
            self.close()
            raise
        self.traffic = (self._write, self._read, self._describe) if writes else (self._describe,)
        reading = (self._wait, self._lease_and_name, self._cursor, self._log_in)
        self.uses = (*reading, self._create, self._stage, self._queue) if writes else reading

    def close(self) -> None:
        self._client.close()

    def _logged_in(self, profile: str) -> MinimalClient:
        client = MinimalClient(self._endpoint, keys=self._keys)
        try:
            client.open(profile, login=self._login)
        except BaseException:  # also when interrupted: nobody else has the connection
            client.close()
            raise
        return client

    def _ok(self, command: str, **body: Any) -> dict[str, Any]:
        return ok(self._client, command, **body)

    def _lease(self, kind: str, **body: Any) -> Flow:
        return self._client.lease(kind, resources=[self._resource], **body)

    def _next(self) -> int:
        code, described = self._client.ask("Resource.Describe", resource=self._resource)
        assert code == 200, described
        self._state = described["state"]
        return int(described["resources"][0]["next"])

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

    def _describe(self) -> None:
        assert self._next() == self._written + 1

    def _wait(self) -> None:
        """A request that waits for a change, if there is none."""
        self._ok("Resource.Describe", resource=self._resource, since=self._state, wait=1)

    def _lease_and_name(self) -> None:
        """Leases, the names in them and a writer name."""
        name: dict[str, Any] = (
            {"writer": f"{self._user}.w", "confirm": "full"} if self._writes else {"confirm": "none"}
        )
        kind = "Connection.Writer" if self._writes else "Connection.Reader"
        lease = self._ok(kind, resources=[self._resource], **name)
        self._ok("Lease.Close", lease=lease["lease"])

    def _cursor(self) -> None:
        named: dict[str, Any] = {"group": f"{self._user}.g", "resource": self._resource}
        self._ok("Cursor.Open", **named, **{"from": "earliest"})
        self._ok("Cursor.Describe", **named)
        self._ok("Cursor.Delete", **named)

    def _log_in(self) -> None:
        """A connection and a session of its own, and everything that is visible."""
        client = self._logged_in("log")
        try:
            for command in ("Resource.List", "Resource.Describe", "Stage.Describe", "Queue.Describe"):
                ok(client, command)
        finally:
            client.close()

    def _create(self) -> None:
        self._ok("Resource.Create", resource=f"{self._user}.more")
        self._ok("Resource.Delete", resource=f"{self._user}.more")

    def _stage(self) -> None:
        """A stage of an application, and its commit."""
        of: dict[str, Any] = {"application": f"{self._user}.app", "version": self._written}
        lease = self._ok("Connection.Writer", resources=[self._resource], confirm="full", stage=of)
        self._ok("Lease.Close", lease=lease["lease"])
        self._ok("Stage.Commit", **of, stages=[lease["stage"]])
        self._ok("Stage.Forget", application=of["application"])

    def _queue(self) -> None:
        """A consumer of a queue, which exists as long."""
        client = self._logged_in("queue")
        try:
            queue = {"group": f"{self._user}.q"}
            lease = ok(client, "Connection.Reader", resources=[self._resource], confirm="full", **queue)
            ok(client, "Lease.Close", lease=lease["lease"])
            ok(client, "Queue.Delete", resource=self._resource, **queue)
        finally:
            client.close()


class Bystander:
    """Visits without end: after a failure it begins again, as a client would."""

    def __init__(self, visit: Callable[[], Visit]) -> None:
        self._begin = visit
        self._visit: Visit | None = visit()
        self._next_use = 0
        self.phase = Phase()

    def everything(self) -> None:
        """Each use once."""
        for _ in range(len(self._visit.uses) if self._visit else 1):
            self.live()

    def live(self) -> None:
        """The traffic once, and the next one of the uses."""
        for step in self._steps():
            began = time.perf_counter()
            try:
                step()
                self.phase.answers += 1
            except (AssertionError, TimeoutError, zmq.ZMQError) as error:
                self._failed(f"{step.__name__}: {error}")
                break
            finally:
                self._took(step.__name__, time.perf_counter() - began)

    def _took(self, step: str, seconds: float) -> None:
        if seconds > self.phase.slowest:
            self.phase.slowest, self.phase.slowest_step = seconds, step

    def _steps(self) -> Iterator[Callable[[], None]]:
        if self._visit is None:
            yield self._come
        assert self._visit is not None
        yield from self._visit.traffic
        self._next_use = (self._next_use + 1) % len(self._visit.uses)
        yield self._visit.uses[self._next_use]

    def _come(self) -> None:
        self._visit = self._begin()

    def _failed(self, text: str) -> None:
        self.phase.failures += 1
        self.phase.failure = self.phase.failure or text
        if self._visit is not None:
            self._visit.close()
            self._visit = None
        time.sleep(PAUSE_S)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    for name in ("endpoint", "user", "password"):
        parser.add_argument(name)
    parser.add_argument("--asks", action="store_true")
    parser.add_argument("--server", type=str.encode)
    given = parser.parse_args()
    login = (given.user, given.password)
    bystander = Bystander(lambda: Visit(given.endpoint, login, given.server, writes=not given.asks))
    bystander.everything()
    if bystander.phase.failures:
        sys.exit(bystander.phase.failure)
    bystander.phase = Phase()  # the slow first round does not count
    print("served", flush=True)
    while True:
        if not select.select([sys.stdin], [], [], PAUSE_S)[0]:
            bystander.live()
        elif sys.stdin.readline():
            bystander.everything()
            print(json.dumps(asdict(bystander.phase)), flush=True)
            bystander.phase = Phase()
        else:
            return


if __name__ == "__main__":
    main()
