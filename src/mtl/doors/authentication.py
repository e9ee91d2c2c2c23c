"""Authentication at a WebSocket's upgrade: by HTTP Basic, a bearer token or a client certificate, as configured."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path

from mtl.doors.budget import Budget
from mtl.doors.config import DoorConfig
from mtl.doors.identity import Basic, Bearer, Tokens, parse, user_of_certificate
from mtl.doors.limits import DOOR_LOGINS, DOOR_LOGINS_ADDRESS
from mtl.errors import MtlError, Refused
from mtl.wire.control import NOT_AUTHORIZED

Check = Callable[[str, str, str], Awaitable[None]]
"""Logs in at the broker with a user and a password, for a peer at an address, and disconnects. Raises the errors of the
client.
"""


class AccessDenied(Exception):
    """Access denied: the status and the text of the answer, and the challenges for its WWW-Authenticate."""

    def __init__(self, status: HTTPStatus, words: str, challenges: tuple[str, ...] = ()) -> None:
        super().__init__(status, words, challenges)
        self.status = status
        self.words = words
        self.challenges = challenges


class PeerAuthenticator:
    """See the module. The Authorization header decides if there is one; otherwise the certificate.

    The broker counts wrong passwords by user and address of the peer. A door has no counts of its own, which would lock
    out other peers.
    """

    def __init__(self, config: DoorConfig, check: Check) -> None:
        self._config = config
        self._check = check
        self._tokens = Tokens(Path(config.tokens_file)) if config.tokens_file is not None else None
        self._checks = Budget(DOOR_LOGINS, DOOR_LOGINS_ADDRESS)
        """Password checks at a time. An address has few of them, so that a guesser does not take those of others."""

    async def authenticate(self, header: str | None, address: str, tls: ssl.SSLObject | None) -> str | None:
        """The user of a peer; None if the door does not authenticate. Raises `AccessDenied`."""
        if not self._config.authenticates:
            return None
        user = (
            user_of_certificate(tls)
            if header is None
            else await self._check_credentials(parse(header), address)
        )
        if user is None:
            raise self._unauthorized(
                "credentials are needed" if header is None else "these credentials are wrong"
            )
        return user

    async def _check_credentials(self, credentials: Basic | Bearer | None, address: str) -> str | None:
        match credentials:
            case Bearer(token) if self._tokens is not None:
                return self._tokens.user(token)
            case Basic(user, password) if self._config.basic:
                return await self._log_in(user, password, address)
            case _:
                return None

    async def _log_in(self, user: str, password: str, address: str) -> str | None:
        await self._checks.acquire(1, address)
        try:
            await self._check(user, password, address)
        except Refused as refused:
            if refused.reason != NOT_AUTHORIZED:
                raise AccessDenied(HTTPStatus.SERVICE_UNAVAILABLE, "try again later") from refused
            return None
        except MtlError as error:
            raise AccessDenied(
                HTTPStatus.SERVICE_UNAVAILABLE, "the broker cannot be reached; try again later"
            ) from error
        finally:
            self._checks.release(1, address)
        return user

    def _unauthorized(self, words: str) -> AccessDenied:
        challenges = []
        if self._config.basic:
            challenges.append('Basic realm="mtl", charset="UTF-8"')
        if self._tokens is not None:
            challenges.append('Bearer realm="mtl"')
        return AccessDenied(HTTPStatus.UNAUTHORIZED, words, tuple(challenges))
