"""A row of the table of control commands, for the parts that look commands up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mtl.broker.access.accounts import Right
from mtl.broker.access.caller import Caller
from mtl.broker.writing.intake import Intake
from mtl.profiles import CommandClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command's row.

    `of` is the class that it belongs to; a profile has classes. `rights` are pairs of rights, of which one is enough,
    and names, on each of which it is needed; the names come from a method of `RequestNames`. `logs` is the method of
    `NeededLogs` that finds the logs that have to be open. With `session` the command is carried out for the
    session itself, otherwise for a caller.

    `client` is the method of the blocking and the asyncio connection that sends it, `command_line` the `mtl`
    command. If one of them is missing, `because` has the reason.
    """

    of: CommandClass
    rights: tuple[tuple[frozenset[Right], Callable[[Any, Caller, Any], Iterable[str]]], ...] = ()
    logs: Callable[[Any, Caller, Any], Iterable[Intake]]
    session: bool = False
    client: str | None = None
    command_line: str | None = None
    because: str = ""


Commands = Mapping[type, Command]
"""Every command by the type of its request."""
