"""Control requests: each is checked, waits for the logs that it needs, and is carried out by its handler.

A handler is a method of a part (`assembly`). It returns the answer, now or when the disk is done; a `Refused` or
`StorageError` that it raises becomes the answer, too. So each request is answered exactly once (MTL-04).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mtl.broker.access.caller import Caller
from mtl.broker.access.session import Session
from mtl.broker.access.sessions import Sessions
from mtl.broker.commands.authorization import Authorization
from mtl.broker.commands.command import Command, Commands
from mtl.broker.commands.listing import Listing
from mtl.broker.commands.needed_logs import NeededLogs
from mtl.broker.outbox import Outbox, unstored
from mtl.broker.quotas.pools import Pool
from mtl.broker.quotas.quotas import Quota, Quotas
from mtl.broker.steps import run
from mtl.errors import Refused, StorageError
from mtl.profiles import CommandClass
from mtl.protocol.states import RequestKind
from mtl.wire import control

Handlers = Mapping[type, Callable[[Any, Any], Awaitable[control.Reply]]]
"""The handler of each type of request, with a `Caller`, or with the `Session` where the command's row says so."""


class Requests:
    """Carries out requests."""

    def __init__(
        self,
        outbox: Outbox,
        sessions: Sessions,
        authorization: Authorization,
        needed: NeededLogs,
        listing: Listing,
        commands: Commands,
        handlers: Handlers,
        quotas: Quotas,
    ) -> None:
        self._outbox = outbox
        self._quotas = quotas
        self._under_way = Pool(quotas, Quota.REQUESTS)
        """The requests that are not answered yet."""
        self._sessions = sessions
        self._authorization = authorization
        self._needed = needed
        self._listing = listing
        self._commands = commands
        self._handlers = handlers

    def handle(
        self, session: Session, request: control.Request, reply: Callable[[control.Reply | Refused], None]
    ) -> None:
        """Check the state of the session, carry the request out, and apply the answer to that state.

        The request keeps the principal and the virtual host that the session has now, even while it waits.
        """
        try:
            kind = session.control.check(request)
        except Refused as e:
            reply(self._sessions.challenge(session) if e.status == 401 else e)
            return
        run(self._answer(session, kind, request, reply))

    async def _answer(
        self,
        session: Session,
        kind: RequestKind,
        request: control.Request,
        reply: Callable[[control.Reply | Refused], None],
    ) -> None:
        outcome: control.Reply | Refused
        try:
            outcome = await self._carry_out(session, request)
            status = outcome.code
        except Refused as refused:
            outcome, status = refused.with_traceback(None), refused.status  # its frames would keep it alive
        session.control.replied(kind, status)
        reply(outcome)
        if (
            isinstance(outcome, control.Ready)
            and kind is RequestKind.AUTHORIZE
            and session.profile is not None
        ):
            session.control.profile_kept()

    async def _carry_out(self, session: Session, request: control.Request) -> control.Reply:
        command = self._commands[type(request)]
        if command.session:
            return await self._handlers[type(request)](session, request)
        caller = session.caller
        _check_profile(caller, request, command)
        request = self._listing.opened(request)
        try:
            reply = await self._count_and_perform(caller, request)
        except StorageError as error:
            refused = unstored(error)
            self._outbox.audit.answered(caller, request, refused)
            raise refused from error
        except Refused as refused:
            self._outbox.audit.answered(caller, request, refused)
            raise
        self._outbox.audit.answered(caller, request, reply)
        return self._listing.sealed(reply)

    async def _count_and_perform(self, caller: Caller, request: control.Request) -> control.Reply:
        self._under_way.check(caller.principal)
        owner = self._quotas.owner(caller.principal)
        self._under_way.add(owner)
        try:
            reply = await self._perform(caller, request)
        except (Refused, StorageError):
            self._under_way.remove(owner)
            raise
        self._under_way.remove(owner)
        return reply

    async def _perform(self, caller: Caller, request: control.Request) -> control.Reply:
        self._authorization.check(caller, request)
        if not self._needed.are_open:
            await self._needed.opened(caller, request)
            self._authorization.check(caller, request)  # a right may have been revoked meanwhile
        return await self._handlers[type(request)](caller, request)


def _check_profile(caller: Caller, request: control.Request, command: Command) -> None:
    """Raises `Refused` 501 for a command that the profile does not have (MTL-40)."""
    if command.of is not CommandClass.CONNECTION and command.of not in caller.chosen_profile.classes:
        raise Refused(
            501,
            control.UNKNOWN_COMMAND,
            f'the profile "{caller.chosen_profile.name}" has no {request.command}',
        )
