"""One damaged file in a data directory: all contents are unchanged, or the broker reports the damage.

A directory is filled by the usual clients and left by a clean stop, or by a kill of an idle broker. Its whole state is
read once as the reference. Then, repeatedly, a file of a copy is damaged (a bit is flipped, the file is lost, or
exchanged for another one or an older copy of itself), a broker is started on the copy, and its state is read.

A difference has to be reported: by a line of the broker's log (a warning or worse), a refusal, the `trouble` of a
resource, or `mtl verify`. A content with other octets, or in another's place, is wrong whatever was reported.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

import mtl
from mtl import limits
from mtl.client.connection import Connection
from mtl.errors import Refused, Unreachable
from mtl.wire.control import ApplicationInfo, StageSpec
from tests.crash.bodies import body
from tests.crash.checker import Finding, check
from tests.crash.machine import TRACEBACK, ForkServer, Machine, MachineFailed
from tests.crash.outcomes import SEGMENT_BYTES, Outcome, Spec, ended
from tests.crash.workload import NAMED, PLAIN, TRIMMED, Clients, observe

OLDER = "older"
"""The name of the older copy, taken when the directory is half full; it is next to the directory."""

PENDING = "pending"
"""The application of a stage that is sealed and uncommitted when the broker ends."""

UNDER_LOAD = "damage under load"

UNRECORDED_S = 1.5
"""With UNDER_LOAD a loss of contents that were confirmed in this time before the kill may be undetected: 0.5 s
(PROTOCOL.md 9.3), and a margin for a machine with other work."""

FILL_S = 1.2
"""Seconds in which the clients fill the directory."""

REST_S = 1.5
"""Seconds without work before the broker is killed, so that it has finished its idle writes."""

PATIENCE_S = 20.0
"""A client's timeout for an answer, on a busy machine. A timeout does not count as a report."""

_ENDS = 160
"""Octets at both ends of a file that are flipped more often than the others: headers, marks, last chunks."""

_REPORT = re.compile(r"^\S+ \S+ (WARNING|ERROR|CRITICAL) |^mtl: ", re.MULTILINE)


@dataclass
class Facts:
    """The state as found by clients: contents by (resource, sequence), other facts by name, and refusals. With `floors`
    only the loss of contents below these sequences has to be reported.
    """

    contents: dict[tuple[str, int], bytes] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)
    floors: dict[str, int] | None = None
    refused: list[str] = field(default_factory=list)


def play(spec: Spec, server: ForkServer, place: Path) -> Outcome:
    """Fill a directory, and damage copies of it."""
    began, outcome = time.monotonic(), Outcome(spec)
    try:
        outcome.findings = _play(outcome, server, place, random.Random(spec.seed))
    except MachineFailed as error:
        outcome.findings.append(Finding("wrong", str(error)))
    return ended(outcome, place, began)


def _play(outcome: Outcome, server: ForkServer, place: Path, chance: random.Random) -> list[Finding]:
    source, stage, findings, floors = _fill(outcome.spec, server, place / "source", chance)
    truth, reports = _read(Machine(server, place / "truth", source=source), stage)
    if truth is not None and floors is not None:
        truth.floors, reports = floors, []  # a kill may leave a group that is not whole
    if truth is None or reports:
        findings.append(Finding("wrong", f"reported without a reason: {'; '.join(reports)}"))
    if findings or truth is None:
        return findings
    outcome.contents = len(truth.contents)
    kinds = {"newest segment"} if floors is not None else None
    for number, path in enumerate(_paths(source, outcome.spec.count, chance, kinds)):
        machine = Machine(server, place / f"{number}", source=source)
        what = DAMAGES[outcome.spec.fault](machine.data, path, chance)
        findings += _judge(machine, f"{path} of {machine.data.parent}, {what}", stage, truth)
        outcome.count += 1
    return findings


def _fill(
    spec: Spec, server: ForkServer, place: Path, chance: random.Random
) -> tuple[Path, str, list[Finding], dict[str, int] | None]:
    """A data directory, an uncommitted stage in it, its problems before any damage, and the floors (`Facts`)."""
    data, floors = place / "data", None
    # A new segment records the end of the one before: with UNDER_LOAD there is one only.
    size = limits.SEGMENT_BYTES if spec.fault == UNDER_LOAD else SEGMENT_BYTES
    machine = Machine(server, place, segment_bytes=size)
    machine.start()
    clients = Clients(machine.endpoint, spec.seed)
    try:
        clients.begin()
        with clients.connection.writer(PLAIN, stage=StageSpec(application=PENDING, version=1)) as writer:
            for number in range(1, 20):
                writer.send(body(PENDING, number))
            stage = writer.seal().stage
        time.sleep(FILL_S / 2)
        _copy(machine.data, place.parent / OLDER)
        time.sleep(FILL_S / 2)
        if spec.fault == UNDER_LOAD:
            floors = {x.resource: x.known_next or 1 for x in clients.connection.list_resources()}
            time.sleep(UNRECORDED_S)
            machine.kill()
            data = shutil.copytree(data, place / "killed")
            machine.start()
        clients.end()
        found = check(clients.history, observe(clients.connection, packed=True))
        if chance.random() < 0.5:
            machine.stop()
        else:
            machine.await_rest(REST_S)
            machine.kill()
    finally:
        clients.close()
        if machine.running:
            machine.kill()
    return data, stage, found, floors


def _copy(source: Path, target: Path) -> None:
    """Copy a directory whose files and directories change during the copy."""
    for directory, _, names in os.walk(source):  # a directory removed meanwhile is skipped
        place = target / Path(directory).relative_to(source)
        place.mkdir(parents=True, exist_ok=True)
        for name in names:
            with suppress(FileNotFoundError):
                shutil.copyfile(Path(directory) / name, place / name)


def _paths(source: Path, count: int, chance: random.Random, wanted: set[str] | None) -> list[Path]:
    """Files to damage, of the wanted kinds: these alternate, and each file of a kind is used once before any
    repetition.
    """
    newest = _newest(source)
    kinds: dict[str, list[Path]] = {}
    for path in sorted(source.rglob("*")):
        if path.is_file() and path.stat().st_size:
            kind = "newest segment" if path in newest else path.suffix or path.name
            if wanted is None or kind in wanted:
                kinds.setdefault(kind, []).append(path)
    for paths in kinds.values():
        chance.shuffle(paths)
    in_turns = zip(*map(cycle, kinds.values()), strict=True)
    return [path.relative_to(source) for path in islice(chain.from_iterable(in_turns), count)]


def _newest(data: Path) -> set[Path]:
    """The newest segment of each log."""
    logs = (list(directory.glob("*.segment")) for directory in data.glob("*/**/"))
    return {max(segments) for segments in logs if segments}


# --- what happens to a file ---------------------------------------------------------------------------------


def _flip(data: Path, path: Path, chance: random.Random) -> str:
    octets = bytearray((data / path).read_bytes())
    at = chance.randrange(len(octets))
    if chance.random() < 0.4:
        near = min(at, chance.randrange(_ENDS))
        at = chance.choice((near, len(octets) - 1 - near))
    bit = chance.randrange(8)
    octets[at] ^= 1 << bit
    (data / path).write_bytes(octets)
    return f"bit {bit} of octet {at} flipped"


def _lose(data: Path, path: Path, _: random.Random) -> str:
    (data / path).unlink()
    return "lost"


def _exchange(data: Path, path: Path, chance: random.Random) -> str:
    """Exchange a file for another one of the same name if there is one, such as the first index of another log."""
    others = [x for x in sorted(data.rglob(f"*{path.suffix}")) if x.is_file() and x != data / path]
    alike = [x for x in others if x.name == path.name]
    if not others:
        return "left alone"
    other = chance.choice(alike or others)
    octets = other.read_bytes()
    other.write_bytes((data / path).read_bytes())
    (data / path).write_bytes(octets)
    return f"exchanged for {other.relative_to(data)}"


def _put_back(data: Path, path: Path, _: random.Random) -> str:
    """Restore the file of the half-filled directory; a younger file stays unchanged."""
    older = data.parent.parent / OLDER / path
    if not older.exists():
        return "left alone"
    shutil.copyfile(older, data / path)
    return "an older copy"


def _cut(data: Path, path: Path, chance: random.Random) -> str:
    """Cut a file; mostly near one of its ends."""
    size = (data / path).stat().st_size
    left = chance.choice((chance.randrange(size), min(size - 1, chance.randrange(_ENDS)), size - 1))
    os.truncate(data / path, left)
    return f"cut from {size} to {left} octets"


def _cut_or_flip(data: Path, path: Path, chance: random.Random) -> str:
    return chance.choice((_cut, _flip))(data, path, chance)


DAMAGES: dict[str, Callable[[Path, Path, random.Random], str]] = {
    "flipped bit": _flip,
    "lost file": _lose,
    "exchanged file": _exchange,
    "older file": _put_back,
    "cut file": _cut,
    UNDER_LOAD: _cut_or_flip,
}
"""The damages; with UNDER_LOAD the broker was killed while clients wrote."""


# --- judging ------------------------------------------------------------------------------------------------


def _judge(machine: Machine, what: str, stage: str, truth: Facts) -> list[Finding]:
    """Start a broker on a damaged directory, and compare."""
    try:
        found, reports = _read(machine, stage)
    except MachineFailed as error:
        return [Finding("wrong", f"{what}: {error}")]
    wrong, differences = _compare(truth, found) if found is not None else ([], [])
    if wrong:
        return [Finding("wrong", f"{what}: {'; '.join(wrong[:5])}", len(wrong))]
    if differences and not reports and not machine.command("verify", str(machine.data))[0]:
        return [Finding("undetected", f"{what}: {'; '.join(differences[:5])}")]
    shutil.rmtree(machine.data.parent)
    return []


def _read(machine: Machine, stage: str) -> tuple[Facts | None, list[str]]:
    """The state found by clients (None if the broker refuses to start), and all reports."""
    found = None
    machine.launch()
    if machine.await_ready():
        connection = mtl.connect(machine.endpoint, request_timeout=PATIENCE_S, retry_deadline=PATIENCE_S)
        try:
            found = _facts(connection, stage)
        finally:
            connection.drop()
            machine.kill()
    else:
        machine.ended()
    log = machine.log_text()
    if TRACEBACK in log:
        raise MachineFailed(f"a traceback: {log[log.find(TRACEBACK) :][:3000]}")
    reports = [line for line in log.splitlines() if _REPORT.search(line)]
    if found is None and not reports:
        raise MachineFailed(f"the broker did not start and said no reason; {machine.tail()}")
    return found, reports + (found.refused if found is not None else [])


def _facts(connection: Connection, stage: str) -> Facts:
    found = Facts()

    def of(name: str, ask: Callable[[], Any]) -> None:
        try:
            found.others[name] = ask()
        except Refused as error:
            found.refused.append(f"{name}: {error}")
        except Unreachable:
            pass  # the differences then count as unreported

    of("stages", lambda: [(stage.stage, stage.contents, stage.state) for stage in connection.stages().stages])
    of(
        "applications",
        lambda: [(a.application, a.version, a.digest) for a in connection.stages().applications],
    )
    of("queues", lambda: [(q.group, q.resource, q.position, q.unsettled) for q in connection.queues()])
    # It can be read in no other way.
    of("pending", lambda: connection.stage_commit(PENDING, 1, [stage]).resources[PLAIN])
    _resources(connection, found)
    of(
        "cursors",
        lambda: {(cursor.group, cursor.resource): cursor.position for cursor in connection.cursors()},
    )
    for resource, writer in NAMED:
        of(f"writer {writer}", lambda r=resource, w=writer: _last(connection, r, w))  # type: ignore[misc]
    return found


def _resources(connection: Connection, found: Facts) -> None:
    observed = observe(connection, packed=True, patience=PATIENCE_S)
    for name, kept in observed.kept.items():
        found.contents |= {(name, sequence): octets for sequence, octets in kept.contents}
        if kept.trouble:
            found.refused.append(f"{name}: {kept.trouble}")
    for resource in connection.list_resources():
        settings = (resource.durability, resource.retention, resource.max_deliveries)
        found.others[f"resource {resource.resource}"] = (resource.incarnation, resource.known_next, *settings)


def _applications(connection: Connection) -> list[ApplicationInfo]:
    return connection.stages().applications


def _last(connection: Connection, resource: str, name: str) -> int | None:
    with connection.writer(resource, name=name) as writer:
        return writer.last.get(resource)


def _compare(truth: Facts, found: Facts) -> tuple[list[str], list[str]]:
    """Differences that are always wrong, and those that are allowed if reported."""
    floors = truth.floors

    def counts(key: tuple[str, int]) -> bool:
        return floors is None or key[1] < floors.get(key[0], 1)

    # A commit that was interrupted under load, and waits for its damaged stage, has not truncated its resources yet.
    waiting = {key for key in found.contents if floors is not None and counts(key)} - set(truth.contents)
    wrong = [
        f"{key} is another content"
        for key, octets in found.contents.items()
        if truth.contents.get(key) != octets and counts(key) and key not in waiting
    ]
    first = min((sequence for name, sequence in found.contents if name == TRIMMED), default=0)
    missing = [
        f"{name}: content {sequence} is missing"
        for name, sequence in truth.contents
        if (name, sequence) not in found.contents
        and counts((name, sequence))
        and not (name == TRIMMED and sequence < first)
    ]
    if floors is not None:
        back = [f"{name}: content {sequence} is there again" for name, sequence in sorted(waiting)]
        return wrong, missing + back
    others = [
        f"{name} was {truth.others.get(name)} and is {found.others.get(name)}"
        for name in truth.others
        if found.others.get(name) != truth.others[name]
    ]
    return wrong, missing + others
