"""A door's logins at the broker: as itself, on behalf of a user, and to check a peer's password."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from mtl.client import aio
from mtl.client.aio import Connection
from mtl.client.aio.opening import Opening
from mtl.doors.config import DoorConfig
from mtl.doors.limits import DOOR_ATTEMPT_S, DOOR_CHECK_S
from mtl.errors import MtlError, Unreachable
from mtl.limits import REQUEST_TIMEOUT_S, RETRY_DEADLINE_S

log = logging.getLogger("mtl.doors")


class Logins:
    """Logins with a door's configuration, at the broker's control endpoint. All raise as `mtl.aio.connect`."""

    def __init__(self, config: DoorConfig, endpoint: str) -> None:
        self._config = config
        self._endpoint = endpoint

    def own(self, acting_as: str | None = None, patience: float = RETRY_DEADLINE_S) -> Opening[Connection]:
        """The door's own connection, or one that acts as a user. `patience` is its deadline in seconds."""
        config = self._config
        return aio.connect(
            self._endpoint,
            virtual_host=config.virtual_host,
            user=config.user,
            password_file=config.password_file,
            password_env=config.password_env,
            sasl_mechanism=config.sasl_mechanism,
            curve_server_key=config.curve_server_key,
            curve_key_file=config.curve_client_key_file,
            acting_as=acting_as,
            request_timeout=min(patience, REQUEST_TIMEOUT_S),
            retry_deadline=patience,
        )

    async def wait(self, stopping: asyncio.Event, patience: float) -> bool:
        """Wait until the broker answers, and report at once if it does not; False when `stopping` is set before.

        Raises `Unreachable` after `patience` seconds without an answer.
        """
        began, said = time.monotonic(), False
        while not stopping.is_set():
            try:
                async with self.own(patience=DOOR_ATTEMPT_S):
                    return True
            except Unreachable as error:
                left = began + patience - time.monotonic()
                if left <= 0:
                    raise Unreachable(self._endpoint, patience, "starting a door") from error
                if not said:
                    log.warning(
                        "no broker answers at %s; it is waited for, %.0f s long", self._endpoint, left
                    )
                    said = True
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), DOOR_ATTEMPT_S)
        return False

    async def acting(self, user: str) -> Connection:
        """A connection that acts as a user."""
        try:
            return await self.own(user)
        except MtlError as error:
            log.warning("no connection to the broker for the peers of user %r: %s", user, error)
            raise

    async def check(self, user: str, password: str) -> None:
        """Log in as a user and disconnect. The door's own CURVE key is not used: it is not the user's."""
        checking = aio.connect(
            self._endpoint,
            virtual_host=self._config.virtual_host,
            user=user,
            password=password,
            curve_server_key=self._config.curve_server_key,
            request_timeout=DOOR_CHECK_S,
            retry_deadline=DOOR_CHECK_S,
        )
        async with checking:
            pass
