"""`mtl door`: run a front door until SIGTERM."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from mtl.cli.common import settings
from mtl.cli.logs import Format, Level, LogFormat, LogLevel, write_lines
from mtl.cli.queued_output import never_wait
from mtl.client.settings import Settings
from mtl.doors.addresses import DEFAULTS
from mtl.doors.config import parse, read_tables
from mtl.errors import MtlError, OptionError
from mtl.limits import DEFAULT_ENDPOINT


def _defaults() -> str:
    return ", ".join(f"{name} {place}" for name, place in DEFAULTS.items())


def _table(name: str, config: Path | None) -> dict[str, Any]:
    """The table of the door of this name in a configuration file; raises `OptionError`."""
    if config is None:
        return {}
    tables = read_tables(config)
    if name not in tables:
        raise OptionError(f"{config} has no table [doors.{name}]")
    return tables[name]


def door(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The door: mbws, mc0, micromessage or reactive.")],
    config: Annotated[
        Path | None, typer.Option(help="A file such as conf/broker.toml: the door is its table [doors.NAME].")
    ] = None,
    connect: Annotated[
        str | None,
        typer.Option(help="The broker's control endpoint.", show_default=DEFAULT_ENDPOINT),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            help="Listen at [TRANSPORT://]HOST:PORT (port 0: any free port); for mc0 also ipc://PATH.",
            show_default=_defaults(),
        ),
    ] = None,
    create: Annotated[
        list[str] | None,
        typer.Option(
            help="A pattern (* ? [...]) of resources that are created when a peer uses them. May be repeated.",
            show_default="none is created",
        ),
    ] = None,
    page: Annotated[
        bool | None, typer.Option("--page", help="mbws: serve a page for trying the door in a browser.")
    ] = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    table: Annotated[
        str | None, typer.Option(hidden=True, help="The door's table as JSON, from `mtl broker`.")
    ] = None,
    until_eof: Annotated[
        bool, typer.Option("--until-eof", hidden=True, help="Stop when standard input ends.")
    ] = False,
) -> None:
    """Run a door for another protocol. Prints one line when it is ready; stops cleanly on SIGTERM.

    All settings of a door are in its table of a configuration file; an option replaces the member of this name. Beyond
    this machine a door requires encryption and authenticated peers, unless it has insecure = true. Each peer is a user
    of the broker and has that user's grants. The door needs a user of its own, by its table or the options before
    `door`, which may act as its peers' users by `mtl grant DOOR --act-as PATTERN`.
    """
    from mtl.doors.running import serve  # noqa: PLC0415 the other commands need not load it

    write_lines(never_wait(), log_level or Level.INFO, log_format or Format.TEXT)
    members: dict[str, Any] = {"listen": listen, "create": create, "page": page}
    members = {member: value for member, value in members.items() if value is not None}
    if table is not None:
        members, own = msgspec.json.decode(table), Settings(connect or DEFAULT_ENDPOINT)
    else:
        members, own = _table(name, config) | members, settings(context, connect)
    try:
        given, broker = parse(name, members, own)
        asyncio.run(serve(name, given, broker, print, until_eof=until_eof))
    except MtlError as error:
        raise OptionError(f"[doors.{name}]: {error}") if table is not None else error from error
