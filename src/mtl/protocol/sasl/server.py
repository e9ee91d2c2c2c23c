"""The broker's half of one SASL conversation (MTL-24 to 34). Sans IO; nothing here waits, or derives keys for long.

    ANONYMOUS   response ─► Accepted
    EXTERNAL    response ─► Accepted | Denied
    PLAIN       response ─► Check ─(the password is right)─► the caller accepts
    SCRAM       first ─► Challenge ─ final ─► Challenge (our proof) | Denied ─ empty ─► Accepted

Whether a user exists is never visible from outside: `Find` has a verifier for everybody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Final

from mtl.errors import Malformed
from mtl.protocol.sasl import plain
from mtl.protocol.sasl.mechanisms import ANONYMOUS, EXTERNAL, PLAIN, SCRAM, text_of
from mtl.protocol.sasl.scram import ScramServer, Unproven, Verifier

ANONYMOUS_USER: Final = "anonymous"
"""The principal of whoever comes in without proof."""


Find = Callable[[str], Verifier]
"""The verifier of a user's password; one that no password fits for a user that there is not."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """Not finished: the client is to answer this."""

    octets: bytes


@dataclass(frozen=True, slots=True)
class Accepted:
    """The client is who it says."""

    user: str


@dataclass(frozen=True, slots=True)
class Denied:
    """It is not, or what it said makes no sense; `user` is who it said to be, if that much was understood."""

    user: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """It is `user` if the password fits the verifier. That takes a while on purpose, so the caller sees to it."""

    user: str
    password: str = field(repr=False)
    verifier: Verifier


Outcome = Challenge | Accepted | Denied | Check


class Exchange:
    """One conversation by one mechanism. `owner` is the user to whom the connection's key belongs."""

    def __init__(self, mechanism: str, find: Find, owner: str | None, nonce: str) -> None:
        self.mechanism = mechanism
        self.user = ""
        """Who says to log in, as soon as that is known."""
        self._find = find
        self._owner = owner
        self._nonce = nonce
        self._begin = self._FIRST[mechanism]
        self._scram: _Scram | None = None

    def respond(self, response: bytes) -> Outcome:
        """What comes of the client's next response. Any octets have an outcome; after one that is no `Challenge` the
        conversation is over.
        """
        try:
            return self._scram.respond(response) if self._scram is not None else self._begin(self, response)
        except Malformed:
            return Denied(self.user)

    def _anonymous(self, _trace: bytes) -> Outcome:
        return Accepted(ANONYMOUS_USER)

    def _external(self, acting_as: bytes) -> Outcome:
        self.user = self._owner or ""
        if self._owner is None or text_of(acting_as) not in {"", self._owner}:
            return Denied(self.user)
        return Accepted(self._owner)

    def _plain(self, response: bytes) -> Outcome:
        said = plain.decode(response)
        self.user = said.user
        if said.acting_as not in {"", said.user}:
            return Denied(said.user)
        return Check(said.user, said.password, self._find(said.user))

    def _start_scram(self, response: bytes) -> Outcome:
        self._scram = _Scram(ScramServer(self._find, self._nonce))
        outcome = self._scram.respond(response)
        self.user = self._scram.user
        return outcome

    _FIRST: ClassVar[dict[str, Callable[[Exchange, bytes], Outcome]]] = {
        ANONYMOUS: _anonymous,
        EXTERNAL: _external,
        PLAIN: _plain,
        SCRAM: _start_scram,
    }


class _Stage(Enum):
    FIRST = "first"
    FINAL = "final"
    PROVED = "proved"
    OVER = "over"


class _Scram:
    """SCRAM in three turns: the server's proof needs one of its own, since a 201 has no room for it."""

    def __init__(self, server: ScramServer) -> None:
        self._server = server
        self._stage = _Stage.FIRST

    @property
    def user(self) -> str:
        return self._server.user

    def respond(self, response: bytes) -> Outcome:
        stage, self._stage = self._stage, _Stage.OVER
        turn, following = self._TURNS[stage]
        outcome = turn(self, response)
        if isinstance(outcome, Challenge):
            self._stage = following
        return outcome

    def _first(self, response: bytes) -> Outcome:
        return Challenge(self._server.first(text_of(response)).encode())

    def _final(self, response: bytes) -> Outcome:
        try:
            return Challenge(self._server.final(text_of(response)).encode())
        except Unproven:
            return Denied(self.user)

    def _proved(self, response: bytes) -> Outcome:
        return Accepted(self.user) if not response else Denied(self.user)

    def _over(self, _response: bytes) -> Outcome:
        return Denied(self.user)

    _TURNS: ClassVar[dict[_Stage, tuple[Callable[[_Scram, bytes], Outcome], _Stage]]] = {
        _Stage.FIRST: (_first, _Stage.FINAL),
        _Stage.FINAL: (_final, _Stage.PROVED),
        _Stage.PROVED: (_proved, _Stage.OVER),
        _Stage.OVER: (_over, _Stage.OVER),
    }
    """What each response means, and where a Challenge leads; anything else is the end."""
