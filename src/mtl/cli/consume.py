"""`mtl consume`: take contents out of a queue and show them."""

from __future__ import annotations

from typing import Annotated

import typer

from mtl.cli.common import Endpoint, Json, Raw, connected
from mtl.cli.tail import check, show


def consume(
    context: typer.Context,
    resource: Annotated[str, typer.Argument(help="The resource of the queue.")],
    queue: Annotated[str | None, typer.Option(help="The queue's name; else the default queue.")] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after this number of contents.")
    ] = None,
    wait: Annotated[
        float | None, typer.Option(help="Stop after this number of seconds without a content; else never.")
    ] = None,
    reject: Annotated[
        bool, typer.Option("--reject", help="Send them to the dead letters instead of confirming them.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show sequence, time and properties, too.")
    ] = False,
    json: Json = False,
    raw: Raw = False,
    endpoint: Endpoint = None,
) -> None:
    """Take contents out of a queue, one per line; each is confirmed after it was written to the output."""
    check(verbose=verbose, json=json, raw=raw)
    shown = 0
    with (
        connected(context, endpoint) as connection,
        connection.consumer(resource, queue=queue, window_contents=min(count or 100, 100)) as consumer,
    ):
        while shown != count and (content := consumer.next(wait)) is not None:
            show(content, verbose=verbose, json=json, raw=raw)
            if reject:
                content.reject()
            else:
                content.confirm()
            shown += 1
