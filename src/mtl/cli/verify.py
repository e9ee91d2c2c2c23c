"""`mtl verify`: read every byte that a broker keeps, and change none."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.progress import Progress

from mtl.broker.records import ResourceRecord
from mtl.cli.common import Json, err, line, octets, out
from mtl.errors import OptionError
from mtl.log import RealDisk, SegmentReport, verify_log


def verify(
    data: Annotated[Path, typer.Argument(help="The data directory of a broker.", metavar="DIR")],
    json: Json = False,
) -> None:
    """Verify every stored content of a data directory. Exit code 1 when something is wrong.

    A broker may run meanwhile; what it writes at the moment counts as not there yet.
    """
    logs = sorted(path for path in (*data.glob("resources/*"), *data.glob("stages/*/*")) if path.is_dir())
    if not logs and not (data / "broker.db").exists():
        raise OptionError(f"{data} is no data directory of a broker")
    names = _names(data / "broker.db")
    problems = contents = size = 0
    with Progress(console=err, transient=True, disable=not err.is_terminal) as progress:
        for path in progress.track(logs, description="verifying"):
            for report in verify_log(RealDisk(), str(path)):
                contents += report.contents
                size += report.bytes
                problems += len(report.problems)
                _tell(names.get(path.name, str(path.relative_to(data))), report, json=json)
    if not json:
        out.print(
            f"{len(logs)} logs, {contents} contents, {octets(size)}: {problems or 'no'} problems",
            markup=False,
        )
    if problems:
        raise typer.Exit(1)


def _tell(name: str, report: SegmentReport, *, json: bool) -> None:
    if json:
        line(
            {"log": name, **report._asdict(), "problems": [problem._asdict() for problem in report.problems]}
        )
        return
    for problem in report.problems:
        affected = (
            ""
            if problem.first is None
            else f", contents {problem.first} to {(problem.end or report.end) - 1}"
        )
        out.print(
            f"{name}: {problem.path} at {problem.offset}{affected}: {problem.message}",
            markup=False,
            soft_wrap=True,
        )


def _names(database: Path) -> dict[str, str]:
    """Resource names by the directories of their logs; none where the database cannot be read."""
    if not database.exists():
        return {}
    try:
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        try:
            rows = connection.execute("SELECT value FROM record WHERE kind = 'resource'").fetchall()
        finally:
            connection.close()
        records = [msgspec.json.decode(value, type=ResourceRecord) for (value,) in rows]
    except (sqlite3.Error, msgspec.DecodeError):
        return {}
    return {record.log: record.name for record in records}
