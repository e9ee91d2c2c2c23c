"""The commands of `mtl`, from the table of its command line, and arguments with which each begins its work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import typer

from mtl.cli.main import app


def commands() -> dict[str, Any]:
    """Every command by its full name: "resource create"."""
    return {" ".join(path): command for path, command in _commands(typer.main.get_command(app), [])}


def _commands(command: Any, path: list[str]) -> Iterator[tuple[list[str], Any]]:
    below = getattr(command, "commands", {})
    if not below or (path and command.invoke_without_command):
        yield path, command
    for name, other in below.items():
        yield from _commands(other, [*path, name])


def talks(command: Any) -> bool:
    """Whether a command is for a broker: it takes its endpoint."""
    return not {"endpoint", "connect"}.isdisjoint(parameter.name for parameter in command.params)


def arguments(name: str, command: Any, values: Mapping[str, str]) -> list[str]:
    """A call of a command with its required arguments and options: `values` by their names, `r` for others."""
    words = name.split()
    for parameter in command.params:
        if parameter.required:
            value = values.get(parameter.name, "r")
            words += [value] if parameter.param_type_name == "argument" else [parameter.opts[0], value]
    return words
