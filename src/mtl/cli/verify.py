"""`mtl verify`: check all octets of a broker's data directory, without changes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from mtl.cli.common import Json, err, format_octets, out, print_json
from mtl.errors import OptionError
from mtl.log.files import RealDisk
from mtl.log.verify import SegmentReport, verify_log
from mtl.storage.inspection import Finding, compare, inspect_records
from mtl.storage.keys import directory_of
from mtl.storage.records import ResourceRecord


def verify(
    data: Annotated[Path, typer.Argument(help="The data directory of a broker.", metavar="DIR")],
    json: Json = False,
) -> None:
    """Verify every stored content and every record of a data directory, and whether they agree. Exit code 1 if there is
    a problem.

    A broker may run meanwhile; unfinished writes are ignored.
    """
    paths = (*data.glob("resources/*"), *data.glob("stages/*/*"))
    # A directory with a suffix has a log whose creation is unfinished.
    logs = sorted(path for path in paths if path.is_dir() and not path.suffix)
    if not logs and not (data / "broker.db").exists() and not (data / "generation").exists():
        raise OptionError(f"{data} is not a broker's data directory")
    inspection = inspect_records(data)
    names = {directory_of(r): r.name for r in inspection.records if isinstance(r, ResourceRecord)}
    problems = contents = size = 0
    with Progress(console=err, transient=True, disable=not err.is_terminal) as progress:
        for path in progress.track(logs, description="verifying"):
            for report in verify_log(RealDisk(), str(path)):
                contents += report.contents
                size += report.bytes
                problems += len(report.problems)
                place = str(path.relative_to(data))
                _print_results(names.get(place, place), report, json=json)
    findings = [*inspection.findings, *compare(data, RealDisk())]
    for finding in findings:
        _print_finding(finding, json=json)
    problems += len(findings)
    if not json:
        out.print(
            f"{len(logs)} logs, {contents} contents, {format_octets(size)}, {len(inspection.records)} records: "
            f"{problems or 'no'} problems",
            markup=False,
        )
    if problems:
        raise typer.Exit(1)


def _print_results(name: str, report: SegmentReport, *, json: bool) -> None:
    if json:
        print_json(
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


def _print_finding(finding: Finding, *, json: bool) -> None:
    if json:
        print_json({"record": finding.about, "problems": [{"message": finding.problem}]})
    else:
        out.print(f"{finding.about}: {finding.problem}", markup=False, soft_wrap=True)
