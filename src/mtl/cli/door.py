"""`mtl door`: run a front door until SIGTERM."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
import typer

from mtl.cli.common import settings
from mtl.cli.logs import Format, Level, LogFormat, LogLevel, write_lines
from mtl.cli.queued_output import never_wait
from mtl.doors.config import DoorConfig, parse
from mtl.doors.places import DEFAULTS
from mtl.errors import MtlError, OptionError
from mtl.limits import DEFAULT_ENDPOINT


def _defaults() -> str:
    return ", ".join(f"{name} {place}" for name, place in DEFAULTS.items())


def _keys(pairs: list[str] | None) -> dict[str, list[str]] | None:
    """The keys of each user, from arguments USER=KEY. A key may contain `=`, a user must not."""
    if pairs is None:
        return None
    keys: dict[str, list[str]] = {}
    for pair in pairs:
        user, separator, key = pair.partition("=")
        if not separator or not user or not key:
            raise OptionError(f"--peer-key {pair!r} is not USER=KEY, a CURVE public key or its file")
        keys.setdefault(user, []).append(key)
    return keys


def door(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The door: mbws, mc0, micromessage or reactive.")],
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
    max_sessions: Annotated[int | None, typer.Option(help="Peers served at once.")] = None,
    curve_key_file: Annotated[
        str | None,
        typer.Option(help="mc0: encrypt by CURVE, with the door's private key of this file (`mtl keys`)."),
    ] = None,
    peer_key: Annotated[
        list[str] | None,
        typer.Option(
            help="mc0: USER=KEY, a CURVE public key or its file, with the broker's user for it; other keys are "
            "refused. May be repeated."
        ),
    ] = None,
    certificate_file: Annotated[
        str | None, typer.Option(help="TLS (not for mc0): the certificates, as PEM.")
    ] = None,
    key_file: Annotated[str | None, typer.Option(help="Their private key.")] = None,
    client_authority_file: Annotated[
        str | None,
        typer.Option(
            help="Mutual TLS: the authority of client certificates, as PEM. Their common name is the user."
        ),
    ] = None,
    basic: Annotated[
        bool | None,
        typer.Option(
            "--basic",
            help="WebSocket: peers log in by HTTP Basic, as users of the broker with their passwords.",
        ),
    ] = None,
    tokens_file: Annotated[
        str | None,
        typer.Option(help="WebSocket: a private file with lines USER TOKEN, the accepted bearer tokens."),
    ] = None,
    insecure: Annotated[
        bool | None,
        typer.Option("--insecure", help="Listen beyond this machine without encryption or credentials."),
    ] = None,
    origins: Annotated[
        list[str] | None,
        typer.Option("--origin", help="The origin of pages that may use a WebSocket door; '*': any."),
    ] = None,
    page: Annotated[
        bool | None, typer.Option("--page", help="Serve a page for trying a WebSocket door in a browser.")
    ] = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    config: Annotated[
        str | None, typer.Option(hidden=True, help="The door's table as JSON, from `mtl broker`.")
    ] = None,
    until_eof: Annotated[
        bool, typer.Option("--until-eof", hidden=True, help="Stop when standard input ends.")
    ] = False,
) -> None:
    """Run a door for another protocol. Prints one line when it is ready; stops cleanly on SIGTERM.

    Beyond this machine it requires encryption and authenticated peers, unless --insecure is given. Each peer is a user
    of the broker and has that user's grants. The door needs a user of its own, by the options before `door`, which may
    act as its peers' users by `mtl grant DOOR --act-as PATTERN`.
    """
    from mtl.doors.running import serve  # noqa: PLC0415 the other commands need not load it

    write_lines(never_wait(), log_level or Level.INFO, log_format or Format.TEXT)
    if config is not None:
        given, broker = parse(name, msgspec.json.decode(config), connect or DEFAULT_ENDPOINT)
    else:
        broker = settings(context, connect)
        members = {
            "listen": listen,
            "create": create,
            "max-sessions": max_sessions,
            "curve-key-file": curve_key_file,
            "certificate-file": certificate_file,
            "key-file": key_file,
            "peer-keys": _keys(peer_key),
            "client-authority-file": client_authority_file,
            "basic": basic,
            "tokens-file": tokens_file,
            "insecure": insecure,
            "origins": origins,
            "page": page,
        }
        try:
            given = msgspec.convert({k: v for k, v in members.items() if v is not None}, DoorConfig)
        except msgspec.ValidationError as wrong:
            raise OptionError(str(wrong)) from wrong
    try:
        asyncio.run(serve(name, given, broker, print, until_eof=until_eof))
    except MtlError as error:
        raise OptionError(f"[doors.{name}]: {error}") if config is not None else error from error
