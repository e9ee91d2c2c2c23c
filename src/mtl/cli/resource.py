"""`mtl resource`: create, list, describe and delete resources."""

from __future__ import annotations

from typing import Annotated, cast

import msgspec
import typer

from mtl.cli.common import (
    Endpoint,
    Json,
    connect,
    format_octets,
    format_time,
    out,
    parse_option,
    print_json,
    print_list,
    print_table,
)
from mtl.wire.control import Description, Durability, QueueInfo, Retention
from mtl.wire.quantities import duration, size

app = typer.Typer(help="Create, list, describe and delete resources.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The resource's name.")]


@app.command()
def create(
    context: typer.Context,
    name: Name,
    durability: Annotated[
        str,
        typer.Option(help="Confirm contents when they are on the disk (sync) or in the system's cache (os)."),
    ] = "sync",
    retain_bytes: Annotated[str | None, typer.Option(help="The most octets to keep, such as 10g.")] = None,
    retain_age: Annotated[str | None, typer.Option(help="How long to keep contents, such as 7d.")] = None,
    retain_contents: Annotated[int | None, typer.Option(help="The most contents to keep.")] = None,
    retain_for: Annotated[
        list[str] | None,
        typer.Option(help="Keep contents that this group has not confirmed; may be repeated."),
    ] = None,
    hard_bytes: Annotated[
        str | None,
        typer.Option(help="The size above which contents are removed although a group needs them."),
    ] = None,
    dead_letter: Annotated[
        str | None, typer.Option(help="The resource for dead letters of its queues; else NAME.dead.")
    ] = None,
    max_deliveries: Annotated[
        int | None, typer.Option(min=1, help="The most deliveries of a content by a queue; else 10.")
    ] = None,
    exist_ok: Annotated[bool, typer.Option("--exist-ok", help="No error if the resource exists.")] = False,
    endpoint: Endpoint = None,
) -> None:
    """Create a resource. Without limits it keeps all contents."""
    if durability not in {"sync", "os"}:
        raise typer.BadParameter("has to be sync or os", param_hint="--durability")
    limits = Retention(
        bytes=parse_option("--retain-bytes", retain_bytes, size),
        age=parse_option("--retain-age", retain_age, duration),
        contents=retain_contents,
        groups=tuple(retain_for or ()),
        hard_bytes=parse_option("--hard-bytes", hard_bytes, size),
    )
    with connect(context, endpoint) as connection:
        made = connection.create_resource(
            name,
            durability=cast(Durability, durability),
            retention=None if limits == Retention() else limits,
            exist_ok=exist_ok,
            dead_letter=dead_letter,
            max_deliveries=max_deliveries,
        )
    out.print(f"{made.resource}: {made.contents} contents, {made.durability}", markup=False)


@app.command("list")
def list_(
    context: typer.Context,
    pattern: Annotated[str | None, typer.Argument(help="A regular expression for whole names.")] = None,
    json: Json = False,
    endpoint: Endpoint = None,
) -> None:
    """List resources with their contents, size and state."""
    with connect(context, endpoint) as connection:
        listed = connection.list_resources(pattern)
    print_list(
        listed,
        {
            "RESOURCE": lambda r: r.resource,
            "EARLIEST": lambda r: r.known_earliest,
            "NEXT": lambda r: r.known_next,
            "CONTENTS": lambda r: r.contents,
            "SIZE": lambda r: format_octets(r.bytes),
            "NEWEST": lambda r: format_time(r.newest_time),
            "DURABILITY": lambda r: r.durability,
            "STATE": lambda r: r.state,
        },
        json=json,
        right=["EARLIEST", "NEXT", "CONTENTS", "SIZE"],
    )


@app.command()
def describe(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(help="Names of resources.")],
    json: Json = False,
    endpoint: Endpoint = None,
) -> None:
    """Show all details of resources."""
    with connect(context, endpoint) as connection:
        descriptions = connection.describe(names)
        queues = {name: connection.queues(resource=name) for name in descriptions}
    for name, description in descriptions.items():
        if json:
            print_json(msgspec.to_builtins(description))
        else:
            print_table(["", ""], _description_rows(description) + [_queue_row(q) for q in queues[name]])


def _description_rows(description: Description) -> list[tuple[str, object]]:
    kept = description.retention or Retention()
    rows: list[tuple[str, object]] = [
        ("resource", description.resource),
        ("incarnation", description.incarnation),
        ("contents", _contents(description)),
        ("size", format_octets(description.bytes)),
        ("oldest", format_time(description.oldest_time)),
        ("newest", format_time(description.newest_time)),
        ("durability", description.durability),
        ("state", description.state),
        ("trouble", description.trouble),
        ("keeps at most", format_octets(kept.bytes) if kept.bytes else None),
        ("keeps contents for", f"{kept.age:g} s" if kept.age else None),
        ("keeps contents", kept.contents),
        ("keeps for groups", ", ".join(kept.groups) or None),
        ("dead letters to", description.dead_letter),
        ("delivered at most", f"{description.max_deliveries} times" if description.max_deliveries else None),
        ("never more than", format_octets(kept.hard_bytes) if kept.hard_bytes else None),
    ]
    return [(name, value) for name, value in rows if value not in {None, ""}]


def _contents(description: Description) -> str | None:
    if description.known_next is None:
        return None
    return f"{description.known_earliest} to {description.known_next - 1} ({description.contents} in all)"


def _queue_row(queue: QueueInfo) -> tuple[str, object]:
    ready = "?" if queue.ready is None else queue.ready
    counts = (ready, queue.delivered, queue.delayed, queue.dead, queue.consumers)
    return f"queue {queue.group}", (
        "{} ready, {} delivered, {} delayed, {} dead, {} consumers".format(*counts)
    )


@app.command()
def delete(
    context: typer.Context,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    endpoint: Endpoint = None,
) -> None:
    """Delete a resource with its contents and the groups' positions in it."""
    with connect(context, endpoint) as connection:
        description = connection.describe([name])[name]
        if not yes:
            all_of_it = "all its" if description.contents is None else f"its {description.contents}"
            typer.confirm(f"Delete {name} with {all_of_it} contents?", abort=True, err=True)
        connection.delete_resource(name, incarnation=description.incarnation)
