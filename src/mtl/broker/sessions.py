"""Control sessions: who is talking to us, in which virtual host, under which profile.

A session is found by the token of its 201 when the request carries it, else by the REQ identity (PROTOCOL.md 2). An
identity alone is no authority (PROTOCOL.md 3), so a request that carries a token is judged by the token only, and a
user's session on a connection that others can read is found by its token only. Behind CURVE a session belongs to the
key that opened it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from mtl import limits
from mtl.broker.accounts import Accounts
from mtl.broker.authentication import AuthenticationSettings, Authenticator
from mtl.broker.outbox import Outbox
from mtl.errors import Refused
from mtl.net.origin import Origin
from mtl.profiles import PROFILES, Profile
from mtl.protocol.control import ControlSession
from mtl.protocol.sasl.server import ANONYMOUS_USER, Exchange
from mtl.wire import control as w

Answer = Callable[[w.Reply | Refused], None]


class Session:
    """One client's control session. `principal` is empty until the client has been let in; `exchange` is a SASL
    conversation under way, `failed` how many failed.
    """

    def __init__(self, token: str, identity: bytes, origin: Origin, vhost: str, now: float) -> None:
        self.token = token
        self.identity = identity
        self.origin = origin
        self.control = ControlSession()
        self.vhost = vhost
        self.principal = ""
        self.exchange: Exchange | None = None
        self.failed = 0
        self.profile: Profile | None = None
        self.heard = now


class Sessions:
    """Every session, by token and by identity; at most `limits.MAX_SESSIONS`. Those leave first, some at a time, that
    nobody was let in to, then the longest silent, those with leases (`in_use`) last.

    The first of `vhosts` is where a client is that names none (PROTOCOL.md 2).
    """

    def __init__(
        self,
        outbox: Outbox,
        random: Callable[[int], bytes],
        vhosts: Sequence[str],
        accounts: Accounts,
        authentication: AuthenticationSettings,
        boot: str,
        heartbeat_s: float,
        in_use: Callable[[str], bool],
        ended: Callable[[str], None],
        changed_hands: Callable[[str], None],
    ) -> None:
        self._outbox = outbox
        self._random = random
        self._vhosts = vhosts
        self._accounts = accounts
        self._settings = authentication
        self._authenticator = Authenticator(outbox, random, accounts, authentication)
        self._boot = boot
        self._heartbeat_s = heartbeat_s
        self._in_use = in_use
        self._ended = ended
        self._changed_hands = changed_hands
        self._by_token: dict[str, Session] = {}
        self._by_identity: dict[bytes, Session] = {}

    def find(self, identity: bytes, origin: Origin, request: w.Request) -> Session:
        """The session of a request; a new one in state NEW when there is none.

        Only an Open makes one that is kept, so that guessed tokens and stray requests cost nothing. An Open with a
        token that we do not know is a client's that outlived our last run.
        """
        token, opening = request.session, isinstance(request, w.Open)
        found = self._by_token.get(token) if token is not None else None
        if found is None and (token is None or opening):
            found = self._by_identity_alone(identity)
        if found is None or found.origin.key != origin.key:
            found = Session(self._random(16).hex(), identity, origin, self._vhosts[0], self._outbox.now.mono)
            if opening:
                self._keep(found)
        found.heard = self._outbox.now.mono
        return found

    def _by_identity_alone(self, identity: bytes) -> Session | None:
        found = self._by_identity.get(identity)
        if found is None or found.principal in {"", ANONYMOUS_USER} or self._settings.identities_suffice:
            return found
        return None

    def _keep(self, session: Session) -> None:
        if len(self._by_token) >= limits.MAX_SESSIONS:
            self._make_room()
        self._by_token[session.token] = session
        self._by_identity[session.identity] = session

    def _make_room(self) -> None:
        """Several leave at once, for all are looked at to find them; but of those with leases only one."""
        most = max(1, limits.MAX_SESSIONS // limits.SESSIONS_LEAVING)
        leaving = heapq.nsmallest(most, self._by_token.values(), key=self._worth)
        for session in leaving[:1] + [x for x in leaving[1:] if not self._in_use(x.token)]:
            self._end(session)

    def _worth(self, session: Session) -> tuple[bool, bool, float]:
        return self._in_use(session.token), bool(session.principal), session.heard

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
        session.exchange = None
        if self._settings.anonymous is not True:
            return self.challenge(session)
        return self._enter(session, ANONYMOUS_USER)

    def authorize(self, session: Session, request: w.Authorize, answer: Answer) -> None:
        """Connection.Authorize (MTL-29 to 34), at any time; the same principal keeps its profile and its leases."""

        def decided(outcome: str | w.Unauthorized | w.Challenged | Refused) -> None:
            if not isinstance(outcome, str):
                answer(outcome)
                return
            try:
                ready = self._enter(session, outcome)
            except Refused as error:
                answer(error)
                return
            answer(ready)
            if session.profile is not None:
                session.control.profile_kept()

        self._authenticator.authorize(session, request, decided)

    def _enter(self, session: Session, principal: str) -> w.Ready:
        """Let a principal in. Raises `Refused` 403 for one that has nothing to do in the virtual host."""
        if not self._accounts.enters(principal, session.vhost):
            raise Refused(
                403,
                w.NOT_AUTHORIZED,
                f"user {principal!r} has no grant in the virtual host {session.vhost!r}; `mtl grant` gives some",
            )
        if session.principal not in {"", principal}:
            session.profile = None
            self._changed_hands(session.token)
        session.principal = principal
        session.failed = 0
        return self._ready(session)

    def suspend(self, concerned: Callable[[Session], bool]) -> None:
        """Have the clients of these sessions authenticate again with their next request (MTL-28)."""
        for session in self._by_token.values():
            if session.principal and concerned(session):
                session.exchange = None
                session.control.suspended()

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

    def challenge(self, session: Session) -> w.Unauthorized:
        """401 with the mechanisms that are accepted (MTL-27)."""
        return self._authenticator.challenge(session)

    def _ready(self, session: Session) -> w.Ready:
        return w.Ready(
            profiles=list(PROFILES),
            session=session.token,
            boot=self._boot,
            max_content=limits.MAX_CONTENT,
            max_pack=limits.MAX_PACK,
            heartbeat=self._heartbeat_s,
        )
