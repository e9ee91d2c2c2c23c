"""`mtl user`, `mtl grant`, `mtl revoke`: edit users and their grants in a broker's data directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from mtl.broker.access.accounts import Right
from mtl.broker.runtime.users import Users, new_password
from mtl.cli.common import Json, print_json, print_table
from mtl.client.settings import password_in, read_password
from mtl.errors import OptionError
from mtl.limits import DEFAULT_VIRTUAL_HOST, MIN_PASSWORD, SCRAM_ITERATIONS
from mtl.net.curve import read_public
from mtl.storage.records import GrantRecord, PasswordRecord

app = typer.Typer(
    help="Create, list and remove users, in the data directory of a running or stopped broker.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="The user's name.")]
Data = Annotated[Path, typer.Option(envvar="MTL_DATA", help="The broker's data directory.")]
PasswordFile = Annotated[
    Path | None, typer.Option(help="Take the first line of this file instead of asking for a password.")
]
PasswordEnv = Annotated[
    str | None, typer.Option(help="Take the value of this environment variable instead of asking.")
]
Iterations = Annotated[
    int, typer.Option(help="PBKDF2 iterations: the cost of a guess, and of each log-in for its client.")
]
Key = Annotated[str, typer.Argument(help="A CURVE public key, or the file NAME.pub that has it.")]
Patterns = Annotated[
    list[str] | None,
    typer.Option(help="Resources, by a regular expression for whole names; may be repeated."),
]
Groups = Annotated[
    list[str] | None,
    typer.Option(help="Groups to hold, reset and delete, as a pattern. A user always has the groups USER.*."),
]
Queues = Annotated[
    list[str] | None,
    typer.Option(help="Queues to consume from and to delete, as a pattern; `default` is the unnamed queue."),
]
WriterNames = Annotated[
    list[str] | None,
    typer.Option(help="Writer names to use, as a pattern; a current writer of the name is fenced."),
]
Applications = Annotated[
    list[str] | None,
    typer.Option(help="Applications (txnAppId) to see, stage, commit, abort and forget, as a pattern."),
]
ActedFor = Annotated[
    list[str] | None,
    typer.Option("--act-as", help="Users to act as, as a pattern; for a door with peers that log in."),
]
VirtualHost = Annotated[str, typer.Option(help="The namespace of resources of the grants.")]

DATA = Path("mtl-data")


@app.command()
def add(
    name: Name,
    password_file: PasswordFile = None,
    password_env: PasswordEnv = None,
    key: Annotated[
        list[str] | None, typer.Option(help="A CURVE public key, or its file, that authenticates the user.")
    ] = None,
    no_password: Annotated[bool, typer.Option("--no-password", help="The user has CURVE keys only.")] = False,
    iterations: Iterations = SCRAM_ITERATIONS,
    data: Data = DATA,
) -> None:
    """Create a user. Prompts for the password unless an option gives it. `mtl grant` gives the user rights."""
    with Users(data) as users:
        password = None if no_password else _read_password(password_file, password_env, iterations)
        users.add(name, password, [read_public(k).decode() for k in key or ()])


@app.command()
def password(
    name: Name,
    password_file: PasswordFile = None,
    password_env: PasswordEnv = None,
    iterations: Iterations = SCRAM_ITERATIONS,
    keep_sessions: Annotated[
        bool, typer.Option("--keep-sessions", help="Open readers and writers continue.")
    ] = False,
    data: Data = DATA,
) -> None:
    """Change a user's password. Its open readers, writers and waiting requests end, and its clients log in again."""
    with Users(data) as users:
        password = _read_password(password_file, password_env, iterations)
        users.set_password(name, password, keep_sessions=keep_sessions)


@app.command()
def key(
    name: Name,
    key: Key,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the key from the user.")] = False,
    data: Data = DATA,
) -> None:
    """Add a CURVE key that authenticates a user without a password."""
    public = read_public(key).decode()
    with Users(data) as users:
        if remove:
            users.remove_key(name, public)
        else:
            users.add_key(name, public)


@app.command()
def remove(name: Name, data: Data = DATA) -> None:
    """Remove a user with its grants; a running broker ends its sessions, readers and writers."""
    with Users(data) as users:
        users.remove(name)


@app.command("list")
def list_(json: Json = False, data: Data = DATA) -> None:
    """List users and their grants. Passwords are not shown."""
    with Users(data) as users:
        listed = users.all()
    if json:
        for user in listed:
            grants = [{"virtual-host": g.vhost, "right": g.right, "pattern": g.pattern} for g in user.grants]
            print_json(
                {
                    "user": user.name,
                    "password": user.password is not None,
                    "keys": user.keys,
                    "grants": grants,
                }
            )
        return
    print_table(
        ["USER", "PROVED BY", "MAY"],
        [
            (
                user.name,
                "\n".join([*(["password"] if user.password else []), *(f"key {k}" for k in user.keys)]),
                "\n".join(f"{g.right} {g.pattern} in {g.vhost}" for g in user.grants),
            )
            for user in listed
        ],
    )


def grant(
    name: Name,
    read: Patterns = None,
    write: Patterns = None,
    manage: Patterns = None,
    group: Groups = None,
    queue: Queues = None,
    writer: WriterNames = None,
    application: Applications = None,
    act_as: ActedFor = None,
    virtual_host: VirtualHost = DEFAULT_VIRTUAL_HOST,
    data: Data = DATA,
) -> None:
    """Let a user read, write or manage (create, delete) resources, and use shared names. The user `anonymous` stands
    for clients without credentials.
    """
    with Users(data) as users:
        users.grant(
            name, _build_grants(virtual_host, read, write, manage, group, queue, writer, application, act_as)
        )


def revoke(
    name: Name,
    read: Patterns = None,
    write: Patterns = None,
    manage: Patterns = None,
    group: Groups = None,
    queue: Queues = None,
    writer: WriterNames = None,
    application: Applications = None,
    act_as: ActedFor = None,
    everything: Annotated[bool, typer.Option("--all", help="Every right, in every virtual host.")] = False,
    virtual_host: VirtualHost = DEFAULT_VIRTUAL_HOST,
    data: Data = DATA,
) -> None:
    """Remove grants with the same patterns; readers and writers that depend on them end."""
    with Users(data) as users:
        rights = (read, write, manage, group, queue, writer, application, act_as)
        users.revoke(name, None if everything else _build_grants(virtual_host, *rights))


def _build_grants(virtual_host: str, *rights: list[str] | None) -> list[GrantRecord]:
    """The grants for the patterns of each right, in the order of `Right`."""
    grants = [
        GrantRecord(virtual_host, right.value, pattern)
        for right, patterns in zip(Right, rights, strict=True)
        for pattern in patterns or ()
    ]
    if not grants:
        raise OptionError(
            "no right is given: --read, --write or --manage needs a pattern of resources ('.*' is all), --group, "
            "--queue, --writer or --application one of such names"
        )
    return grants


def _read_password(file: Path | None, variable: str | None, iterations: int) -> PasswordRecord:
    """The password from a file, a variable or a prompt; never from an argument, which other users can see."""
    if file is not None and variable is not None:
        raise OptionError("--password-file and --password-env contradict each other; give one of them")
    if file is not None:
        password = read_password(file)
    elif variable is not None:
        password = password_in(variable)
    else:
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    if len(password) < MIN_PASSWORD:
        raise OptionError(f"a password has at least {MIN_PASSWORD} characters; choose a longer one")
    return new_password(password, os.urandom, iterations)
