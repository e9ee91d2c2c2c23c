"""Control sessions: who is talking to us, in which virtual host, under which profile.

A session is found by the token of its 201 when the request carries it, else by the REQ identity (PROTOCOL.md 2). An
identity alone is no authority (PROTOCOL.md 3), so a request that carries a token is judged by the token only.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence

from mtl import limits
from mtl.broker.outbox import Outbox
from mtl.errors import Refused
from mtl.profiles import PROFILES, Profile
from mtl.protocol.control import ControlSession
from mtl.wire import control as w

ANONYMOUS = "ANONYMOUS"
"""RFC 4505: the client says who it wants to be known as, and nothing proves it."""


class Session:
    """One client's control session."""

    def __init__(self, token: str, identity: bytes, vhost: str, now: float) -> None:
        self.token = token
        self.identity = identity
        self.control = ControlSession()
        self.vhost = vhost
        self.principal = ""
        self.profile: Profile | None = None
        self.heard = now


class Sessions:
    """Every session, by token and by identity; at most `limits.MAX_SESSIONS`, the longest silent one leaves first, one
    with leases (`in_use`) last.

    The first of `vhosts` is where a client is that names none (PROTOCOL.md 2).
    """

    def __init__(
        self,
        outbox: Outbox,
        random: Callable[[int], bytes],
        vhosts: Sequence[str],
        anonymous: bool,
        boot: str,
        heartbeat_s: float,
        in_use: Callable[[str], bool],
        ended: Callable[[str], None],
    ) -> None:
        self._outbox = outbox
        self._random = random
        self._vhosts = vhosts
        self._anonymous = anonymous
        self._boot = boot
        self._heartbeat_s = heartbeat_s
        self._in_use = in_use
        self._ended = ended
        self._by_token: dict[str, Session] = {}
        self._by_identity: dict[bytes, Session] = {}

    def find(self, identity: bytes, request: w.Request) -> Session:
        """The session of a request; a new one in state NEW when there is none.

        Only an Open makes one that is kept, so that guessed tokens and stray requests cost nothing. An Open with a
        token that we do not know is a client's that outlived our last run.
        """
        token, opening = request.session, isinstance(request, w.Open)
        found = self._by_token.get(token) if token is not None else None
        if found is None and (token is None or opening):
            found = self._by_identity.get(identity)
        if found is None:
            found = Session(self._random(16).hex(), identity, self._vhosts[0], self._outbox.now.mono)
            if opening:
                self._keep(found)
        found.heard = self._outbox.now.mono
        return found

    def _keep(self, session: Session) -> None:
        if len(self._by_token) >= limits.MAX_SESSIONS:
            self._end(min(self._by_token.values(), key=lambda s: (self._in_use(s.token), s.heard)))
        self._by_token[session.token] = session
        self._by_identity[session.identity] = session

    def _end(self, session: Session) -> None:
        self._by_token.pop(session.token, None)
        if self._by_identity.get(session.identity) is session:
            del self._by_identity[session.identity]
        self._ended(session.token)

    def expire(self) -> None:
        """End the sessions that were silent for too long; the client opens a new one when it needs it. One with a live
        lease is not silent: a task may write for hours before it says the next word here.
        """
        horizon = self._outbox.now.mono - limits.SESSION_IDLE_S
        silent = [s for s in self._by_token.values() if s.heard < horizon]
        for session in silent:
            if not self._in_use(session.token):
                self._end(session)

    def __len__(self) -> int:
        return len(self._by_token)

    # --- the connection class, up to the profile ------------------------------------------------------------

    def open(self, session: Session, request: w.Open) -> w.Reply:
        """Connection.Open (MTL-21 to 27)."""
        if request.protocol.name != "MTL":
            raise Refused(400, w.BAD_ARGUMENTS, f"this is MTL, not {request.protocol.name!r}")
        if request.protocol.version != 1:
            raise Refused(501, w.UNSUPPORTED, f"MTL version 1 is spoken here, not {request.protocol.version}")
        vhost = request.virtual_host if request.virtual_host is not None else self._vhosts[0]
        if vhost not in self._vhosts:
            raise Refused(404, w.UNKNOWN_VIRTUAL_HOST, f"there is no virtual host {vhost!r}")
        session.vhost = vhost
        if not self._anonymous:
            return self.challenge()
        session.principal = "anonymous"
        return self._ready(session)

    def authorize(self, session: Session, request: w.Authorize) -> w.Reply:
        """Connection.Authorize (MTL-30 to 34)."""
        if request.mechanism.upper() not in self._mechanisms():
            return self.challenge()
        try:
            base64.b64decode(request.response, validate=True)
        except (binascii.Error, ValueError) as e:
            raise Refused(400, w.BAD_ARGUMENTS, "the response is no BASE64") from e
        session.principal = "anonymous"
        return self._ready(session)

    def select(self, session: Session, request: w.Profile) -> w.Reply:
        """Connection.Profile (MTL-35 to 39); leases that exist keep theirs (PROTOCOL.md 2)."""
        profile = PROFILES.get(request.profile.lower())
        if profile is None:
            raise Refused(
                400,
                w.UNKNOWN_PROFILE,
                f"there is no profile {request.profile!r}; there is {', '.join(PROFILES)}",
            )
        session.profile = profile
        return w.Ok()

    def _mechanisms(self) -> list[str]:
        return [ANONYMOUS] if self._anonymous else []

    def challenge(self) -> w.Unauthorized:
        """401 with the mechanisms that are accepted (MTL-27)."""
        return w.Unauthorized(mechanisms=self._mechanisms())

    def _ready(self, session: Session) -> w.Ready:
        return w.Ready(
            profiles=list(PROFILES),
            session=session.token,
            boot=self._boot,
            max_content=limits.MAX_CONTENT,
            max_pack=limits.MAX_PACK,
            heartbeat=self._heartbeat_s,
        )
