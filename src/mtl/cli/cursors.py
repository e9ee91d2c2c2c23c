"""`mtl cursors`: where groups stand, and how far behind they are."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from mtl.cli.common import Endpoint, Json, connected, line, octets, table

app = typer.Typer(help="Show where groups stand, and forget them.", invoke_without_command=True)


@app.callback()
def cursors(
    context: typer.Context,
    group: Annotated[str | None, typer.Option(help="Only this group.")] = None,
    resource: Annotated[str | None, typer.Option(help="Only this resource.")] = None,
    json: Json = False,
    endpoint: Endpoint = None,
) -> None:
    """Show where groups stand, and forget them."""
    if context.invoked_subcommand is not None:
        return
    with connected(context, endpoint) as connection:
        found = connection.cursors(group, resource)
    if json:
        for one in found:
            line(msgspec.to_builtins(one))
        return
    table(
        ["GROUP", "RESOURCE", "POSITION", "NEXT", "BEHIND", "SIZE", "EPOCH", "HOLDER"],
        [
            (
                c.group,
                c.resource,
                c.position,
                c.next,
                c.behind,
                octets(c.bytes_behind),
                c.epoch,
                c.holder if c.held else "",
            )
            for c in found
        ],
        right=["POSITION", "NEXT", "BEHIND", "SIZE", "EPOCH"],
    )


@app.command()
def delete(
    context: typer.Context,
    group: Annotated[str, typer.Argument(help="The group.")],
    resource: Annotated[str, typer.Argument(help="The resource.")],
    endpoint: Endpoint = None,
) -> None:
    """Forget a group's place in a resource."""
    with connected(context, endpoint) as connection:
        connection.cursor_delete(group, resource)
