"""The reference of the command line, generated from the commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from mtl.cli.main import app


def commands() -> str:
    """A section for each command: its usage, its description, its arguments and options."""
    root: Any = typer.main.get_command(app)
    lines = ["### Options of every command", "", "They stand between `mtl` and the command.", ""]
    lines += [*_parameters(root), ""]
    for name, command in _flat(root, "mtl"):
        lines += [f"### {name}", "", *_usage(name, command), ""]
        lines += [_prose(command.help or ""), ""]
        rows = _parameters(command)
        if rows:
            lines += [*rows, ""]
    return "\n".join(lines).rstrip()


def parse(arguments: list[str]) -> None:
    """Whether the command line accepts these arguments. Raises typer's usage errors; nothing is run."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("mtl", list(arguments))
    while hasattr(command, "commands"):
        rest = [*context._protected_args, *context.args]  # noqa: SLF001 the remaining arguments have no public name
        if not rest and command.invoke_without_command:
            return
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)


def _flat(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """All commands, those of groups with their group's name."""
    for word, inner in command.commands.items():
        if not hasattr(inner, "commands"):
            yield f"{name} {word}", inner
            continue
        if inner.invoke_without_command:
            yield f"{name} {word}", inner
        yield from _flat(inner, f"{name} {word}")


def _usage(name: str, command: Any) -> list[str]:
    words = [_argument(parameter) for parameter in command.params if not parameter.opts[0].startswith("-")]
    return ["```text", " ".join([name, "[OPTIONS]", *words]), "```"]


def _argument(parameter: Any) -> str:
    name = str(parameter.metavar or parameter.name.upper())
    name = f"{name}..." if parameter.nargs != 1 else name
    return name if parameter.required else f"[{name}]"


def _parameters(command: Any) -> list[str]:
    visible = [parameter for parameter in command.params if not parameter.hidden and parameter.name != "help"]
    if not visible:
        return []
    lines = ["| argument | default | meaning |", "|---|---|---|"]
    for parameter in visible:
        name = (
            ", ".join(f"`{text}`" for text in parameter.opts)
            if parameter.opts[0].startswith("-")
            else _argument(parameter)
        )
        given = parameter.default is not None and parameter.default is not False and parameter.show_default
        default = f"`{parameter.default}`" if given and not callable(parameter.default) else ""
        meaning = _prose(parameter.help or "").replace("|", "\\|")
        also = f" Environment: `{parameter.envvar}`." if parameter.envvar else ""
        lines.append(f"| {name} | {default} | {meaning}{also} |")
    return lines


def _prose(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n")).replace("<", "&lt;")
