"""`mtl publish`: publish each line of a file or of standard input as one content."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from mtl.cli.common import Endpoint, connect, err
from mtl.client.limits import LEAVE_S
from mtl.errors import MtlError, OptionError
from mtl.wire.fields import Value

_SHOW_EVERY = 1_000


def publish(
    context: typer.Context,
    resource: Annotated[str, typer.Argument(help="The resource to write to.")],
    file: Annotated[str, typer.Argument(help="A file, or - for standard input.")] = "-",
    property_: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", help="NAME=VALUE on every content; may be repeated."),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the resource if it does not exist.")
    ] = False,
    endpoint: Endpoint = None,
) -> None:
    """Publish every line as one content, without its newline. Returns when all of them are durable."""
    properties = _properties(property_ or [])
    began, count = time.monotonic(), 0
    with _open(file) as lines, connect(context, endpoint) as connection:
        if create:
            connection.create_resource(resource, exist_ok=True)
        with connection.writer(resource, packed=True) as writer:
            try:
                for text in _with_progress(lines, file):
                    writer.send(text.removesuffix(b"\n"), properties)
                    count += 1
            except KeyboardInterrupt:
                with suppress(MtlError):  # the broker is stopped or gone
                    writer.flush(timeout=LEAVE_S)
                durable = count - writer.unconfirmed
                err.print(
                    f"interrupted: {durable} contents published to {resource} are durable", markup=False
                )
                raise
    elapsed = time.monotonic() - began
    err.print(f"{count} contents published to {resource} in {elapsed:.1f} s, all durable", markup=False)


def _properties(given: list[str]) -> dict[str, Value]:
    pairs = [text.partition("=") for text in given]
    if not all(name and equals for name, equals, _ in pairs):
        raise OptionError("a property has the form NAME=VALUE")
    return {name: value for name, _, value in pairs}


@contextmanager
def _open(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        try:
            yield sys.stdin.buffer
        except OSError as error:
            raise OptionError(f"cannot read standard input: {error.strerror}") from error
        return
    try:
        with Path(file).open("rb") as opened:
            yield opened
    except OSError as error:
        raise OptionError(f"cannot read {file}: {error.strerror}") from error


def _with_progress(lines: BinaryIO, file: str) -> Iterator[bytes]:
    """The lines, with a progress bar on standard error if that is a terminal and the size is known."""
    if file == "-" or not err.is_terminal:
        yield from lines
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task(Path(file).name, total=Path(file).stat().st_size)
        done = 0
        for number, text in enumerate(lines):
            yield text
            done += len(text)
            if number % _SHOW_EVERY == 0:
                progress.update(task, completed=done)
