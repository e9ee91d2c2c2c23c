"""Connection.Authorize: from a 401 to the principal of a session (MTL-24 to 34; PROTOCOL.md 2.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from mtl.broker import limits as broker_limits
from mtl.broker.access.accounts import Accounts
from mtl.broker.access.audit import AuditEvent
from mtl.broker.access.password_checks import PasswordChecks
from mtl.broker.access.session import Session
from mtl.broker.outbox import Outbox
from mtl.errors import Malformed, Refused
from mtl.net.guesses import Guesses
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
)
from mtl.protocol.sasl.server import Accepted, Challenge, Check, Denied, Exchange
from mtl.wire import control

Anonymous = bool | Literal["granted"]
"""Access without credentials. False: none. True: with all rights. "granted": with the grants of `anonymous`."""

Answer = control.Unauthorized | control.Challenged
"""The answer to a client that is not authenticated yet."""


@dataclass(frozen=True, slots=True)
class AuthenticationSettings:
    """[authentication] of broker.toml, and the properties of the transport.

    `protected`: only the two peers can read the messages (CURVE, or a socket of this machine's file system).
    """

    anonymous: Anonymous = True
    mechanisms: Sequence[str] = BY_STRENGTH
    attempts: int = broker_limits.AUTHENTICATION_ATTEMPTS
    plain_without_encryption: bool = False
    sessions_by_identity: bool = False
    protected: bool = False
    secret: bytes = b""

    @property
    def identities_suffice(self) -> bool:
        """Whether the REQ identity alone identifies a user's session (PROTOCOL.md 3)."""
        return self.protected or self.sessions_by_identity

    def offers(self, mechanism: str) -> bool:
        """Whether clients may use a mechanism."""
        return (mechanism in self.mechanisms or mechanism == ANONYMOUS) and {
            ANONYMOUS: bool(self.anonymous),
            PLAIN: scram_available() and (self.protected or self.plain_without_encryption),
            SCRAM: scram_available(),
        }.get(mechanism, True)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One step of a log-in. `address` is the one that a wrong password counts for, `key_owner` the user to whom the
    client's key belongs, if any.
    """

    session: Session
    request: control.ConnectionAuthorize
    exchange: Exchange
    address: str
    key_owner: str | None


class Authenticator:
    """The SASL exchanges. A failed one is answered by 401 with the mechanisms again, after too many by 403."""

    def __init__(
        self,
        outbox: Outbox,
        random: Callable[[int], bytes],
        accounts: Accounts,
        settings: AuthenticationSettings,
    ) -> None:
        self._outbox = outbox
        self._random = random
        self._accounts = accounts
        self._settings = settings
        self._checks = PasswordChecks(outbox)
        self._of_users, self._of_unknown = self._guesses(), self._guesses()
        """Wrong passwords by address and name: of users, and of names that no user has."""

    def _guesses(self) -> Guesses:
        return Guesses(
            lambda: self._outbox.now.mono, broker_limits.FAILED_LOGINS_S, broker_limits.MAX_FAILED_LOGINS
        )

    def _counted(self, user: str) -> Guesses:
        return self._of_users if self._accounts.exists(user) else self._of_unknown

    def challenge(self, session: Session) -> control.Unauthorized:
        """401 with the mechanisms that are accepted (MTL-27)."""
        return control.Unauthorized(mechanisms=self._offered(session))

    def _offered(self, session: Session) -> list[str]:
        """The mechanisms for this client; EXTERNAL only if its key belongs to a user, because otherwise it would
        cost the client a failed attempt.
        """
        return [
            m
            for m in BY_STRENGTH
            if self._settings.offers(m)
            and (m != EXTERNAL or self._accounts.owner(session.origin.key) is not None)
        ]

    async def authorize(self, session: Session, request: control.ConnectionAuthorize) -> str | Answer:
        """Handle one Authorize. Returns the principal, or the answer. Raises `Refused` 400 for a response that is not
        BASE64, 403 after too many failures.
        """
        mechanism = request.mechanism.upper()
        try:
            response = decode(request.response)
        except Malformed as error:
            raise Refused(400, control.BAD_ARGUMENTS, f"Connection.Authorize: response: {error}") from error
        address = self._source(session, request)
        if session.failed >= self._settings.attempts:
            self.refused(session, request, "", "too many log-ins of this session failed")
            raise _too_many()
        if mechanism not in self._offered(session):
            self.refused(session, request, "", "the mechanism is not offered")
            session.exchange = None
            return self.challenge(session)
        owner = self._accounts.owner(session.origin.key)
        if session.exchange is None or session.exchange.mechanism != mechanism:
            session.exchange = Exchange(mechanism, self._accounts.verifier, owner, self._random(18).hex())
        key_owner = owner if request.peer is None else None  # the key of a door is not that of its peer
        attempt = _Attempt(session, request, session.exchange, address, key_owner)
        self._refuse_locked_out(attempt)
        outcome = session.exchange.respond(response)
        self._refuse_locked_out(attempt)  # the user is known from the first response on
        if isinstance(outcome, Check):
            outcome = await self._check(attempt, outcome)
            self._refuse_locked_out(attempt)
        return self._decide(attempt, outcome)

    def _source(self, session: Session, request: control.ConnectionAuthorize) -> str:
        """The address that wrong passwords count for. Raises `Refused` 403 for a `peer` of a client that is no door:
        it could choose another address for each guess.
        """
        if request.peer is None:
            return session.origin.address
        if not self._accounts.is_door(session.login, session.vhost):
            raise Refused(
                403,
                control.NOT_AUTHORIZED,
                "Connection.Authorize: peer is for a session that has logged in as a user with the right act-as",
            )
        return f"{request.peer} by {session.login}"

    def _refuse_locked_out(self, attempt: _Attempt) -> None:
        """Raises `Refused` 403 during a lock-out, before the password is checked: the answer must not reveal whether
        it is right. A log-in without a password needs no guessing and is not locked out.
        """
        user = attempt.exchange.user
        if attempt.exchange.mechanism not in WITH_PASSWORD:
            return
        if self._counted(user).reached((attempt.address, user), broker_limits.FAILED_LOGINS):
            self.refused(
                attempt.session, attempt.request, user, "locked out, because too many log-ins failed"
            )
            attempt.session.exchange = None
            raise _too_many()

    def accepted(self, session: Session, request: control.ConnectionAuthorize) -> None:
        """Write the audit line of a successful log-in; `by` is the user that acts as another user, if so."""
        by = {"by": session.login} if session.login != session.principal else {}
        self._audit(AuditEvent.LOGIN, session, request, session.principal, **by)

    def refused(self, session: Session, request: control.ConnectionAuthorize, user: str, reason: str) -> None:
        """Write the audit line of a refused log-in. An unknown user is not named: it may be a password typed into the
        wrong field.
        """
        known = user if self._accounts.exists(user) else None
        self._audit(AuditEvent.LOGIN_REFUSED, session, request, known, reason=reason)

    def _audit(
        self,
        event: AuditEvent,
        session: Session,
        request: control.ConnectionAuthorize,
        user: str | None,
        **fields: object,
    ) -> None:
        mechanism = request.mechanism.upper()
        known = mechanism if mechanism in (*BY_STRENGTH, ANONYMOUS) else "unknown"
        members = {"virtual-host": session.wanted, "mechanism": known, "peer": request.peer, **fields}
        self._outbox.audit.write(event, session.origin.address, user, **members)

    def _decide(self, attempt: _Attempt, outcome: Challenge | Accepted | Denied) -> str | Answer:
        session, exchange = attempt.session, attempt.exchange
        if isinstance(outcome, Challenge):
            return control.Challenged(mechanism=exchange.mechanism, challenge=encode(outcome.octets))
        session.exchange = None
        if isinstance(outcome, Accepted) and attempt.key_owner in {None, outcome.user}:
            return outcome.user
        others = isinstance(outcome, Accepted)
        self.refused(session, attempt.request, exchange.user, self._why(exchange.user, others=others))
        return self._denied(attempt)

    def _why(self, user: str, *, others: bool) -> str:
        if others:
            return "the connection's key belongs to another user"
        return "wrong proof" if self._accounts.exists(user) else "unknown user"

    async def _check(self, attempt: _Attempt, check: Check) -> Accepted | Denied:
        """Have the password checked in another thread; it takes milliseconds."""
        try:
            is_right = self._checks.submit(attempt.address, check)
        except Refused as error:
            attempt.session.exchange = None
            self.refused(attempt.session, attempt.request, check.user, error.message)
            raise
        return Accepted(check.user) if await is_right else Denied(check.user)

    def _denied(self, attempt: _Attempt) -> control.Unauthorized:
        session, user = attempt.session, attempt.exchange.user
        session.failed += 1
        if attempt.exchange.mechanism in WITH_PASSWORD:
            self._counted(user).wrong((attempt.address, user))
        if session.failed >= self._settings.attempts:
            raise _too_many()
        self._accounts.check_readable(user)
        return self.challenge(session)


def _too_many() -> Refused:
    return Refused(
        403,
        control.NOT_AUTHORIZED,
        "too many log-ins failed; check the user and its password, and try again on a new connection in "
        f"{broker_limits.FAILED_LOGINS_S:.0f} s",
    )
