"""`mtl broker`: run a broker until SIGTERM."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from mtl.broker.config import load
from mtl.cli.beside import Doors
from mtl.doors.config import load as load_doors


def broker(
    config: Annotated[Path | None, typer.Option(help="A file such as conf/broker.toml.")] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(help="Where to listen: tcp://HOST:PORT (port 0: any free one) or ipc://PATH."),
    ] = None,
    shared_socket: Annotated[
        bool | None,
        typer.Option("--shared-socket", help="Use one port for everything: data flows on the endpoint, too."),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The directory with everything that is durable.")] = None,
    insecure: Annotated[
        bool | None, typer.Option("--insecure", help="Listen beyond this machine without credentials.")
    ] = None,
    until_eof: Annotated[
        bool, typer.Option("--until-eof", hidden=True, help="Stop when standard input ends, too.")
    ] = False,
) -> None:
    """Run a broker. Prints one line when it is ready; stops cleanly on SIGTERM."""
    from mtl.broker.server import serve  # noqa: PLC0415 the other commands need not load it

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    given = load(
        config,
        endpoint=endpoint,
        shared_socket=shared_socket or None,
        data=str(data) if data is not None else None,
        insecure=insecure or None,
    )
    doors = Doors(load_doors(config))
    raise typer.Exit(serve(given, lambda line: print(line, flush=True), doors, until_eof=until_eof))
