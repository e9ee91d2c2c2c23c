"""The clients of a broker that will crash: threads that write, commit, read, consume, create and delete, and record
their requests and answers (history.py). They continue across any number of crashes.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial

import mtl
from mtl.client.connection import Connection
from mtl.client.reader import Reader
from mtl.errors import ContentRefused, MtlError, Refused, Unreachable
from mtl.wire.control import Retention, StageSpec
from tests.crash.bodies import body, origin
from tests.crash.history import Commit, Cursor, History, Kept, Observed, Sent

PLAIN, TRUNCATED, TRIMMED, QUEUED = "plain", "truncated", "trimmed", "queued"
GROUP, QUEUE = "group", "queue"

NAMED = ((PLAIN, "one"), (PLAIN, "many"), (TRUNCATED, "other"), (TRIMMED, "old"), (QUEUED, "queue"))
"""Resources and the names of their writers."""

RETENTION = Retention(bytes=200_000)

PATIENCE_S = 120.0
"""How long a client may go without being served before that is an error of the broker, however busy the machine is."""

_LATER = {"storage", "unknown-stage", "unsealed", "overloaded"}
"""Refusals after which a client tries again."""

_UNCONFIRMED = 300
"""A writer waits above this number of unconfirmed contents: otherwise a stopped broker would cost memory and time."""


class Clients:
    """All clients, from `begin` to `end`."""

    def __init__(self, endpoint: str, seed: int) -> None:
        self.history = History()
        self._endpoint = endpoint
        self._seed = seed
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            self._connection = mtl.connect(self._endpoint, request_timeout=1.0, retry_deadline=PATIENCE_S)
        return self._connection

    def begin(self) -> None:
        """Create the resources, and start the threads."""
        connection = self.connection
        for name in (PLAIN, TRUNCATED):
            connection.create_resource(name, exist_ok=True)
        connection.create_resource(TRIMMED, retention=RETENTION, exist_ok=True)
        connection.create_resource(QUEUED, max_deliveries=1_000_000, exist_ok=True)
        connection.cursor_open(GROUP, PLAIN)
        self.history.trimmed.add(TRIMMED)
        for resource, name in NAMED:
            self._start(
                name, partial(self._write, resource, name, packed=resource != QUEUED and name != "one")
            )
        for name, work in (
            ("commits", self._commit),
            ("group", self._read),
            ("consumer", self._consume),
            ("maker", self._make),
        ):
            self._start(name, work)

    def _start(self, name: str, work: Callable[[random.Random], None]) -> None:
        def run() -> None:
            try:
                self._again(partial(work, random.Random(f"{self._seed} {name}")))
            except MtlError as error:
                self.history.troubles.append(f"the client {name}: {type(error).__name__}: {error}")

        thread = threading.Thread(target=run, name=name)
        self._threads.append(thread)
        thread.start()

    @property
    def confirmed(self) -> int:
        """The number of confirmed contents of writers."""
        return sum(sent.confirmed for sent in list(self.history.sent.values()))

    def end(self) -> None:
        """Let all clients finish: then all contents are confirmed and consumed, or the reason is in `troubles`."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._start("last consumer", lambda _: self._drain())
        self._threads[-1].join()

    def close(self) -> None:
        """Abandon unfinished work."""
        self._over.set()
        if self._connection is not None:
            self._connection.drop()
        for thread in self._threads:
            thread.join()

    # --- writers --------------------------------------------------------------------------------------------

    def _write(self, resource: str, name: str, chance: random.Random, *, packed: bool) -> None:
        """Continue after the last content stored by the broker."""
        sent = self.history.sent.setdefault((resource, name), Sent())
        with self.connection.writer(resource, name=name, packed=packed) as writer:
            number = writer.last[resource]
            if number < sent.confirmed:
                self.history.troubles.append(
                    f"{resource}: {sent.confirmed} of {name} are confirmed, {number} known"
                )
                return
            while not self._over.is_set():
                for _ in range(chance.choice((1, 1, 5, 50))):
                    number += 1
                    sent.sent = max(sent.sent, number)
                    assert writer.send(body(name, number)) == number
                    sent.confirmed = max(sent.confirmed, writer.confirmed)
                    if self._over.is_set():
                        break
                while number - writer.confirmed > _UNCONFIRMED and not self._over.wait(0.005):
                    pass
                self._over.wait(chance.choice((0.0, 0.001, 0.01, 0.03)))
            writer.flush()
            sent.confirmed = max(sent.confirmed, number)

    # --- commits --------------------------------------------------------------------------------------------

    def _commit(self, chance: random.Random) -> None:
        version = 0
        while not self._over.is_set():
            version += 1
            contents = {PLAIN: chance.choice((1, 10, 40)), TRUNCATED: chance.choice((1, 10))}
            commit = Commit("app", version, contents, (TRUNCATED,) if chance.random() < 0.2 else ())
            self.history.commits.append(commit)
            self._again(partial(self._attempt, commit, chance))
            self._over.wait(chance.choice((0.0, 0.02, 0.1)))

    def _attempt(self, commit: Commit, chance: random.Random) -> None:
        """Stage the contents and commit them: the same ones in every attempt."""
        connection = self.connection
        spec = StageSpec(application=commit.application, version=commit.version)
        writer = connection.writer(list(commit.contents), packed=chance.random() < 0.7, stage=spec)
        try:
            for resource, count in commit.contents.items():
                for number in range(1, count + 1):
                    writer.send(body(commit.writer, number), resource=resource)
            stage = writer.seal().stage
        except (
            ContentRefused
        ) as error:  # a failing disk has stopped the stage; the next attempt has another one
            writer.abandon()
            raise Refused(503, "storage", str(error)) from error
        except MtlError:
            writer.abandon()
            raise
        answer = connection.stage_commit(
            commit.application, commit.version, [stage], query="query", truncate=commit.truncate
        )
        commit.floors = {
            key: sent.sent for key, sent in self.history.sent.items() if key[0] in commit.truncate
        }
        commit.first = {name: published.first for name, published in answer.resources.items()}

    def _again(self, attempt: Callable[[], None]) -> None:
        """Repeat until success: a broker with a failing disk answers 503, and may have lost an uncommitted stage."""
        refused_since = None
        while True:
            began = time.monotonic()
            try:
                return attempt()
            except Refused as error:
                if error.reason not in _LATER:
                    raise
                now = time.monotonic()
                if refused_since is None or now - began > 1.0:
                    refused_since = now
                if now - refused_since > PATIENCE_S:
                    raise
            time.sleep(0.02)

    # --- readers --------------------------------------------------------------------------------------------

    def _read(self, chance: random.Random) -> None:
        cursor = self.history.cursors.setdefault((GROUP, PLAIN), Cursor())
        packed = chance.random() < 0.5
        with self.connection.reader(PLAIN, group=GROUP, holder=GROUP, packed=packed) as reader:
            while not self._over.is_set():
                self._read_some(reader, chance, cursor)
            asked = reader.position
            if asked is not None and asked > cursor.asked:
                cursor.asked = asked
                reader.confirm(asked - 1)
            reader.ping_holder(PATIENCE_S)
        self._describe_cursor(cursor)

    def _read_some(self, reader: Reader, chance: random.Random, cursor: Cursor) -> None:
        for _ in range(chance.choice((1, 10, 100))):
            content = reader.next(0.05)
            if content is None:
                break
            self.history.record_read(PLAIN, content.sequence, origin(content.body))
        asked = reader.position
        if asked is not None and asked > cursor.asked and chance.random() < 0.5:
            cursor.asked = asked
            reader.confirm(asked - 1)
        if chance.random() < 0.05:
            self._describe_cursor(cursor)

    def _describe_cursor(self, cursor: Cursor) -> None:
        for listed in self.connection.cursors(GROUP, PLAIN):
            cursor.durable = max(cursor.durable, listed.position)

    def _consume(self, chance: random.Random) -> None:
        with self.connection.consumer(QUEUED, queue=QUEUE) as consumer:
            while not self._over.is_set():
                content = consumer.next(0.05)
                if content is None:
                    continue
                self.history.was_delivered(
                    QUEUED, content.sequence, origin(content.body), again=content.redelivered
                )
                if chance.random() < 0.02:
                    content.reject(recycle=True)
                else:
                    content.confirm()

    def _drain(self) -> None:
        """Drain the queue, so that every content was delivered at least once."""
        with self.connection.consumer(QUEUED, queue=QUEUE) as consumer:
            deadline = time.monotonic() + PATIENCE_S
            while time.monotonic() < deadline:
                content = consumer.next(0.3)
                if content is not None:
                    self.history.was_delivered(
                        QUEUED, content.sequence, origin(content.body), again=content.redelivered
                    )
                    content.confirm()
                elif not any(queue.unsettled for queue in self.connection.queues(QUEUE, QUEUED)):
                    break
        there = self.connection.describe(QUEUED)[QUEUED]
        missing = set(range(there.earliest, there.next)) - self.history.delivered.get(QUEUED, set())
        if missing:
            self.history.troubles.append(
                f"the queue never delivered {sorted(missing)[:20]} ({len(missing)} in all)"
            )

    # --- resources ------------------------------------------------------------------------------------------

    def _make(self, chance: random.Random) -> None:
        number, lasting = 0, self.history.lasting
        while not self._over.is_set():
            number += 1
            name = f"made-{number}"
            lasting[name] = None
            self._again(partial(self._made, name))
            lasting[name] = True
            there = [other for other, is_there in lasting.items() if is_there]
            if len(there) > chance.choice((0, 1, 3)):
                gone = chance.choice(there)
                lasting[gone] = None
                self.history.sent.pop((gone, gone), None)
                self._again(partial(self.connection.delete_resource, gone))
                lasting[gone] = False
            self._over.wait(chance.choice((0.02, 0.1)))

    def _made(self, name: str) -> None:
        self.connection.create_resource(name, exist_ok=True)
        with self.connection.writer(name, name=name) as writer:
            sent = Sent(1)
            if not writer.last.get(name):
                writer.send(body(name, 1))
            writer.flush()
            sent.confirmed = 1
        self.history.sent[name, name] = sent


def observe(connection: Connection, *, packed: bool, patience: float = PATIENCE_S) -> Observed:
    """The whole state, read through the protocol."""
    observed = Observed()
    for name in [resource.resource for resource in connection.list_resources()]:
        observed.kept[name] = kept = Kept(0, 0, [])
        try:
            description = connection.describe(name)[name]
            kept.earliest, kept.next, kept.trouble = (
                description.earliest or 0,
                description.next or 0,
                description.trouble or "",
            )
            with connection.reader(name, start="earliest", until=kept.next, packed=packed) as reader:
                while (content := reader.next(patience)) is not None:
                    kept.contents.append((content.sequence, content.body))
        except Refused as error:
            kept.trouble = kept.trouble or str(error)
        except Unreachable:
            pass  # no report: missing contents count as unreported losses
    observed.cursors = {(cursor.group, cursor.resource): cursor.position for cursor in connection.cursors()}
    return observed
