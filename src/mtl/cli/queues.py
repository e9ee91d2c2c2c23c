"""`mtl queues`: show the counts of ready, delivered, delayed and dead contents in queues, and delete queues."""

from __future__ import annotations

from typing import Annotated

import typer

from mtl.cli.common import Endpoint, Json, connect, print_list

app = typer.Typer(help="Show and delete queues.", invoke_without_command=True)


@app.callback()
def queues(
    context: typer.Context,
    queue: Annotated[str | None, typer.Option(help="Only queues of this name.")] = None,
    resource: Annotated[str | None, typer.Option(help="Only this resource's.")] = None,
    json: Json = False,
    endpoint: Endpoint = None,
) -> None:
    """Show and delete queues."""
    if context.invoked_subcommand is not None:
        return
    with connect(context, endpoint) as connection:
        listed = connection.queues(queue, resource)
    print_list(
        listed,
        {
            "RESOURCE": lambda q: q.resource,
            "QUEUE": lambda q: q.group,
            "READY": lambda q: q.ready,
            "DELIVERED": lambda q: q.delivered,
            "DELAYED": lambda q: q.delayed,
            "DEAD": lambda q: q.dead,
            "CONSUMERS": lambda q: q.consumers,
            "DEAD LETTERS": lambda q: q.dead_letter,
            "LIMIT": lambda q: q.max_deliveries,
        },
        json=json,
        right=["READY", "DELIVERED", "DELAYED", "DEAD", "CONSUMERS", "LIMIT"],
    )


@app.command()
def delete(
    context: typer.Context,
    queue: Annotated[str, typer.Argument(help="The queue.")],
    resource: Annotated[str, typer.Argument(help="The resource.")],
    endpoint: Endpoint = None,
) -> None:
    """Delete a queue's record of settled contents. The contents stay; its next consumer begins at the earliest one."""
    with connect(context, endpoint) as connection:
        connection.queue_delete(queue, resource)
