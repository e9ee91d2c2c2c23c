"""The broker's half of one SASL conversation (MTL-24 to 34). Sans IO; nothing here waits, or derives keys for long.

    ANONYMOUS   response ─► Accepted
    EXTERNAL    response ─► Accepted | Denied
    PLAIN       response ─► Check ─(the password is right)─► the caller accepts
    SCRAM       first ─► Challenge ─ final ─► Challenge (server's proof) | Denied ─ empty ─► Accepted

A client cannot find out whether a user exists: `Find` returns a verifier for every name.
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
"""The principal of a client without proof."""


Find = Callable[[str], Verifier]
"""The verifier of a user's password; for an unknown user one that no password fits."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """Not finished: the client has to answer this challenge."""

    octets: bytes


@dataclass(frozen=True, slots=True)
class Accepted:
    """The client has proved to be `user`."""

    user: str


@dataclass(frozen=True, slots=True)
class Denied:
    """The proof is wrong, or the message invalid; `user` is the name that the client gave, if it is known."""

    user: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """The client is `user` if the password fits the verifier. The caller checks that, since it is slow on purpose."""

    user: str
    password: str = field(repr=False)
    verifier: Verifier


Outcome = Challenge | Accepted | Denied | Check


class Exchange:
    """One conversation by one mechanism. `owner` is the user to whom the connection's key belongs."""

    def __init__(self, mechanism: str, find: Find, owner: str | None, nonce: str) -> None:
        self.mechanism = mechanism
        self.user = ""
        """The name that the client gave, as soon as it is known."""
        self._find = find
        self._owner = owner
        self._nonce = nonce
        self._begin = self._FIRST[mechanism]
        self._scram: _Scram | None = None

    def respond(self, response: bytes) -> Outcome:
        """The outcome of the client's next response, for any octets. After an outcome other than `Challenge` the
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
        message = plain.decode(response)
        self.user = message.user
        if message.acting_as not in {"", message.user}:
            return Denied(message.user)
        return Check(message.user, message.password, self._find(message.user))

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
    """SCRAM in three turns: the server's proof has a turn of its own, since a 201 has no member for it."""

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
    """The handler of a response at each stage, and the stage after a Challenge; any other outcome ends it."""
