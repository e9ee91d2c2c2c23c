"""`mtl stages`: show uncommitted stages and the last commits of applications, and discard them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated

import msgspec
import typer

from mtl.cli.common import (
    Endpoint,
    Json,
    connect,
    format_duration,
    format_octets,
    format_time,
    print_json,
    print_table,
)

app = typer.Typer(
    help="Show stages and the last commits of applications, and discard them.", no_args_is_help=True
)


@app.command("list")
def list_(
    context: typer.Context,
    application: Annotated[str | None, typer.Argument(help="Only this application.")] = None,
    json: Json = False,
    endpoint: Endpoint = None,
) -> None:
    """List stages without a commit, and the last commit of each application.

    A stage that is never committed expires: when its application commits a later version, else after a day; an open
    stage an hour after the last sign of life of its writer.
    """
    with connect(context, endpoint) as connection:
        listed = connection.stages(application)
    if json:
        for item in (*listed.stages, *listed.applications):
            print_json(msgspec.to_builtins(item))
        return
    print_table(
        ["STAGE", "APPLICATION", "VERSION", "STATE", "CONTENTS", "SIZE", "AGE", "EXPIRES", "TROUBLE"],
        [
            (
                s.stage,
                s.application,
                s.version,
                s.state,
                _named(s.contents),
                format_octets(s.bytes),
                "" if s.created is None else format_duration(max(0.0, time.time() - s.created / 1e6)),
                format_time(s.expires),
                s.trouble or "",
            )
            for s in listed.stages
        ],
        right=["VERSION", "SIZE", "AGE"],
    )
    print_table(
        ["APPLICATION", "COMMITTED", "AT", "REPLAYS", "CONTENTS", "DIGEST"],
        [
            (
                a.application,
                a.version,
                format_time(a.committed),
                a.replays,
                _named({n: p.contents for n, p in a.resources.items()}),
                _named(a.digest),
            )
            for a in listed.applications
        ],
        right=["COMMITTED", "REPLAYS"],
    )


@app.command()
def forget(
    context: typer.Context,
    application: Annotated[str, typer.Argument(help="The application: a query's id, or its txnAppId.")],
    endpoint: Endpoint = None,
) -> None:
    """Delete the record of an application's last commit, so that it may start again with any version."""
    with connect(context, endpoint) as connection:
        connection.stage_forget(application)


@app.command()
def abort(
    context: typer.Context,
    stages: Annotated[list[str], typer.Argument(help="Ids of stages.")],
    endpoint: Endpoint = None,
) -> None:
    """Discard stages."""
    with connect(context, endpoint) as connection:
        connection.stage_abort(stages)


def _named(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in values.items())
