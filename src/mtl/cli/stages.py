"""`mtl stages`: show uncommitted stages and the last commits of applications, and discard them."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
import typer

from mtl.cli.common import Endpoint, Json, connected, duration, line, moment, octets, table

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
    with connected(context, endpoint) as connection:
        found = connection.stages(application)
    if json:
        for one in (*found.stages, *found.applications):
            line(msgspec.to_builtins(one))
        return
    table(
        ["STAGE", "APPLICATION", "VERSION", "STATE", "CONTENTS", "SIZE", "AGE", "EXPIRES", "TROUBLE"],
        [
            (
                s.stage,
                s.application,
                s.version,
                s.state,
                _counts(s.contents),
                octets(s.bytes),
                "" if s.created is None else duration(max(0.0, time.time() - s.created / 1e6)),
                moment(s.expires),
                s.trouble or "",
            )
            for s in found.stages
        ],
        right=["VERSION", "SIZE", "AGE"],
    )
    table(
        ["APPLICATION", "COMMITTED", "AT", "REPLAYS", "CONTENTS"],
        [
            (
                a.application,
                a.version,
                moment(a.committed),
                a.replays,
                _counts({n: p.contents for n, p in a.resources.items()}),
            )
            for a in found.applications
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
    with connected(context, endpoint) as connection:
        connection.stage_forget(application)


@app.command()
def abort(
    context: typer.Context,
    stages: Annotated[list[str], typer.Argument(help="Ids of stages.")],
    endpoint: Endpoint = None,
) -> None:
    """Discard stages."""
    with connected(context, endpoint) as connection:
        connection.stage_abort(stages)


def _counts(contents: dict[str, int]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in contents.items())
