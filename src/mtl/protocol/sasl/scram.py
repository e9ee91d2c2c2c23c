"""SCRAM-SHA-256 (RFC 5802, RFC 7677) by scramp, which is an extra and therefore imported where it is used.

A server keeps only a `Verifier` of a password. It is sufficient to check proofs, but not to log in.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mtl.errors import LocalError, Malformed
from mtl.protocol.sasl.mechanisms import SCRAM, scram_available
from mtl.protocol.sasl.names import user_name

if TYPE_CHECKING:
    from scramp import ScramMechanism

SALT_OCTETS = 16


class Unproven(Exception):
    """The other side did not prove that it knows the password."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """The stored form of a password (RFC 5802, section 3): StoredKey and ServerKey, 32 octets each, with the salt and
    the iterations of PBKDF2 that they were made with.
    """

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def make_verifier(password: str, salt: bytes, iterations: int) -> Verifier:
    """The verifier of a password; takes as long as its iterations take.

    Raises `LocalError` for a password that SASLprep (RFC 4013) forbids, or without the extra `scram`.
    """
    mechanism = _mechanism()
    from scramp import ScramException  # noqa: PLC0415 see the module

    try:
        salt, stored, server, count = mechanism.make_auth_info(password, iterations, salt)
    except (ScramException, ValueError) as error:
        raise LocalError(f"this password cannot be used: {_reason(error)}") from error
    return Verifier(salt, count, stored, server)


def proves(password: str, verifier: Verifier) -> bool:
    """Whether the verifier is one of this password; takes as long as its iterations take, right or wrong."""
    try:
        made = make_verifier(password, verifier.salt, verifier.iterations)
    except LocalError:
        return False
    return hmac.compare_digest(made.stored_key, verifier.stored_key)


class ScramServer:
    """The broker's half of one conversation. `find` returns a user's verifier, also for unknown users, so that a client
    cannot find out which users exist (RFC 5802, section 9).
    """

    def __init__(self, find: Callable[[str], Verifier], nonce: str) -> None:
        self.user = ""
        """The user in the client's first message, in the normal form; empty before it."""
        self._find = find
        self._server = _mechanism().make_server(self._keys, s_nonce=nonce)

    def first(self, message: str) -> str:
        """The answer to the client's first message. Raises `Malformed` for an invalid message."""
        from scramp import ScramException  # noqa: PLC0415 see the module

        try:
            self._server.set_client_first(message)
            answer: str = self._server.get_server_first()
        except (ScramException, ValueError) as error:
            raise Malformed(f"an invalid first SCRAM message: {_reason(error)}") from error
        return answer

    def final(self, message: str) -> str:
        """The broker's own proof, after the client's. Raises `Unproven`, also for an invalid message."""
        from scramp import ScramException  # noqa: PLC0415 see the module

        try:
            self._server.set_client_final(message)
            answer: str = self._server.get_server_final()
        except (ScramException, ValueError) as error:
            raise Unproven(_reason(error)) from error
        return answer

    def _keys(self, user: str) -> tuple[bytes, bytes, bytes, int]:
        self.user = user_name(user)
        verifier = self._find(self.user)
        return verifier.salt, verifier.stored_key, verifier.server_key, verifier.iterations


class ScramClient:
    """The client's half of one conversation. Raises `LocalError` for a name or password that SASLprep forbids."""

    def __init__(self, user: str, password: str) -> None:
        from scramp import ScramClient as Scramp  # noqa: PLC0415 see the module
        from scramp import ScramException  # noqa: PLC0415

        try:
            self._client = Scramp([SCRAM], user, password)
        except (ScramException, ValueError) as error:
            raise LocalError(f"this user name or password cannot be used: {_reason(error)}") from error
        self._stages = iter((self._final, self._finish))
        self.finished = False
        """Whether the server has proved that it knows the password."""

    def first(self) -> str:
        """The first message."""
        message: str = self._client.get_client_first()
        return message

    def next(self, challenge: str) -> str:
        """The response to a message of the server. Raises `Unproven` when the server's proof is wrong or its message
        invalid.
        """
        from scramp import ScramException  # noqa: PLC0415 see the module

        stage = next(self._stages, None)
        if stage is None:
            raise Unproven("the server continues after its proof")
        try:
            return stage(challenge)
        except (ScramException, ValueError) as error:
            raise Unproven(_reason(error)) from error

    def _final(self, challenge: str) -> str:
        self._client.set_server_first(challenge)
        message: str = self._client.get_client_final()
        return message

    def _finish(self, challenge: str) -> str:
        self._client.set_server_final(challenge)
        self.finished = True
        return ""


def _mechanism() -> ScramMechanism:
    if not scram_available():
        raise LocalError("passwords need scramp: pip install 'pyspark-mtl[scram]'")
    from scramp import ScramMechanism as Mechanism  # noqa: PLC0415 see the module

    return Mechanism(SCRAM)


def _reason(error: Exception) -> str:
    """The message of scramp's error, which never contains a password."""
    return str(error)
