"""`mtl tail`: show the contents of a resource, and follow new ones. `mtl consume`: take contents out of a queue."""

from __future__ import annotations

import base64
import sys
from typing import Annotated, Any

import typer

from mtl.cli.common import Endpoint, Json, Raw, connect, format_time, print_json
from mtl.client.connection import Connection
from mtl.client.contents import Content
from mtl.errors import OptionError
from mtl.wire.visible import JOINERS, printable

Count = Annotated[
    int | None, typer.Option("--count", "-n", min=1, help="Stop after this number of contents.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show sequence, time and properties, too.")]


def tail(
    context: typer.Context,
    resource: Annotated[str, typer.Argument(help="The resource to read.")],
    start: Annotated[
        str, typer.Option("--from", help="earliest, latest, a sequence, or -N for the last N contents.")
    ] = "-10",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until interrupted.")] = False,
    count: Count = None,
    verbose: Verbose = False,
    json: Json = False,
    raw: Raw = False,
    endpoint: Endpoint = None,
) -> None:
    """Show a resource's contents, one per line. Control characters, line ends, direction marks and octets that are not
    text are escaped.
    """
    _check(verbose=verbose, json=json, raw=raw)
    with connect(context, endpoint) as connection:
        first, end = _find_range(connection, resource, start)
        until = None if follow else end
        if until is not None and first >= until:
            return
        printed = 0
        with connection.reader(resource, start=first, until=until) as reader:
            for content in reader:
                _print_content(content, verbose=verbose, json=json, raw=raw)
                printed += 1
                if printed == count:
                    return


def _find_range(connection: Connection, resource: str, start: str) -> tuple[int, int]:
    description = connection.describe([resource])[resource]
    if start == "earliest":
        return description.earliest, description.next
    if start == "latest":
        return description.next, description.next
    try:
        number = int(start)
    except ValueError:
        raise OptionError(f"--from {start!r} is neither earliest, latest nor a number") from None
    return (number if number >= 0 else max(description.earliest, description.next + number)), description.next


def consume(
    context: typer.Context,
    resource: Annotated[str, typer.Argument(help="The resource of the queue.")],
    queue: Annotated[str | None, typer.Option(help="The queue's name; else the default queue.")] = None,
    count: Count = None,
    wait: Annotated[
        float | None, typer.Option(help="Stop after this number of seconds without a content; else never.")
    ] = None,
    reject: Annotated[
        bool, typer.Option("--reject", help="Send them to the dead letters instead of confirming them.")
    ] = False,
    verbose: Verbose = False,
    json: Json = False,
    raw: Raw = False,
    endpoint: Endpoint = None,
) -> None:
    """Take contents out of a queue, one per line; each is confirmed after it was written to the output."""
    _check(verbose=verbose, json=json, raw=raw)
    printed = 0
    with (
        connect(context, endpoint) as connection,
        connection.consumer(resource, queue=queue, window_contents=min(count or 100, 100)) as consumer,
    ):
        while printed != count and (content := consumer.next(wait)) is not None:
            _print_content(content, verbose=verbose, json=json, raw=raw)
            if reject:
                content.reject()
            else:
                content.confirm()
            printed += 1


def _check(*, verbose: bool, json: bool, raw: bool) -> None:
    """`OptionError` for options of `_show` that contradict each other."""
    if raw and (json or verbose):
        raise OptionError("--raw writes bodies only; leave out --json and --verbose, or --raw")


def _print_content(content: Content, *, verbose: bool, json: bool, raw: bool) -> None:
    """Print a content as one line, escaped for the terminal; with `raw` its octets and a newline."""
    if raw:
        sys.stdout.buffer.write(content.body + b"\n")
    elif json:
        print_json(_members(content))
    else:
        body = content.body.decode("utf-8", "backslashreplace")
        if verbose:
            properties = content.properties
            text = f"  {properties}" if properties else ""
            body = f"{content.sequence}  {format_time(content.timestamp)}{text}  {body}"
        sys.stdout.write(printable(body, keep="\t" + JOINERS) + "\n")
    sys.stdout.flush()


def _members(content: Content) -> dict[str, Any]:
    members: dict[str, Any] = {
        "resource": content.resource,
        "sequence": content.sequence,
        "timestamp": content.timestamp,
        "properties": content.properties,
    }
    try:
        return members | {"body": content.body.decode("utf-8")}
    except UnicodeDecodeError:
        return members | {"body-base64": base64.b64encode(content.body).decode()}
