"""Control sessions: the client of each request, its virtual host and its profile.

A session is found by the token of its 201 when the request carries it, else by the REQ identity (PROTOCOL.md 2). An
identity alone proves nothing (PROTOCOL.md 3), so a request that carries a token is judged by the token only. A user's
session on a connection that others can read is found by its token only. Behind CURVE a session belongs to the key that
opened it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.broker.access.accounts import Accounts, Changes
from mtl.broker.access.authentication import AuthenticationSettings, Authenticator
from mtl.broker.access.session import Session
from mtl.broker.events import Event
from mtl.broker.leases.leases import Leases
from mtl.broker.outbox import Outbox
from mtl.broker.quotas.quotas import Quota, Quotas
from mtl.errors import Refused
from mtl.net.origin import Origin
from mtl.profiles import PROFILES
from mtl.protocol.sasl.server import ANONYMOUS_USER
from mtl.shares import Uses
from mtl.wire import control


class Sessions:
    """Every session, by token and by identity; at most `MAX_SESSIONS`. Sessions without a log-in are evicted first,
    several at a time, then the sessions with the longest silence. Sessions with leases are evicted last.

    The first of `vhosts` is the virtual host of a client that does not name one (PROTOCOL.md 2).
    """

    def __init__(
        self,
        outbox: Outbox,
        random: Callable[[int], bytes],
        vhosts: Sequence[str],
        accounts: Accounts,
        quotas: Quotas,
        authentication: AuthenticationSettings,
        boot: str,
        heartbeat_s: float,
        leases: Leases,
    ) -> None:
        self._outbox = outbox
        self._random = random
        self._vhosts = vhosts
        self._accounts = accounts
        self._quotas = quotas
        self._settings = authentication
        self._authenticator = Authenticator(outbox, random, accounts, authentication)
        self._boot = boot
        self._heartbeat_s = heartbeat_s
        self._leases = leases
        self.ended: Event[[str]] = Event()
        """Reports the id of a session that has ended."""
        self._by_id: dict[str, Session] = {}
        self._by_token: dict[str, Session] = {}
        self._by_identity: dict[bytes, Session] = {}
        self._of_principal = Uses()

    def find(self, identity: bytes, origin: Origin, request: control.Request) -> Session:
        """The session of a request; a new one in state NEW when the request has none.

        Only an Open creates a session that is kept, so that guessed tokens and stray requests cost no memory. An
        Open with an unknown token comes from a client that had a session with the broker before its last restart.
        """
        token, opening = request.session, isinstance(request, control.ConnectionOpen)
        session = self._by_token.get(token) if token is not None else None
        if session is None and (token is None or opening):
            session = self._by_identity_alone(identity)
        if session is None or session.origin.key != origin.key:
            names = self._random(16).hex(), self._random(16).hex()
            session = Session(*names, identity, origin, self._vhosts[0], self._outbox.now.mono)
            if opening:
                self._add(session)
        session.last_request = self._outbox.now.mono
        session.origin = origin  # the key is the same; a client that reconnects may have another address
        return session

    def _by_identity_alone(self, identity: bytes) -> Session | None:
        session = self._by_identity.get(identity)
        if session is None or session.principal in {"", ANONYMOUS_USER} or self._settings.identities_suffice:
            return session
        return None

    def _add(self, session: Session) -> None:
        if len(self._by_id) >= broker_limits.MAX_SESSIONS:
            self._evict()
        self._by_id[session.id] = session
        self._of_principal.add(session.principal)
        self._by_token[session.token] = session
        self._by_identity[session.identity] = session

    def _evict(self) -> None:
        """Evict several sessions, because the search examines all sessions; but at most one with leases."""
        most = max(1, broker_limits.MAX_SESSIONS // broker_limits.SESSIONS_LEAVING)
        evicted = heapq.nsmallest(most, self._by_id.values(), key=self._worth)
        for session in evicted[:1] + [x for x in evicted[1:] if not self._leases.in_use(x.id)]:
            self._end(session)

    def _worth(self, session: Session) -> tuple[bool, bool, float]:
        return self._leases.in_use(session.id), bool(session.principal), session.last_request

    def _admit(self, principal: str) -> None:
        """Make room for one more session of this principal. At its quota its longest silent session without leases
        ends. Raises `Refused` 403 if all its sessions have leases.
        """
        used = self._of_principal.of(principal)
        limit = self._quotas.limit(principal, Quota.SESSIONS)
        if limit is None or used < limit:
            return
        own = (s for s in self._by_id.values() if s.principal == principal and not self._leases.in_use(s.id))
        evicted = min(own, key=lambda s: s.last_request, default=None)
        if evicted is None:
            self._quotas.check(principal, Quota.SESSIONS, used)
        else:
            self._end(evicted)

    def _belongs(self, session: Session, principal: str) -> None:
        """Make a session the principal's, and count it if it is kept."""
        if session.id in self._by_id:
            self._of_principal.remove(session.principal)
            self._of_principal.add(principal)
        session.principal = principal

    def _end(self, session: Session) -> None:
        if self._by_id.pop(session.id, None) is not None:
            self._of_principal.remove(session.principal)
        self._by_token.pop(session.token, None)
        if self._by_identity.get(session.identity) is session:
            del self._by_identity[session.identity]
        self.ended(session.id)

    def expire(self) -> None:
        """End the sessions that were silent for `SESSION_IDLE_S`; a client opens a new one when it needs it.
        Sessions with a live lease are kept: a task may write for hours without a control request.
        """
        horizon = self._outbox.now.mono - broker_limits.SESSION_IDLE_S
        silent = [s for s in self._by_id.values() if s.last_request < horizon]
        for session in silent:
            if not self._leases.in_use(session.id):
                self._end(session)

    def __len__(self) -> int:
        return len(self._by_id)

    def principal(self, number: str) -> str | None:
        """The principal of the session with this id, None when it has ended."""
        session = self._by_id.get(number)
        return session.principal if session is not None else None

    # --- the connection class, up to the profile ------------------------------------------------------------

    async def open(self, session: Session, request: control.ConnectionOpen) -> control.Reply:
        """Connection.Open (MTL-21 to 27)."""
        if request.protocol.name != "MTL":
            raise Refused(
                400, control.BAD_ARGUMENTS, f"the protocol here is MTL, not {request.protocol.name!r}"
            )
        if request.protocol.version != 1:
            raise Refused(
                501, control.UNSUPPORTED, f"the version here is MTL 1, not {request.protocol.version}"
            )
        vhost = request.virtual_host if request.virtual_host is not None else self._vhosts[0]
        if vhost not in self._vhosts:
            raise Refused(404, control.UNKNOWN_VIRTUAL_HOST, f"there is no virtual host {vhost!r}")
        session.wanted = vhost
        session.exchange = None
        if self._settings.anonymous is not True:
            return self.challenge(session)
        return self._enter(session, ANONYMOUS_USER)

    async def authorize(self, session: Session, request: control.ConnectionAuthorize) -> control.Reply:
        """Connection.Authorize (MTL-29 to 34), at any time. The same principal keeps its profile and its leases."""
        outcome = await self._authenticator.authorize(session, request)
        if not isinstance(outcome, str):
            return outcome
        try:
            ready = self._enter(session, outcome, request.acting_as, logs_in=True)
        except Refused as error:
            self._authenticator.refused(session, request, outcome, error.message)
            raise
        self._authenticator.accepted(session, request)
        return ready

    def _enter(
        self, session: Session, login: str, acting_as: str | None = None, *, logs_in: bool = False
    ) -> control.Ready:
        """Admit a client as a principal: the only step that changes the principal and the virtual host of a session.
        Raises `Refused` 403 for a principal without a grant in the virtual host, and then the session stays as it was.
        """
        principal = login if acting_as is None else acting_as
        if principal != login and not self._accounts.acts_as(login, session.wanted, principal):
            raise Refused(
                403,
                control.NOT_AUTHORIZED,
                f"user {login!r} may not act as {principal!r} in the virtual host {session.wanted!r}; "
                "`mtl grant --act-as` gives the right, for existing users",
            )
        if not self._accounts.enters(principal, session.wanted):
            raise Refused(
                403,
                control.NOT_AUTHORIZED,
                f"user {principal!r} has no grant in the virtual host {session.wanted!r}; `mtl grant` adds one",
            )
        if session.principal != principal:
            self._admit(principal)
        if session.principal not in {"", principal}:
            session.profile = None
            self._leases.end_sessions({session.id})
        self._belongs(session, principal)
        session.vhost = session.wanted
        session.login = login
        if logs_in:
            self._renew_token(session)
        session.failed = 0
        return self._ready(session, acting_as)

    def _renew_token(self, session: Session) -> None:
        kept = self._by_token.pop(session.token, None) is not None
        session.token = self._random(16).hex()
        if kept:
            self._by_token[session.token] = session

    def users_changed(self, changes: Changes) -> frozenset[str]:
        """Make clients authenticate again at their next request (MTL-28) if their log-in is not valid any more. Returns
        the ids of their sessions. End the leases of sessions that may not act as their user any more, or whose user
        has another password.
        """
        suspended, ended = set(), set()
        for session in self._by_id.values():
            if not session.principal:
                continue
            acting = session.principal != session.login
            stays = not acting or self._accounts.acts_as(session.login, session.vhost, session.principal)
            proved = changes.proof.isdisjoint({session.login, session.principal})
            if not (stays and proved and self._accounts.owner(session.origin.key) in {None, session.login}):
                session.exchange = None
                session.control.suspended()
                suspended.add(session.id)
            if not stays or not changes.ended.isdisjoint({session.login, session.principal}):
                ended.add(session.id)
        self._leases.end_sessions(ended)
        return frozenset(suspended)

    async def select(self, session: Session, request: control.ConnectionProfile) -> control.Ok:
        """Connection.Profile (MTL-35 to 39). Existing leases keep their profile (PROTOCOL.md 2)."""
        profile = PROFILES.get(request.profile.lower())
        if profile is None:
            raise Refused(
                400,
                control.UNKNOWN_PROFILE,
                f"there is no profile {request.profile!r}; there is {', '.join(PROFILES)}",
            )
        session.profile = profile
        return control.Ok()

    def challenge(self, session: Session) -> control.Unauthorized:
        """401 with the mechanisms that are accepted (MTL-27)."""
        return self._authenticator.challenge(session)

    def _ready(self, session: Session, acting_as: str | None = None) -> control.Ready:
        unlimited = self._accounts.is_unlimited(session.principal)
        return control.Ready(
            acting_as=acting_as,
            profiles=list(PROFILES),
            user=None if unlimited else session.principal,
            session=session.token,
            boot=self._boot,
            max_content=limits.MAX_CONTENT,
            max_pack=limits.MAX_PACK,
            heartbeat=self._heartbeat_s,
        )
