"""The client's half of SASL (MTL-24 to 34; PROTOCOL.md 2): EXTERNAL, SCRAM-SHA-256, PLAIN, ANONYMOUS. Sans IO."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from mtl.errors import Malformed, Refused
from mtl.protocol.sasl import plain
from mtl.protocol.sasl.mechanisms import (
    ANONYMOUS,
    BY_STRENGTH,
    EXTERNAL,
    PLAIN,
    SCRAM,
    WITH_PASSWORD,
    decode,
    encode,
    scram_available,
    text_of,
)
from mtl.protocol.sasl.scram import ScramClient, Unproven
from mtl.wire import control
from mtl.wire.visible import printable


@dataclass(frozen=True, slots=True)
class Credentials:
    """A client's credentials: a user and its password, a CURVE key that the broker may know (`key`), or none.

    `mechanism` is the only one to be used; None: the strongest that both sides support. `clear`: the connection is
    neither encrypted nor local to the machine, so PLAIN is used only when it is that `mechanism`. `acting_as` is the
    user whose rights the session gets instead of those of `user`.
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    mechanism: str | None = None
    key: bool = False
    clear: bool = False
    acting_as: str | None = None

    def usable(self) -> list[str]:
        """The mechanisms for these credentials, strongest first."""
        if self.mechanism is not None:
            return [self.mechanism.upper()]
        if self.password is not None:
            return [m for m in BY_STRENGTH if m in WITH_PASSWORD and self._trusts(m)]
        known = [EXTERNAL] if self.key else []
        return known if self.user is not None else [*known, ANONYMOUS]

    def _trusts(self, mechanism: str) -> bool:
        return scram_available() if mechanism == SCRAM else not self.clear

    @property
    def insist(self) -> bool:
        """Whether to authenticate even if the broker does not ask for it."""
        return self.user is not None or self.acting_as is not None or self.mechanism not in {None, ANONYMOUS}


class Authentication:
    """One conversation: `begin` answers a 401, `proceed` a 402, `finish` checks a 201. Mechanisms that both sides
    support are tried once each, strongest first.
    """

    def __init__(self, credentials: Credentials, peer: str | None = None) -> None:
        """`peer` is the address of the peer whose credentials a door checks."""
        self._credentials = credentials
        self._peer = peer
        self._tried: set[str] = set()
        self._scram: ScramClient | None = None
        self._mechanism = ""

    def begin(self, mechanisms: Iterable[str]) -> control.ConnectionAuthorize:
        """The first response. Raises `Refused` 401 when no mechanism is left to try."""
        offered = {name.upper() for name in mechanisms}
        usable = [m for m in self._credentials.usable() if m in offered and m not in self._tried]
        if not usable:
            raise _unauthorized(self._explain(offered))
        self._mechanism = usable[0]
        self._tried.add(self._mechanism)
        self._scram = None
        return self._respond(self._FIRST[self._mechanism](self))

    def proceed(self, challenged: control.Challenged) -> control.ConnectionAuthorize:
        """The response to a challenge. Raises `Refused` 401 for a challenge that the mechanism cannot answer."""
        if self._scram is None or challenged.mechanism.upper() != SCRAM:
            raise _unauthorized(f"an unexpected challenge of {challenged.mechanism}")
        try:
            return self._respond(self._scram.next(text_of(decode(challenged.challenge))).encode())
        except Malformed as error:
            raise _unauthorized("a challenge that is not BASE64 of text") from error
        except Unproven as error:
            raise _unauthorized(f"SCRAM failed: {error}") from error

    def finish(self, ready: control.Ready) -> None:
        """The broker has accepted the client. Raises `Refused` 401 when it has not proved that it knows the password,
        or does not repeat the requested `acting_as`: the session would have the rights of the user that logged in.
        """
        if self._scram is not None and not self._scram.finished:
            raise _unauthorized(
                "the broker accepted this client without a proof that it knows the password; it is another broker"
            )
        if ready.acting_as != self._credentials.acting_as:
            raise _unauthorized(
                f"the broker accepted this client, but not to act as {self._credentials.acting_as!r}: it does not "
                "support this; log in as that user"
            )

    def _respond(self, octets: bytes) -> control.ConnectionAuthorize:
        return control.ConnectionAuthorize(
            mechanism=self._mechanism,
            response=encode(octets),
            acting_as=self._credentials.acting_as,
            peer=self._peer,
        )

    def _start_scram(self) -> bytes:
        user, password = self._login()
        self._scram = ScramClient(user, password)
        return self._scram.first().encode()

    def _plain(self) -> bytes:
        return plain.encode(plain.PlainMessage(*self._login()))

    def _anonymous(self) -> bytes:
        return b"mtl"

    def _external(self) -> bytes:
        return (self._credentials.user or "").encode()

    def _login(self) -> tuple[str, str]:
        user, password = self._credentials.user, self._credentials.password
        if user is None or password is None:
            raise _unauthorized(f"{self._mechanism} needs a user and a password")
        return user, password

    def _explain(self, offered: set[str]) -> str:
        names = printable(", ".join(sorted(offered))) or "no mechanism"
        if self._tried & WITH_PASSWORD:
            return f"the broker did not accept the password of user {self._credentials.user!r}"
        if EXTERNAL in self._tried:
            return "the broker knows no user with this CURVE key; `mtl user key` adds it to one"
        if self._credentials.user is None and self._credentials.mechanism is None:
            return f"the broker asks for credentials ({names})"
        if not self._credentials.usable():
            return "a password on a connection that is not encrypted needs scramp: pip install 'pyspark-mtl[scram]'"
        if self._credentials.clear and PLAIN in offered and SCRAM not in offered:
            return (
                "the broker only offers PLAIN, on a connection that is not encrypted; "
                "give sasl_mechanism PLAIN if the password may be sent readable"
            )
        return f"the broker offers {names}; this client knows {', '.join(self._credentials.usable())}"

    _FIRST: ClassVar[dict[str, Callable[[Authentication], bytes]]] = {
        EXTERNAL: _external,
        SCRAM: _start_scram,
        PLAIN: _plain,
        ANONYMOUS: _anonymous,
    }


def _unauthorized(message: str) -> Refused:
    return Refused(401, control.NOT_AUTHORIZED, message)
