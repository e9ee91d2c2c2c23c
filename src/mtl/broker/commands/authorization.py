"""Authorization: the rights that a request needs, and the part of a list that a caller may see (PROTOCOL.md 2.2).

`table` says which rights each command needs. Rights are on resources, and on names that the users of a virtual host
share: groups, queues, writer names and applications.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import compress
from typing import Final

from mtl import limits
from mtl.broker.access.accounts import ON_RESOURCES, Accounts, Need, Right
from mtl.broker.access.caller import Caller
from mtl.broker.commands.command import Commands
from mtl.broker.commands.request_names import RequestNames, buries
from mtl.broker.limits import MAX_PAGE, MAX_PAGE_SCANNED
from mtl.broker.writing.resource import Resource
from mtl.errors import Refused
from mtl.wire import control

_MOST_NAMED: Final = 10
"""Most names in a refusal."""

_SPECIAL: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")
"""Characters with a meaning in a regular expression."""

APPLICATION: Final = frozenset({Right.APPLICATION})
_READ, _WRITE = frozenset({Right.READ}), frozenset({Right.WRITE})


class Authorization:
    """Looks requests up in the table of commands."""

    def __init__(self, accounts: Accounts, names: RequestNames, commands: Commands) -> None:
        self._accounts = accounts
        self._names = names
        self._commands = commands

    def needs(self, caller: Caller, request: control.Request) -> tuple[Need, ...]:
        """The needs of a request now."""
        rows = self._commands[type(request)].rights
        request_names = self._names
        return tuple(
            (rights, tuple(dict.fromkeys(names(request_names, caller, request)))) for rights, names in rows
        )

    def check(self, caller: Caller, request: control.Request) -> None:
        """Raises `Refused` 403 with the names on which a right is missing, whether or not they exist."""
        self.check_needs(caller.principal, caller.vhost, self.needs(caller, request))

    def check_needs(self, principal: str, vhost: str, needs: Iterable[Need]) -> None:
        """The same for the needs of an earlier request."""
        for rights, names in needs:
            allowed = self._accounts.may(principal, vhost, rights, names)
            denied = [name for name, yes in zip(names, allowed, strict=True) if not yes]
            if denied:
                raise _denied(principal, vhost, rights, denied)

    def extent(
        self, caller: Caller, request: control.ConnectionReader | control.ConnectionWriter
    ) -> Callable[[str], bool]:
        """Decides whether a resource belongs to a lease of "any and all", by the grants at the time of the call."""
        principal, vhost = caller.principal, caller.vhost

        def may(rights: frozenset[Right], name: str) -> bool:
            return self._accounts.may(principal, vhost, rights, [name])[0]

        if isinstance(request, control.ConnectionWriter):
            return lambda name: may(_WRITE, name)
        if not buries(caller, request):
            return lambda name: may(_READ, name)
        return lambda name: may(_READ, name) and may(_WRITE, self._names.dead_letter(vhost, name))

    def visibility(self, caller: Caller, names: Sequence[str]) -> list[bool]:
        """For each resource whether the caller may know of it."""
        return self._accounts.may(caller.principal, caller.vhost, ON_RESOURCES, names)

    def visible_resources(self, caller: Caller, resources: Sequence[Resource]) -> list[Resource]:
        """The resources that the caller may know of."""
        return list(compress(resources, self.visibility(caller, [r.name for r in resources])))

    def are_visible(self, caller: Caller, names: Iterable[str]) -> bool:
        """Whether the caller may know of all these resources."""
        return all(self.visibility(caller, list(names)))

    def visible_applications(
        self, caller: Caller, applications: Sequence[tuple[str, Collection[str]]]
    ) -> list[bool]:
        """For each application, or stage of one, with its resources: whether the caller may know of it. It needs the
        right `application` on the name, and any right on each of the resources.

        The result may be shorter than the list: it ends when MAX_PAGE_SCANNED resources were compared, or more
        applications than MAX_PAGE are visible.
        """
        may = self._accounts.may(
            caller.principal, caller.vhost, APPLICATION, [application for application, _ in applications]
        )
        shown: list[bool] = []
        compared = visible = 0
        for allowed, (_, resources) in zip(may, applications, strict=True):
            shown.append(allowed and self.are_visible(caller, resources))
            compared += len(resources) if allowed else 0
            visible += shown[-1]
            if compared >= MAX_PAGE_SCANNED or visible > MAX_PAGE:
                break
        return shown

    def beginnings(self, caller: Caller, rights: frozenset[Right]) -> list[str]:
        """Texts with one of which each name begins on which the caller may have one of the rights (`Accounts`)."""
        return self._accounts.beginnings(caller.principal, caller.vhost, rights)


_NOUNS: Final = {
    Right.GROUP: "the group",
    Right.QUEUE: "the queue",
    Right.WRITER: "the writer name",
    Right.APPLICATION: "the application",
}


def _denied(principal: str, vhost: str, rights: frozenset[Right], names: Sequence[str]) -> Refused:
    """The 403 with the missing right, the names, and the command that grants it."""
    right = min(rights, key=list(Right).index)
    listed = ", ".join(map(repr, names[:_MOST_NAMED]))
    pattern = shlex.quote(_SPECIAL.sub(r"\\\g<0>", names[0]))
    command = f"mtl grant {shlex.quote(principal)} --{right} {pattern}"
    if vhost != limits.DEFAULT_VIRTUAL_HOST:
        command += f" --virtual-host {shlex.quote(vhost)}"
    if right in ON_RESOURCES:
        denied = f"may not {' or '.join(sorted(rights))} {listed}"
        members = {"resources": list(names[:_MOST_NAMED])}
    else:
        denied = f"may not use {_NOUNS[right]} {listed}; its own names begin with {principal + '.'!r}"
        members = {"names": list(names[:_MOST_NAMED])}
    return Refused(
        403,
        control.NOT_AUTHORIZED,
        f"user {principal!r} {denied}; `{command}` gives the right",
        right=right.value,
        **members,
    )
