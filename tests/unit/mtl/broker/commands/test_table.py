"""The table of control commands, compared with the clients and the command line."""

from __future__ import annotations

import inspect

import pytest
import typer

import mtl
from mtl import aio
from mtl.broker.commands.command import Command
from mtl.broker.commands.table import COMMANDS
from mtl.cli.main import app
from mtl.profiles import LOG, PROFILES, QUEUE, TEST, CommandClass
from mtl.wire import control
from tests.support.core import Rig

ROWS = pytest.mark.parametrize("command", COMMANDS.values(), ids=[x.__name__ for x in COMMANDS])

BY_NAME = {kind.command: COMMANDS[kind] for kind in control.REQUESTS.values()}


def command_lines() -> set[str]:
    """Every command of `mtl`, including those with subcommands."""
    found: set[str] = set()

    def walk(group: object, prefix: str) -> None:
        for name, command in getattr(group, "commands", {}).items():
            found.add(f"{prefix}{name}")
            walk(command, f"{prefix}{name} ")

    walk(typer.main.get_command(app), "")
    return found


def test_every_request_has_a_row() -> None:
    assert set(COMMANDS) == set(control.REQUESTS.values())


@ROWS
def test_both_clients_have_the_method_of_each_command(command: Command) -> None:
    for connection in (mtl.Connection, aio.Connection):
        assert command.client is None or inspect.isfunction(getattr(connection, command.client))


@ROWS
def test_the_command_line_has_the_command_of_each_row(command: Command) -> None:
    assert command.command_line is None or command.command_line in command_lines()


@ROWS
def test_a_row_without_client_or_command_line_has_a_reason(command: Command) -> None:
    missing = command.client is None or command.command_line is None
    assert missing == bool(command.because)


def test_every_client_method_that_sends_a_command_is_in_a_row() -> None:
    """Other methods are for several commands, or are composed of these."""
    made_of_others = {
        "ask",
        "close",
        "consumer",
        "drop",
        "hold",
        "leave",
        "locate_end",
        "own_name",
        "ready",
        "request",
        "unread",
        "watch",
    }
    public = {n for n, _ in inspect.getmembers(mtl.Connection, inspect.isfunction) if not n.startswith("_")}
    assert public - made_of_others == {x.client for x in COMMANDS.values() if x.client is not None}


def test_the_session_itself_carries_out_the_commands_that_change_it() -> None:
    changing = {control.ConnectionOpen, control.ConnectionAuthorize, control.ConnectionProfile}
    assert {kind for kind, command in COMMANDS.items() if command.session} == changing


def test_each_command_has_a_handler() -> None:
    assert set(Rig().broker.parts.requests._handlers) == set(COMMANDS)


@pytest.mark.requirement("MTL-40")
def test_each_profile_has_its_commands() -> None:
    of = {
        profile.name: {
            name.split(".")[0]
            for name, command in BY_NAME.items()
            if command.of is CommandClass.CONNECTION or command.of in profile.classes
        }
        for profile in PROFILES.values()
    }
    assert of[TEST.name] == {"Connection"}
    assert of[QUEUE.name] == {"Connection", "Lease", "Resource", "Queue", "Stage"}
    assert of[LOG.name] == {"Connection", "Lease", "Resource", "Queue", "Stage", "Cursor"}
