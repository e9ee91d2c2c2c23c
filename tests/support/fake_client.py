"""A broker and its client in memory, as far as the connector uses them: the shapes of mtl.client without sockets.

It appends, delivers, stages and commits as the real one does, and records its calls. Faults are set by the tests.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import pyarrow as pa

from mtl.client.resources import Described
from mtl.client.settings import Settings
from mtl.errors import DataLoss, Fenced, Refused
from mtl.wire.control import Description, Located, Published
from mtl.wire.history import History
from mtl.wire.packs import SCHEMA
from pyspark_mtl import connections
from pyspark_mtl.options.settings import parse, read_settings


@dataclass(frozen=True)
class FakePack:
    resource: str
    first: int
    count: int
    batch: Any
    timestamp_us: int | None


@dataclass
class FakeLog:
    bodies: list[bytes] = field(default_factory=list)
    earliest: int = 1
    incarnation: str = "i1"
    epochs: tuple[tuple[int, str], ...] = ()

    @property
    def next(self) -> int:
        return len(self.bodies) + 1


@dataclass
class FakeReader:
    client: FakeClient
    resource: str
    start: int
    until: int | None
    asked: dict[str, Any]
    holding_epoch: int | None = None
    closed: bool = False

    def batches(self) -> Iterator[FakePack]:
        log, at = self.client.logs[self.resource], self.start
        assert self.until is not None
        while at < min(self.until, log.next):
            if at == self.client.vanishes_at:
                raise self.client.vanishing
            if at in self.client.gaps:
                at = self.client.gaps[at]
                continue
            end = min(at + self.client.chunk, self.until, *(gap for gap in self.client.gaps if gap > at))
            bodies = pa.array(log.bodies[at - 1 : end - 1], pa.binary())
            batch = pa.RecordBatch.from_arrays([pa.nulls(len(bodies), pa.binary()), bodies], schema=SCHEMA)
            yield FakePack(self.resource, at, len(bodies), batch, 1_000_000 + at)
            at = end

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass
class FakeHolder:
    """Holds resources by the rules of `FakeClient.reader`."""

    client: FakeClient
    group: str | None
    holder: str
    positions: dict[str, Any] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    unheld: dict[str, Refused] = field(default_factory=dict)
    confirmed: list[tuple[str, int]] = field(default_factory=list)
    epochs: list[str | None] = field(default_factory=list)
    pings: int = 0
    requests: int = 0
    lost: set[str] = field(default_factory=set)
    closed: bool = False

    def add(self, positions: Mapping[str, Any]) -> None:
        self.requests += 1
        self.positions |= positions
        for name, at in positions.items():
            self.unheld.pop(name, None)
            try:
                self.client.check(name, at.next, incarnation=at.incarnation, log_epoch=at.log_epoch)
                self.held[name] = 7 if self.group is not None else 0
            except Refused as refused:
                self.held.pop(name, None)
                self.unheld[name] = refused

    def forget(self, resource: str) -> None:
        self.positions.pop(resource, None)

    def confirm(self, resource: str, sequence: int, *, log_epoch: str | None = None) -> None:
        self.confirmed.append((resource, sequence))
        self.epochs.append(log_epoch)

    def ping(self) -> None:
        if self.client.fenced:
            raise Fenced("a newer holder took over")
        for name in self.lost:
            self.held.pop(name, None)
        self.lost.clear()
        self.pings += 1

    def close(self) -> None:
        self.closed = True


@dataclass(eq=False)
class FakeWriter:
    client: FakeClient
    resources: Sequence[str]
    stage: str | None
    name: str = ""
    max_content: int = 100
    max_pack: int = 1000
    bodies: dict[str, list[bytes]] = field(default_factory=dict)
    ended: str = ""
    last: dict[str, int] = field(default_factory=dict)
    sent: list[tuple[bytes, dict[str, Any]]] = field(default_factory=list)
    packs: list[int] = field(default_factory=list)

    def send(self, body: bytes, properties: dict[str, Any]) -> None:
        self.sent.append((body, properties))

    def flush(self) -> None:
        """The contents of a named writer are stored, unless another writer took over."""
        if self.client.fences:
            self.client.fences -= 1
            raise Fenced("another writer took over")
        [resource] = self.resources
        self.client.logs[resource].bodies += [body for body, _ in self.sent]
        self.client.letters += [properties for _, properties in self.sent]
        self.client.names[self.name] = self.client.names.get(self.name, 0) + len(self.sent)
        self.sent = []

    def send_pack(self, batch: Any, *, resource: str) -> None:
        assert batch.schema == SCHEMA
        assert resource in self.resources
        self.bodies.setdefault(resource, []).extend(batch.column("body").to_pylist())
        self.packs.append(batch.num_rows)

    def seal(self) -> Any:
        self.ended = "sealed"
        assert self.stage is not None
        self.client.stages[self.stage] = self.bodies
        return SimpleNamespace(stage=self.stage)

    def close(self) -> None:
        self.ended = "closed"
        for resource, bodies in self.bodies.items():
            self.client.logs[resource].bodies += bodies

    def abandon(self) -> None:
        self.ended = "abandoned"


@dataclass
class FakeWatch:
    """Answers when a resource has grown or was recreated, when one appeared or is missing, or when `time_is_up`."""

    client: FakeClient
    names: Sequence[str] | None
    pattern: str | None
    since: str

    @property
    def stands(self) -> bool:
        return not self.client.away

    def is_silent(self, seconds: float) -> bool:
        self.client.silences += 1
        self.client.waits.append(seconds)
        return self.stands and self._news() is None

    def news(self, seconds: float) -> Described | None:
        self.client.waits.append(seconds)
        return self._news()

    def _news(self) -> Described | None:
        if self.client.away:
            return None
        before = self.client.states[int(self.since)]
        news = self.client.changes(self.names, self.pattern, self.since)
        grown = any(
            name not in before or before[name][:2] != (found.incarnation, found.known_next)
            for name, found in news.items()
        )
        return news if grown or news.removed or self.client.time_is_up else None


@dataclass
class FakeClient:
    logs: dict[str, FakeLog] = field(default_factory=dict)
    chunk: int = 4
    vanishes_at: int = 0
    vanishing: Refused = field(default_factory=lambda: Refused(404, "unknown-resource", "it was deleted"))
    gaps: dict[int, int] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    positions: dict[tuple[str, str], int] = field(default_factory=dict)
    fenced: bool = False
    readers: list[FakeReader] = field(default_factory=list)
    holders: list[FakeHolder] = field(default_factory=list)
    writers: list[FakeWriter] = field(default_factory=list)
    stages: dict[str, dict[str, list[bytes]]] = field(default_factory=dict)
    commits: dict[str, tuple[int, dict[str, Published]]] = field(default_factory=dict)
    digests: dict[str, dict[str, str]] = field(default_factory=dict)
    created: dict[str, dict[str, Any]] = field(default_factory=dict)
    aborted: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    letters: list[dict[str, Any]] = field(default_factory=list)
    fences: int = 0
    states: list[dict[str, tuple[str, int, int]]] = field(default_factory=list)
    watches: list[dict[str, int]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    looks: int = 0
    histories: int = 0
    silences: int = 0
    away: bool = False
    time_is_up: bool = False
    between: Callable[[], object] = lambda: None
    """Called after a description was made, and before its reader sends another request."""
    shut: int = 0
    """For this number of further descriptions the broker cannot open the logs."""
    settings: Any = field(default_factory=lambda: SimpleNamespace(retry_deadline=10.0))
    user: str | None = None

    def own_name(self, name: str) -> str:
        return name if self.user is None else f"{self.user}.{name}"

    def describe(
        self,
        names: Sequence[str] | None = None,
        pattern: str | None = None,
        *,
        missing_ok: bool = False,
        since: str | None = None,
        history: bool = False,
    ) -> Described:
        self.looks += not history
        self.histories += history
        assert missing_ok
        if since is not None:
            return self.changes(names, pattern, since)
        found = self.found(names, pattern, history=history)
        self.between()
        return found

    def covers(self, name: str, names: Sequence[str] | None, pattern: str | None) -> bool:
        return name in names if names is not None else pattern is None or bool(re.fullmatch(pattern, name))

    def found(self, names: Sequence[str] | None, pattern: str | None, *, history: bool = False) -> Described:
        covered = sorted(name for name in self.logs if self.covers(name, names, pattern))
        return Described(
            {name: self._description(name, history=history) for name in covered}, self._state(), None
        )

    def changes(self, names: Sequence[str] | None, pattern: str | None, since: str) -> Described:
        before, now = self.states[int(since)], self.states[int(self._state())]
        covered = [name for name in {**before, **now} if self.covers(name, names, pattern)]
        changed = [name for name in covered if name in now and before.get(name) != now[name]]
        removed = [name for name in covered if name not in now]
        return Described({name: self._description(name) for name in changed}, self._state(), removed)

    def _state(self) -> str:
        self.states.append(
            {name: (log.incarnation, log.next, log.earliest) for name, log in self.logs.items()}
        )
        return str(len(self.states) - 1)

    def watch(
        self, names: Sequence[str] | None, pattern: str | None, *, since: str, wait: float
    ) -> FakeWatch:
        self.watches.append({name: found[1] for name, found in self.states[int(since)].items()})
        return FakeWatch(self, names, pattern, since)

    def _description(self, name: str, *, history: bool = False) -> Description:
        log = self.logs[name]
        if self.shut:
            self.shut -= 1
            return Description(
                resource=name, incarnation=log.incarnation, state="stopped", trouble="no space left"
            )
        return Description(
            resource=name,
            incarnation=log.incarnation,
            known_earliest=log.earliest,
            known_next=log.next,
            log_epoch=log.epochs[-1][1] if log.epochs else None,
            history=log.epochs if history else None,
            bytes=10 * len(log.bodies),
        )

    def create_resource(self, name: str, *, exist_ok: bool = False, **wanted: Any) -> Description:
        self.logs.setdefault(name, FakeLog())
        self.created[name] = wanted
        return self._description(name)

    def locate_time(self, resource: str, timestamp_us: int) -> tuple[int, bool]:
        found = self.times.get(timestamp_us)
        return (self.logs[resource].next, False) if found is None else (found, True)

    def locate_end(self, resource: str, start: int, *, bytes: int) -> int:  # noqa: A002 as the client's
        return start + max(self.chunk, bytes // 10)

    def unread(self, resource: str, start: int, contents: int, *, incarnation: str) -> Located:
        if resource not in self.logs:
            raise Refused(404, "unknown-resource", "it is gone")
        assert incarnation == self.logs[resource].incarnation
        return Located(sequence=start + contents, timestamp=1_000_000 + start, bytes=10 * contents)

    def cursor_open(self, group: str, resource: str, *, incarnation: str | None = None) -> Any:
        return SimpleNamespace(
            position=self.positions.setdefault((group, resource), self.logs[resource].earliest)
        )

    def cursors(self, *, group: str | None = None, resource: str | None = None) -> list[Any]:
        return [
            SimpleNamespace(resource=name, position=position, incarnation=self.logs[name].incarnation)
            for (owner, name), position in self.positions.items()
            if owner == group and resource in {None, name}
        ]

    def check(self, resource: str, start: int, *, incarnation: str | None, log_epoch: str | None) -> None:
        log = self.logs.get(resource)
        if log is None:
            raise Refused(404, "unknown-resource", f"no such resource: {resource}", missing=[resource])
        if incarnation not in {None, log.incarnation}:
            raise Refused(409, "incarnation", "another incarnation")
        diverges_at = History(log.epochs, log.next).diverges_at(start, log_epoch)
        if diverges_at is not None and log_epoch:
            raise DataLoss(resource, diverges_at, start, resume=diverges_at)
        if start < log.earliest:
            raise DataLoss(resource, start, log.earliest)

    def hold(self, positions: Mapping[str, Any], *, holder: str, group: str | None = None) -> FakeHolder:
        self.holders.append(FakeHolder(self, group, holder))
        self.holders[-1].add(positions)
        return self.holders[-1]

    def reader(self, resource: str, *, start: int, until: int | None = None, **asked: Any) -> FakeReader:
        self.check(resource, start, incarnation=asked.get("incarnation"), log_epoch=asked.get("log_epoch"))
        reader = FakeReader(
            self, resource, start, until, asked, holding_epoch=7 if asked.get("group") else None
        )
        self.readers.append(reader)
        return reader

    def writer(
        self,
        resources: str | Sequence[str],
        *,
        packed: bool = False,
        stage: Any = None,
        name: str | None = None,
    ) -> FakeWriter:
        names = [resources] if isinstance(resources, str) else list(resources)
        missing = [name for name in names if name not in self.logs]
        if missing:
            raise Refused(404, "unknown-resource", f"no such resource: {missing}", missing=missing)
        if name is not None:
            last = dict.fromkeys(names, self.names.get(name, 0))
            self.writers.append(FakeWriter(self, names, None, name, last=last))
            return self.writers[-1]
        assert packed
        staged = None if stage is None else f"{stage.application}/{stage.version}/{len(self.writers)}"
        self.writers.append(FakeWriter(self, names, staged))
        return self.writers[-1]

    def stage_commit(
        self,
        application: str,
        version: int,
        stages: Sequence[str],
        query: str | None = None,
        truncate: Sequence[str] = (),
        digest: Mapping[str, str] | None = None,
    ) -> Any:
        last, resources = self.commits.get(application, (-1, {}))
        known, digest = self.digests.get(application, {}), dict(digest or {})
        if version <= last:
            if any(digest.get(name, value) != value for name, value in known.items()):
                raise Refused(409, "other-contents", "other contents", version=last, digest=known)
            return SimpleNamespace(already=True, resources=resources, digest=known)
        resources = {}
        for name in truncate:
            if name not in self.logs:
                raise Refused(404, "unknown-resource", f"no such resource: {name}", missing=[name])
            resources[name] = Published(first=self.logs[name].next, contents=0)
            self.logs[name].earliest = self.logs[name].next
        for stage in stages:
            for name, bodies in self.stages.pop(stage).items():
                before = resources.get(name, Published(first=self.logs[name].next, contents=0))
                resources[name] = Published(first=before.first, contents=before.contents + len(bodies))
                self.logs[name].bodies += bodies
        self.commits[application], self.digests[application] = (version, resources), digest
        return SimpleNamespace(already=False, resources=resources, digest=digest)

    def stage_abort(self, stages: Sequence[str]) -> None:
        self.aborted += stages

    def stage_forget(self, application: str) -> None:
        self.forgotten.append(application)


DEFAULT: Settings = read_settings(parse({"resources": "any"}), streaming=True).connect


def install(client: FakeClient, monkeypatch: Any, connect: Settings = DEFAULT) -> FakeClient:
    """Make this client the connection of the process."""
    monkeypatch.setitem(connections._connections, (os.getpid(), connect), client)
    return client
