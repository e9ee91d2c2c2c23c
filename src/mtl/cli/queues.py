"""`mtl queues`: what is ready, with consumers, delayed and dead in the queues."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from mtl.cli.common import Endpoint, Json, connected, line, table

app = typer.Typer(help="Show queues, and forget them.", invoke_without_command=True)


@app.callback()
def queues(
    context: typer.Context,
    queue: Annotated[str | None, typer.Option(help="Only queues of this name.")] = None,
    resource: Annotated[str | None, typer.Option(help="Only this resource's.")] = None,
    json: Json = False,
    endpoint: Endpoint = None,
) -> None:
    """Show queues, and forget them."""
    if context.invoked_subcommand is not None:
        return
    with connected(context, endpoint) as connection:
        found = connection.queues(queue, resource)
    if json:
        for one in found:
            line(msgspec.to_builtins(one))
        return
    table(
        ["RESOURCE", "QUEUE", "READY", "DELIVERED", "DELAYED", "DEAD", "CONSUMERS", "DEAD LETTERS", "LIMIT"],
        [
            (
                q.resource,
                q.group,
                q.ready,
                q.delivered,
                q.delayed,
                q.dead,
                q.consumers,
                q.dead_letter,
                q.max_deliveries,
            )
            for q in found
        ],
        right=["READY", "DELIVERED", "DELAYED", "DEAD", "CONSUMERS", "LIMIT"],
    )


@app.command()
def delete(
    context: typer.Context,
    queue: Annotated[str, typer.Argument(help="The queue.")],
    resource: Annotated[str, typer.Argument(help="The resource.")],
    endpoint: Endpoint = None,
) -> None:
    """Forget what a queue has settled. The contents stay; its next consumer begins at the earliest of them."""
    with connected(context, endpoint) as connection:
        connection.queue_delete(queue, resource)
