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
from mtl.protocol.sasl.server import Accepted, Challenge, Check, Denied, Exchange, Outcome
from mtl.wire import control as w

Anonymous = bool | Literal["granted"]
"""Access without credentials. False: none. True: with all rights. "granted": with the grants of `anonymous`."""

Then = Callable[[str | w.Unauthorized | w.Challenged | Refused], None]
"""Called with the outcome of an Authorize: the principal, or the answer to the client."""


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

    def challenge(self, session: Session) -> w.Unauthorized:
        """401 with the mechanisms that are accepted (MTL-27)."""
        return w.Unauthorized(mechanisms=self._offered(session))

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

    def authorize(self, session: Session, request: w.ConnectionAuthorize, then: Then) -> None:
        """Handle one Authorize. Raises `Refused` 400 for a response that is not BASE64, 403 after too many failures."""
        mechanism = request.mechanism.upper()
        try:
            response = decode(request.response)
        except Malformed as error:
            raise Refused(400, w.BAD_ARGUMENTS, f"Connection.Authorize: response: {error}") from error
        if session.failed >= self._settings.attempts:
            self.refused(session, mechanism, "", "too many log-ins of this session failed")
            raise _too_many()
        if mechanism not in self._offered(session):
            self.refused(session, mechanism, "", "the mechanism is not offered")
            session.exchange = None
            then(self.challenge(session))
            return
        if session.exchange is None or session.exchange.mechanism != mechanism:
            owner, nonce = self._accounts.owner(session.origin.key), self._random(18).hex()
            session.exchange = Exchange(mechanism, self._accounts.verifier, owner, nonce)
        self._refuse_locked_out(session, session.exchange)
        outcome = session.exchange.respond(response)
        self._follow(session, session.exchange, outcome, then)

    def _refuse_locked_out(self, session: Session, exchange: Exchange) -> None:
        """Raises `Refused` 403 during a lock-out, before the password is checked: the answer must not reveal whether
        it is right. A log-in without a password needs no guessing and is not locked out.
        """
        if exchange.mechanism not in WITH_PASSWORD:
            return
        source = session.origin.address, exchange.user
        if self._counted(exchange.user).reached(source, broker_limits.FAILED_LOGINS):
            self.refused(
                session, exchange.mechanism, exchange.user, "locked out, because too many log-ins failed"
            )
            session.exchange = None
            raise _too_many()

    def accepted(self, session: Session, mechanism: str) -> None:
        """Write the audit line of a successful log-in; `by` is the user that acts as another user, if so."""
        by = {"by": session.login} if session.login != session.principal else {}
        self._audit(AuditEvent.LOGIN, session, mechanism, session.principal, **by)

    def refused(self, session: Session, mechanism: str, user: str, reason: str) -> None:
        """Write the audit line of a refused log-in. An unknown user is not named: it may be a password typed into the
        wrong field.
        """
        known = user if self._accounts.exists(user) else None
        self._audit(AuditEvent.LOGIN_REFUSED, session, mechanism, known, reason=reason)

    def _audit(
        self, event: AuditEvent, session: Session, mechanism: str, user: str | None, **fields: object
    ) -> None:
        known = mechanism.upper() if mechanism.upper() in (*BY_STRENGTH, ANONYMOUS) else "unknown"
        members = {"virtual-host": session.wanted, "mechanism": known, **fields}
        self._outbox.audit.write(event, session.origin.address, user, **members)

    def _follow(self, session: Session, exchange: Exchange, outcome: Outcome, then: Then) -> None:
        self._refuse_locked_out(session, exchange)  # the user is known from the first response on
        if isinstance(outcome, Challenge):
            then(w.Challenged(mechanism=exchange.mechanism, challenge=encode(outcome.octets)))
            return
        if isinstance(outcome, Check):
            self._check(session, exchange, outcome, then)
            return
        session.exchange = None
        owner = self._accounts.owner(session.origin.key)
        if isinstance(outcome, Accepted) and owner in {None, outcome.user}:
            then(outcome.user)
        else:
            others = isinstance(outcome, Accepted)
            self.refused(session, exchange.mechanism, exchange.user, self._why(exchange.user, others=others))
            self._denied(session, exchange.mechanism, exchange.user, then)

    def _why(self, user: str, *, others: bool) -> str:
        if others:
            return "the connection's key belongs to another user"
        return "wrong proof" if self._accounts.exists(user) else "unknown user"

    def _check(self, session: Session, exchange: Exchange, check: Check, then: Then) -> None:
        """Have the password checked in another thread; it takes milliseconds."""

        def checked(right: bool) -> None:
            try:
                self._follow(session, exchange, Accepted(check.user) if right else Denied(check.user), then)
            except Refused as error:
                then(error)

        try:
            self._checks.submit(session.origin.address, check, checked)
        except Refused as error:
            session.exchange = None
            self.refused(session, exchange.mechanism, check.user, error.message)
            raise

    def _denied(self, session: Session, mechanism: str, user: str, then: Then) -> None:
        session.failed += 1
        if mechanism in WITH_PASSWORD:
            self._counted(user).wrong((session.origin.address, user))
        if session.failed >= self._settings.attempts:
            raise _too_many()
        self._accounts.check_readable(user)
        then(self.challenge(session))


def _too_many() -> Refused:
    return Refused(
        403,
        w.NOT_AUTHORIZED,
        "too many log-ins failed; check the user and its password, and try again on a new connection in "
        f"{broker_limits.FAILED_LOGINS_S:.0f} s",
    )
