"""`mtl checkpoint`: how far a Spark query has read by its checkpoint, and whether the broker can still serve it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from mtl.cli.common import Endpoint, Json, connected, line, out, table
from mtl.wire.control import Description
from pyspark_mtl.checkpoint import Held, read, state_of


def checkpoint(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(help="The query's checkpointLocation, as a local directory.")],
    json: Json = False,
    endpoint: Endpoint = None,
) -> None:
    """Show what a Spark checkpoint holds: position, lag, and whether the broker can still serve it."""
    state = read(directory)
    with connected(context, endpoint) as connection:
        there = connection.describe(pattern="|".join(re.escape(one.resource) for one in state.held))
    rows = [_row(one, there.get(one.resource)) for one in state.held]
    if json:
        for row in rows:
            line({"query": state.query, "committed": state.committed, "planned-batch": state.planned, **row})
        return
    under_way = "" if state.planned == state.committed else f", batch {state.planned} is under way"
    done = "no batch is committed" if state.committed is None else f"batch {state.committed} is committed"
    out.print(f"query {state.query}: {done}{under_way}", highlight=False)
    columns = ["resource", "position", "planned", "next", "behind", "state"]
    table(
        [name.upper() for name in columns],
        [[row[name] for name in columns] for row in rows],
        right=["BEHIND"],
    )


def _row(held: Held, found: Description | None) -> dict[str, str | int | None]:
    return {
        "resource": held.resource,
        "incarnation": held.incarnation,
        "position": held.position,
        "planned": held.planned,
        "next": None if found is None else found.next,
        "behind": None if found is None else max(0, found.next - held.position),
        "state": state_of(held, found),
    }
