"""`mtl door`: run a front door until SIGTERM."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated

import msgspec
import typer

from mtl.cli.common import Broker
from mtl.client.settings import DEFAULT_ENDPOINT
from mtl.doors.config import DoorConfig
from mtl.errors import OptionError


def door(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Which: mbws, mc0, micromessage, reactive.")],
    connect: Annotated[
        str | None,
        typer.Option(
            help=f"The broker's control endpoint.  [default: {DEFAULT_ENDPOINT}]", show_default=False
        ),
    ] = None,
    listen: Annotated[str | None, typer.Option(help="Where; its form is the protocol's.")] = None,
    create: Annotated[
        list[str] | None,
        typer.Option(help="Patterns of resource names that are made when a peer asks for them."),
    ] = None,
    max_sessions: Annotated[int | None, typer.Option(help="Peers served at once.")] = None,
    certificate_file: Annotated[
        str | None, typer.Option(help="TLS (not for mc0): the certificates, as PEM.")
    ] = None,
    key_file: Annotated[str | None, typer.Option(help="Their private key.")] = None,
    origins: Annotated[
        list[str] | None, typer.Option("--origin", help="Whose pages may use a WebSocket door; '*': any.")
    ] = None,
    page: Annotated[
        bool | None, typer.Option("--page", help="Show browsers a page to try a WebSocket door with.")
    ] = None,
    config: Annotated[
        str | None, typer.Option(hidden=True, help="A whole configuration as JSON, from `mtl broker`.")
    ] = None,
    until_eof: Annotated[
        bool, typer.Option("--until-eof", hidden=True, help="Stop when standard input ends.")
    ] = False,
) -> None:
    """Run a door for another protocol. Prints one line when it is ready; stops cleanly on SIGTERM."""
    from mtl.doors.running import serve  # noqa: PLC0415 the other commands need not load it

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    broker = context.obj
    assert isinstance(broker, Broker)
    if config is not None:
        given = msgspec.json.decode(config, type=DoorConfig)
    else:
        members = {
            "listen": listen,
            "create": create,
            "max-sessions": max_sessions,
            "certificate-file": certificate_file,
            "key-file": key_file,
            "origins": origins,
            "page": page,
            "virtual-host": broker.virtual_host,
            "user": broker.user,
            "password-file": str(broker.password_file) if broker.password_file is not None else None,
            "password-env": broker.password_env,
            "sasl-mechanism": broker.sasl_mechanism,
            "curve-server-key": broker.curve_server_key,
            "curve-client-key-file": broker.curve_key_file,
        }
        try:
            given = msgspec.convert({k: v for k, v in members.items() if v is not None}, DoorConfig)
        except msgspec.ValidationError as wrong:
            raise OptionError(str(wrong)) from wrong
    endpoint = connect or broker.endpoint or DEFAULT_ENDPOINT
    asyncio.run(serve(name, given, endpoint, lambda line: print(line, flush=True), until_eof=until_eof))
