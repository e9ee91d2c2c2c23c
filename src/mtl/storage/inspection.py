"""Inspects the records of a data directory without changing anything, for `mtl verify` and `mtl recover`.

A broker may run on it meanwhile. Every problem is a finding; only a directory that cannot be read raises an error.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from mtl.errors import MtlError, StorageError
from mtl.log.files import Disk
from mtl.log.log import GOING, MAKING
from mtl.storage.database import format_problem
from mtl.storage.generation import GenerationFile, GenerationMark
from mtl.storage.keys import directory_of
from mtl.storage.orphans import Owner, read_orphan
from mtl.storage.records import AnyRecord, DroppedRecord, ResourceRecord, StageRecord, encode_owner
from mtl.storage.rows import Loaded, incomplete, read_rows, state_of


class Finding(NamedTuple):
    """A problem of `about`: a record ("cursor [...]"), a file or a place. `problem` is a sentence."""

    about: str
    problem: str


class Inspection(NamedTuple):
    """The records that verify, and the problems of the file."""

    records: Sequence[AnyRecord]
    findings: list[Finding]


def inspect_records(directory: Path) -> Inspection:
    """Read and check all records: their checksums, their number, their generation, the file's structure."""
    path = directory / "broker.db"
    findings: list[Finding] = []
    mark = _mark(directory, findings)
    if not path.exists():
        if mark is not None and mark.generation:
            findings.append(Finding("broker.db", "is not there"))
        return Inspection((), findings)
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)) as db:
            db.text_factory = lambda octets: octets.decode("utf-8", "surrogateescape")
            return _inspect(db, mark, findings)
    except sqlite3.Error as error:
        return Inspection((), [*findings, Finding("broker.db", str(error))])


def _mark(directory: Path, findings: list[Finding]) -> GenerationMark | None:
    try:
        return GenerationFile(directory).read()
    except MtlError as error:
        findings.append(Finding("generation", str(error)))
        return None


def _inspect(db: sqlite3.Connection, mark: GenerationMark | None, findings: list[Finding]) -> Inspection:
    db.execute("BEGIN")  # everything as it is at one moment
    if (problem := format_problem(db)) is not None:
        findings.append(Finding("broker.db", problem))
        return Inspection((), findings)
    findings += [
        Finding("broker.db", str(problem))
        for (problem,) in db.execute("PRAGMA integrity_check(10)")
        if problem != "ok"
    ]
    loaded = read_rows(db.execute("SELECT kind, key, value, named, crc FROM record ORDER BY kind, key"))
    _check_rows(loaded, mark, findings)
    return Inspection(loaded.records, findings)


def _check_rows(loaded: Loaded, mark: GenerationMark | None, findings: list[Finding]) -> None:
    for damage in loaded.damages:
        about = f"{damage.kind} {damage.key}" if damage.key is not None else "broker.db"
        findings.append(Finding(about, damage.reason))
    findings += [
        Finding(f"{record.kind} {record.key}", "its row has a damaged kind or key")
        for record, _ in loaded.repaired
    ]
    state = state_of(loaded)
    if state is None:
        findings.append(Finding("broker.db", "the row with the state of the records is missing or damaged"))
        return
    try:
        gone = incomplete(loaded, state, "broker.db")
        findings += [Finding(f"records of kind {d.kind}", d.reason) for d in gone]
    except StorageError as error:
        findings.append(Finding("broker.db", str(error)))
    if mark is None:
        if not findings and state.generation > 1:
            findings.append(Finding("generation", "is missing"))
    elif state.database != mark.database:
        findings.append(Finding("broker.db", "belongs to another data directory"))
    elif state.generation < mark.generation:
        lost = mark.generation - state.generation
        findings.append(Finding("broker.db", f"is an older copy: the last {lost} transactions are missing"))


# --- records and logs ---------------------------------------------------------------------------------------


def compare(directory: Path, disk: Disk) -> list[Finding]:
    """The differences between records and logs. A broker may run meanwhile: only differences that are found twice
    count, which logs that it makes or removes are not.
    """
    first = set(_differences(directory, disk))
    return sorted(first & set(_differences(directory, disk))) if first else []


def _differences(directory: Path, disk: Disk) -> Iterator[Finding]:
    orphans = list(_contents_of(directory, disk))
    inspection = inspect_records(directory)
    if not inspection.records:
        return
    owners = {directory_of(r): r for r in inspection.records if isinstance(r, ResourceRecord | StageRecord)}
    dropped = {r.place for r in inspection.records if isinstance(r, DroppedRecord)}
    for place, description in orphans:
        if place not in owners and place not in dropped and disk.exists(f"{directory}/{place}"):
            yield Finding(place, f"no record names it; {description}")
    for place, record in owners.items():
        yield from _compare(directory, disk, place, record)


def _contents_of(directory: Path, disk: Disk) -> Iterator[tuple[str, str]]:
    """Every place with contents, and a description of them."""
    for kind in ("resources", "stages"):
        names = disk.list_dir(f"{directory}/{kind}") if disk.exists(f"{directory}/{kind}") else []
        for name in names:
            if name.endswith((MAKING, GOING)):
                continue
            try:
                orphan = read_orphan(disk, str(directory), f"{kind}/{name}")
            except StorageError:
                continue  # it was removed meanwhile
            if not orphan.is_empty:
                yield orphan.place, str(orphan)


def _compare(directory: Path, disk: Disk, place: str, record: Owner) -> Iterator[Finding]:
    if not disk.exists(f"{directory}/{place}"):
        if isinstance(record, ResourceRecord):
            yield Finding(place, f"the log of resource {record.name!r} of {record.vhost!r} is not there")
        return
    try:
        owner = read_orphan(disk, str(directory), place).owner
    except StorageError as error:
        yield Finding(place, str(error))
        return
    if owner is None or not isinstance(record, ResourceRecord) or not isinstance(owner, ResourceRecord):
        return  # a manifest that does not verify is found with the log
    if owner.earliest > record.earliest:
        yield Finding(place, f"the log begins at {owner.earliest}, and its record says {record.earliest}")
    if owner.incarnation != record.incarnation:
        yield Finding(
            place, f"the log is of incarnation {owner.incarnation}, its record of {record.incarnation}"
        )
    same = msgspec.structs.replace(owner, incarnation=record.incarnation)
    if encode_owner(same) != encode_owner(record):
        yield Finding(
            place, f"the log is one of {_resource_text(owner)}, its record one of {_resource_text(record)}"
        )


def _resource_text(record: ResourceRecord) -> str:
    return f"resource {record.name!r} of {record.vhost!r}, durability {record.durability!r}"
