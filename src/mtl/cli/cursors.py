"""`mtl cursors`: show the positions of groups and their lag (contents, octets, time), reset and delete them."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from mtl.cli.common import Endpoint, Json, connect, format_duration, format_octets, out, print_list
from mtl.client.connection import Connection
from mtl.errors import OptionError, Refused
from mtl.wire.control import UNKNOWN_CURSOR
from mtl.wire.quantities import microseconds

app = typer.Typer(help="Show, reset and delete the positions of groups.", invoke_without_command=True)


@app.callback()
def cursors(
    context: typer.Context,
    group: Annotated[str | None, typer.Option(help="Only this group.")] = None,
    resource: Annotated[str | None, typer.Option(help="Only this resource.")] = None,
    json: Json = False,
    endpoint: Endpoint = None,
) -> None:
    """Show, reset and delete the positions of groups."""
    if context.invoked_subcommand is not None:
        return
    with connect(context, endpoint) as connection:
        listed = connection.cursors(group, resource)
    print_list(
        listed,
        {
            "GROUP": lambda c: c.group,
            "RESOURCE": lambda c: c.resource,
            "POSITION": lambda c: c.position,
            "NEXT": lambda c: c.next,
            "BEHIND": lambda c: c.behind,
            "SIZE": lambda c: format_octets(c.bytes_behind),
            "AGE": lambda c: format_duration(c.seconds_behind),
            "EPOCH": lambda c: c.epoch,
            "LOG": lambda c: (
                c.log_epoch or "" if c.lost is None else f"lost {c.lost.first} to {c.lost.end - 1}"
            ),
            "HOLDER": lambda c: c.holder if c.held else "",
        },
        json=json,
        right=["POSITION", "NEXT", "BEHIND", "SIZE", "AGE", "EPOCH"],
    )


@app.command()
def reset(
    context: typer.Context,
    group: Annotated[str, typer.Argument(help="The group.")],
    to: Annotated[
        str, typer.Option(help="earliest, latest, a sequence, or a time such as 2026-01-31T12:00:00Z.")
    ],
    resource: Annotated[str | None, typer.Option(help="Only in this resource.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also while a reader holds the cursor; that reader is fenced.")
    ] = False,
    endpoint: Endpoint = None,
) -> None:
    """Move a group to another position, at which its next reader starts. A Spark query continues at its checkpoint."""
    place, at = _target(to)
    with connect(context, endpoint) as connection:
        for name in _resources(connection, group, resource):
            moved = connection.cursor_reset(group, name, place, timestamp_us=at, force=force)
            out.print(f"{group} {name}: {moved.before} -> {moved.position}", highlight=False)


def _resources(connection: Connection, group: str, resource: str | None) -> list[str]:
    """The resources in which the group has a cursor. Refused 404 if there is none."""
    resources = [cursor.resource for cursor in connection.cursors(group, resource)]
    if not resources:
        where = "anywhere" if resource is None else f"on {resource!r}"
        raise Refused(
            404, UNKNOWN_CURSOR, f"group {group!r} has no cursor {where}; `mtl cursors` lists all cursors"
        )
    return resources


def _target(text: str) -> tuple[Literal["earliest", "latest"] | int | None, int | None]:
    """A place, or a time in µs."""
    if text == "earliest":
        return "earliest", None
    if text == "latest":
        return "latest", None
    if text.isascii() and text.isdigit():
        return int(text), None
    try:
        return None, microseconds(text)
    except ValueError as error:
        raise OptionError(f"--to is neither earliest, latest nor a sequence, and {error}") from None


@app.command()
def delete(
    context: typer.Context,
    group: Annotated[str, typer.Argument(help="The group.")],
    resource: Annotated[str, typer.Argument(help="The resource.")],
    endpoint: Endpoint = None,
) -> None:
    """Delete a group's position in a resource."""
    with connect(context, endpoint) as connection:
        connection.cursor_delete(group, resource)
