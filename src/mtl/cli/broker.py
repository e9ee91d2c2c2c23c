"""`mtl broker`: run a broker until SIGTERM."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mtl.broker.runtime.config import BrokerConfig, load
from mtl.cli.door_processes import DoorProcesses
from mtl.cli.logs import LogFormat, LogLevel, write_lines
from mtl.cli.queued_output import never_wait
from mtl.doors.config import load as load_doors


def broker(
    config: Annotated[Path | None, typer.Option(help="A file such as conf/broker.toml.")] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(help="Listen at tcp://HOST:PORT (port 0: any free port) or ipc://PATH."),
    ] = None,
    shared_socket: Annotated[
        bool | None,
        typer.Option("--shared-socket", help="Use one port: the endpoint, also for data flows."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="The directory of all durable data; or memory: for data in memory only."
        ),
    ] = None,
    insecure: Annotated[
        bool | None, typer.Option("--insecure", help="Listen beyond this machine without credentials.")
    ] = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    until_eof: Annotated[
        bool, typer.Option("--until-eof", hidden=True, help="Stop when standard input ends, too.")
    ] = False,
) -> None:
    """Run a broker. Prints one line when it is ready; stops cleanly on SIGTERM, reads users and log settings again on
    SIGHUP.
    """
    from mtl.broker.runtime.serving import serve  # noqa: PLC0415 the other commands need not load it

    output = never_wait()
    options = {"level": log_level, "format": log_format}
    overrides = {name: option.value for name, option in options.items() if option is not None}

    def loaded() -> BrokerConfig:
        return load(
            config,
            log=overrides,
            endpoint=endpoint,
            shared_socket=shared_socket or None,
            data=data,
            insecure=insecure or None,
        )

    def reload() -> None:
        lines = loaded().log
        write_lines(output, lines.level, lines.format)

    given = loaded()
    write_lines(output, given.log.level, given.log.format)
    doors = DoorProcesses(load_doors(config), given.log)
    raise typer.Exit(serve(given, print, doors, reload=reload, until_eof=until_eof))
