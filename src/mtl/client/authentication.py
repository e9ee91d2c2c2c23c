"""The client's side of SASL (MTL-24 to 34; PROTOCOL.md 2): SCRAM-SHA-256, PLAIN, ANONYMOUS. Sans IO."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

from mtl.errors import Refused
from mtl.wire import control as w

_ANONYMOUS, _PLAIN, _SCRAM = "ANONYMOUS", "PLAIN", "SCRAM-SHA-256"


class Authentication:
    """One conversation: `begin` answers a 401, `proceed` a 402. The strongest mechanism that both know is taken."""

    def __init__(self, user: str | None, password: str | None) -> None:
        self._user = user
        self._password = password
        self._tried: set[str] = set()
        self._scram: _Scram | None = None
        self._mechanism = ""

    def begin(self, mechanisms: Iterable[str]) -> w.Authorize:
        """The first response. Raises `Refused` 401 when no mechanism is left to try."""
        offered = {name.upper() for name in mechanisms}
        usable = [m for m in self._known() if m in offered and m not in self._tried]
        if not usable:
            raise Refused(401, "not-authorized", self._explain(offered))
        self._mechanism = usable[0]
        self._tried.add(self._mechanism)
        if self._mechanism == _SCRAM:
            assert self._user is not None
            assert self._password is not None
            self._scram = _Scram(self._user, self._password)
            return self._respond(self._scram.first())
        if self._mechanism == _PLAIN:
            return self._respond(f"\0{self._user}\0{self._password}")
        return self._respond("mtl")

    def proceed(self, challenged: w.Challenged) -> w.Authorize:
        """The response to a challenge. Raises `Refused` 401 when it is none that this mechanism can answer."""
        if self._scram is None or challenged.mechanism.upper() != _SCRAM:
            raise Refused(401, "not-authorized", f"an unexpected challenge of {challenged.mechanism}")
        try:
            text = base64.b64decode(challenged.challenge, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise Refused(401, "not-authorized", "a challenge that is no BASE64 of text") from error
        return self._respond(self._scram.next(text))

    def _respond(self, text: str) -> w.Authorize:
        return w.Authorize(mechanism=self._mechanism, response=base64.b64encode(text.encode()).decode())

    def _known(self) -> list[str]:
        if self._user is None:
            return [_ANONYMOUS]
        return [_SCRAM, _PLAIN] if _Scram.available() else [_PLAIN]

    def _explain(self, offered: set[str]) -> str:
        if self._user is None:
            return f"the broker wants credentials ({', '.join(sorted(offered)) or 'no mechanism named'})"
        if self._tried:
            return f"the broker did not accept the password of user {self._user!r}"
        names = ", ".join(sorted(offered)) or "no mechanism"
        return f"the broker offers {names}; this client knows {', '.join(self._known())}"


class _Scram:
    """RFC 5802 by scramp, which is an extra."""

    def __init__(self, user: str, password: str) -> None:
        from scramp import ScramClient  # noqa: PLC0415 an extra, needed by few

        self._client = ScramClient([_SCRAM], user, password)
        self._stage = 0

    @staticmethod
    def available() -> bool:
        """Whether the extra is installed."""
        try:
            import scramp  # noqa: F401, PLC0415 the same
        except ImportError:
            return False
        return True

    def first(self) -> str:
        """The client's first message."""
        message: str = self._client.get_client_first()
        return message

    def next(self, challenge: str) -> str:
        """What follows a message of the server. Raises `Refused` 401 when the server cannot prove itself."""
        from scramp import ScramException  # noqa: PLC0415 an extra, needed by few

        try:
            if self._stage == 0:
                self._stage = 1
                self._client.set_server_first(challenge)
                message: str = self._client.get_client_final()
                return message
            self._client.set_server_final(challenge)
        except ScramException as error:
            raise Refused(401, "not-authorized", f"SCRAM failed: {error}") from error
        return ""
