"""A door's logins at the broker: as itself, on behalf of a user, and to check a peer's password."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field, fields, replace

from mtl.client.aio import Connection, open_connection
from mtl.client.aio.opening import Opening
from mtl.client.settings import Settings
from mtl.doors.limits import DOOR_ATTEMPT_S, DOOR_CHECK_S
from mtl.errors import MtlError, Unreachable
from mtl.limits import REQUEST_TIMEOUT_S, RETRY_DEADLINE_S
from mtl.protocol.sasl.client import Credentials

log = logging.getLogger("mtl.doors")


@dataclass(frozen=True, slots=True)
class _PeerSettings(Settings):
    """The settings of a session on which first the door logs in, and then the user of a peer at an address: the broker
    counts wrong passwords for that address (PROTOCOL.md 2.1).
    """

    peer_user: str = ""
    peer_password: str = field(default="", repr=False)
    peer_address: str = ""

    def second_login(self) -> tuple[Credentials, str]:
        """The peer's."""
        own = self.credentials()
        return replace(
            own, user=self.peer_user, password=self.peer_password, mechanism=None, key=False, acting_as=None
        ), self.peer_address


class Logins:
    """Logins with the settings of a door's own connection. All raise as `mtl.aio.connect`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def own(self, acting_as: str | None = None, patience: float = RETRY_DEADLINE_S) -> Opening[Connection]:
        """The door's own connection, or one that acts as a user. `patience` is its deadline in seconds."""
        timeout = min(patience, REQUEST_TIMEOUT_S)
        return open_connection(
            replace(self._settings, acting_as=acting_as, request_timeout=timeout, retry_deadline=patience)
        )

    async def first(self, patience: float) -> Connection:
        """The door's own connection, as soon as the broker answers; reports at once if it does not.

        Raises `Unreachable` after `patience` seconds without an answer.
        """
        began, logged = time.monotonic(), False
        while True:
            try:
                async with self.own(patience=DOOR_ATTEMPT_S):
                    break
            except Unreachable as error:
                left = began + patience - time.monotonic()
                if left <= 0:
                    raise Unreachable(self._settings.endpoint, patience, "starting a door") from error
                if not logged:
                    log.warning(
                        "no broker answers at %s; the door waits up to %.0f s for it",
                        self._settings.endpoint,
                        left,
                    )
                    logged = True
            await asyncio.sleep(DOOR_ATTEMPT_S)
        return await self.own()

    async def connect_as(self, user: str) -> Connection:
        """A connection that acts as a user."""
        try:
            return await self.own(user)
        except MtlError as error:
            log.warning("no connection to the broker for the peers of user %r: %s", user, error)
            raise

    async def check(self, user: str, password: str, address: str) -> None:
        """Log in as the door, then as the user of a peer with this address, and disconnect."""
        own = {member.name: getattr(self._settings, member.name) for member in fields(Settings)}
        own |= {"request_timeout": DOOR_CHECK_S, "retry_deadline": DOOR_CHECK_S}
        peer = _PeerSettings(**own, peer_user=user, peer_password=password, peer_address=address or "-")
        async with open_connection(peer):
            pass
