"""`mtl checkpoint`: the position of a Spark query by its checkpoint, and whether the broker can still serve it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mtl.cli.common import Endpoint, Json, connect, out, print_json, print_table
from mtl.client.connection import Connection
from mtl.errors import Refused
from mtl.limits import MAX_RESOURCES_PER_LEASE
from mtl.wire.control import UNKNOWN_RESOURCE, Description
from pyspark_mtl.checkpoint import HeldResource, read, state_of


def checkpoint(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(help="The query's checkpointLocation, as a local directory.")],
    json: Json = False,
    endpoint: Endpoint = None,
) -> None:
    """Show the resources in a Spark checkpoint: position, lag, and whether the broker can still serve them."""
    state = read(directory)
    with connect(context, endpoint) as connection:
        described = _describe(connection, [held.resource for held in state.held])
    rows = [_row(held, described.get(held.resource)) for held in state.held]
    if json:
        for row in rows:
            print_json(
                {"query": state.query, "committed": state.committed, "planned-batch": state.planned, **row}
            )
        return
    under_way = "" if state.planned == state.committed else f", batch {state.planned} is under way"
    done = "no batch is committed" if state.committed is None else f"batch {state.committed} is committed"
    empty = "" if rows else "; it has found no resource"
    out.print(f"query {state.query}: {done}{under_way}{empty}", highlight=False)
    columns = ["resource", "position", "log-epoch", "planned", "next", "behind", "state"]
    print_table(
        [name.upper() for name in columns],
        [[row[name] for name in columns] for row in rows],
        right=["BEHIND"],
    )


def _describe(connection: Connection, names: list[str]) -> dict[str, Description]:
    """The resources that exist."""
    descriptions: dict[str, Description] = {}
    for first in range(0, len(names), MAX_RESOURCES_PER_LEASE):
        chunk = names[first : first + MAX_RESOURCES_PER_LEASE]
        try:
            descriptions |= connection.describe(chunk, history=True)
        except Refused as refused:
            if refused.reason != UNKNOWN_RESOURCE:
                raise
            missing = refused.members.get("missing", chunk)
            descriptions |= connection.describe([name for name in chunk if name not in missing], history=True)
    return descriptions


def _row(held: HeldResource, description: Description | None) -> dict[str, str | int | None]:
    end = None if description is None else description.known_next
    return {
        "resource": held.resource,
        "incarnation": held.incarnation,
        "position": held.position,
        "log-epoch": held.epoch,
        "planned": held.planned,
        "next": end,
        "behind": None if end is None else max(0, end - held.position),
        "state": state_of(held, description),
    }
