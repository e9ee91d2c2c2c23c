"""Reads a Spark checkpoint: the position of its query in each resource. Needs only the files, not Spark.

metadata         {"id": the query}
offsets/BATCH    "v1", a line about the batch, then the end of each source as JSON or "-"; written before the batch
commits/BATCH    written when the batch is done
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from mtl.errors import OffsetError
from mtl.wire.control import Description
from mtl.wire.history import History
from pyspark_mtl.source import offsets
from pyspark_mtl.source.offsets import Offset


@dataclass(frozen=True)
class HeldResource:
    """A resource in one source of a query: contents before `position` are processed, contents before `planned` are
    planned. The epochs are those of the last content before each (PROTOCOL.md 5.1.1); None without such a content.
    """

    resource: str
    incarnation: str
    position: int
    planned: int
    epoch: str | None = None
    planned_epoch: str | None = None


@dataclass(frozen=True)
class Checkpoint:
    """A query's state: the last `committed` batch (None: none yet), and the last `planned` one."""

    query: str | None
    committed: int | None
    planned: int
    held: tuple[HeldResource, ...]


def read(directory: Path) -> Checkpoint:
    """The state in a checkpoint's directory. OffsetError if the directory has no state, or none of this format."""
    planned = _batches(directory / "offsets")
    if not planned:
        raise OffsetError(
            f"{directory} is not the checkpoint of a streaming query that has begun: it has no offsets/0"
        )
    done = [batch for batch in _batches(directory / "commits") if batch in planned]
    last = _sources(directory, planned[-1])
    before = _sources(directory, done[-1]) if done else {}
    if not last:
        raise OffsetError(
            f"the query of {directory} reads no resource: none of its sources has the format mtl"
        )
    held = (
        resource for at, end in last.items() for resource in _held_resources(before.get(at, Offset()), end)
    )
    return Checkpoint(_query(directory / "metadata"), done[-1] if done else None, planned[-1], tuple(held))


def state_of(held: HeldResource, description: Description | None) -> str:
    """The reason why the query cannot continue to read the resource, or "served" if it can. `description` has the
    epochs of its log.
    """
    if description is None:
        return "deleted"
    if description.incarnation != held.incarnation:
        return "created again"
    if description.known_next is None:
        return f"not open: {description.trouble}"
    if description.next < held.planned:
        return f"ends at {description.next}"
    history = History.of(description.history, description.next)
    for position, epoch in ((held.position, held.epoch), (held.planned, held.planned_epoch)):
        diverges_at = history.diverges_at(position, epoch)
        if diverges_at is not None:
            return f"another copy from {diverges_at} on"
    if held.position < description.earliest:
        return f"lost {held.position} to {description.earliest - 1} ({description.earliest - held.position})"
    return "served"


def _batches(log: Path) -> list[int]:
    """The batch numbers of a log, in order; Spark's other files (checksums, compacted ones) are ignored."""
    if not log.is_dir():
        return []
    return sorted(int(file.name) for file in log.iterdir() if file.name.isascii() and file.name.isdigit())


def _sources(directory: Path, batch: int) -> dict[int, Offset]:
    """The offsets of the sources of format mtl, by their position in the query."""
    file = directory / "offsets" / str(batch)
    try:
        version, *lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise OffsetError(f"{file} cannot be read: {error}") from error
    if version != "v1" or not lines:
        raise OffsetError(
            f"{file} is of version {version[:20]!r} of Spark's offset log; this pyspark-mtl reads v1"
        )
    parsed = {}
    for at, line in enumerate(lines[1:]):
        value = _json(line)
        if isinstance(value, dict) and {"resources", "version"} <= set(value):
            parsed[at] = offsets.parse(value)
    return parsed


def _held_resources(before: Offset, end: Offset) -> list[HeldResource]:
    held = []
    for name, last in sorted(end.resources.items()):
        done = before.resources.get(name)
        known = done is not None and offsets.continues(done, last)
        began = last.next if last.began is None else last.began
        position, epoch = (done.next, done.epoch) if known and done else (began, None)
        held.append(HeldResource(name, last.incarnation, position, last.next, epoch, last.epoch))
    return held


def _query(file: Path) -> str | None:
    value = _json(file.read_text(encoding="utf-8")) if file.is_file() else None
    query = value.get("id") if isinstance(value, dict) else None
    return query if isinstance(query, str) else None


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
