"""Code that the commands share: options for the connection, output of tables and sizes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.table import Table

from mtl.cli.printable import PlainConsole
from mtl.client.connection import Connection, open_connection
from mtl.client.settings import Settings
from mtl.errors import OptionError
from mtl.limits import DEFAULT_ENDPOINT, REQUEST_TIMEOUT_S
from mtl.wire.visible import printable_json

_ENDPOINT = f"The broker's control endpoint.  [default: {DEFAULT_ENDPOINT}]"

FirstEndpoint = Annotated[
    str | None, typer.Option("--endpoint", envvar="MTL_ENDPOINT", help=_ENDPOINT, show_default=False)
]
"""The option before the command. Only this one reads the environment, because options take precedence over
variables."""

Endpoint = Annotated[str | None, typer.Option(help=_ENDPOINT, show_default=False)]
"""The option after the command; it takes precedence over the one before."""

VirtualHost = Annotated[
    str | None, typer.Option(envvar="MTL_VIRTUAL_HOST", help="The namespace of resources.")
]
User = Annotated[str | None, typer.Option(envvar="MTL_USER", help="Log in as this user.")]
PasswordFile = Annotated[
    Path | None, typer.Option(envvar="MTL_PASSWORD_FILE", help="A file whose first line is the password.")
]
PasswordEnv = Annotated[
    str | None,
    typer.Option(envvar="MTL_PASSWORD_ENV", help="The environment variable whose value is the password."),
]
Mechanism = Annotated[
    str | None,
    typer.Option(envvar="MTL_SASL_MECHANISM", help="Log in by this mechanism only, such as SCRAM-SHA-256."),
]
CurveServerKey = Annotated[
    str | None,
    typer.Option(
        envvar="MTL_CURVE_SERVER_KEY", help="Encrypt, with the broker's public CURVE key or its file."
    ),
]
CurveKeyFile = Annotated[
    str | None, typer.Option(envvar="MTL_CURVE_KEY_FILE", help="Your own private CURVE key (`mtl keys`).")
]
Timeout = Annotated[
    float, typer.Option(help="Seconds after which a broker that does not answer is an error.")
]
Raw = Annotated[
    bool,
    typer.Option("--raw", help="Write bodies as unchanged octets, for pipes; a newline after each."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line, for programs.")]

DEFAULT_TIMEOUT = 10.0

out = PlainConsole(width=None if sys.stdout is not None and sys.stdout.isatty() else 10_000)
err = PlainConsole(stderr=True)

S = TypeVar("S")


def store_options(
    context: typer.Context,
    endpoint: FirstEndpoint = None,
    virtual_host: VirtualHost = None,
    user: User = None,
    password_file: PasswordFile = None,
    password_env: PasswordEnv = None,
    sasl_mechanism: Mechanism = None,
    curve_server_key: CurveServerKey = None,
    curve_key_file: CurveKeyFile = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Run a durable broker for 11/MTL, and work with its resources."""
    context.obj = partial(
        Settings,
        endpoint=endpoint or DEFAULT_ENDPOINT,
        virtual_host=virtual_host,
        request_timeout=min(REQUEST_TIMEOUT_S, timeout),
        retry_deadline=timeout,
        user=user,
        password_file=str(password_file) if password_file is not None else None,
        password_env=password_env,
        sasl_mechanism=sasl_mechanism,
        curve_server_key=curve_server_key,
        curve_key_file=curve_key_file,
    )


def settings(context: typer.Context, endpoint: str | None = None) -> Settings:
    """The connection that the options before the command describe; an endpoint after the command takes precedence
    over the one before it. Checked only here, because not every command connects: raises `OptionError`.
    """
    described: Callable[..., Settings] = context.obj
    return described(endpoint=endpoint) if endpoint else described()


def named_endpoint(context: typer.Context, endpoint: str | None) -> str | None:
    """The endpoint after the command, before it, or in the environment; None if only the default is left."""
    before = context.parent.params.get("endpoint") if context.parent is not None else None
    return endpoint or before


@contextmanager
def connect(context: typer.Context, endpoint: str | None) -> Iterator[Connection]:
    """A connection to the broker that the options name, closed at the end."""
    with open_connection(settings(context, endpoint)) as connection:
        yield connection


# --- input --------------------------------------------------------------------------------------------------


def parse_option(option: str, text: str | None, parse: Callable[[str], S]) -> S | None:
    """The value of an option, by a parser of `mtl.wire.quantities`. Raises `OptionError` with the option's name."""
    try:
        return None if text is None else parse(text)
    except ValueError as error:
        raise OptionError(f"{option}: {error}") from error


# --- output -------------------------------------------------------------------------------------------------


def print_json(values: dict[str, Any]) -> None:
    """One JSON object on a line of standard output."""
    sys.stdout.buffer.write(printable_json(msgspec.json.encode(values).decode()).encode() + b"\n")


def print_table(
    columns: Iterable[str], rows: Iterable[Iterable[object]], *, right: Iterable[str] = ()
) -> None:
    """Print a table on standard output; lines are not wrapped if that is not a terminal."""
    numbers = set(right)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(str(cell) if cell is not None else "" for cell in row))
    out.print(table)


def print_list(
    items: Iterable[S], columns: Mapping[str, Callable[[S], object]], *, json: bool, right: Iterable[str]
) -> None:
    """Print objects: with `json` all members, one object per line; else a table, with the functions in `columns`."""
    if json:
        for item in items:
            print_json(msgspec.to_builtins(item))
    else:
        print_table(columns, ([cell(item) for cell in columns.values()] for item in items), right=right)


def format_octets(count: int | None) -> str:
    """A size as text; empty if unknown."""
    if count is None:
        return ""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def format_duration(seconds: float | None) -> str:
    """A duration as text; empty if unknown."""
    if seconds is None:
        return ""
    for unit, length in (("d", 86_400.0), ("h", 3_600.0), ("m", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def format_time(microseconds: int | None) -> str:
    """A time as text, in UTC; empty if unknown."""
    if microseconds is None:
        return ""
    return datetime.fromtimestamp(microseconds / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
