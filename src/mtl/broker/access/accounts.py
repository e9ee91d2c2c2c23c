"""Users: their credentials, and their rights in each virtual host.

A user belongs to the broker, a grant to a virtual host (PROTOCOL.md 2.2). Both are read from the records that
`mtl user` and `mtl grant` write: at the start, and again after every change.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.broker.access.patterns import beginnings, is_pattern, matching
from mtl.protocol.sasl.scram import SALT_OCTETS, Verifier
from mtl.protocol.sasl.server import ANONYMOUS_USER
from mtl.storage.records import UserRecord
from mtl.storage.unreadable import Unreadable

ANYTHING: Final = ".*"
"""The pattern that matches every name; it is not evaluated."""


class Right(StrEnum):
    """A right on resources, on names, or on users."""

    READ = "read"  # readers, Locate
    WRITE = "write"  # writers, stages and their commits
    MANAGE = "manage"  # Create, Delete
    GROUP = "group"  # hold, reset and delete the cursors of a group
    QUEUE = "queue"  # consume from a queue (settle, reject), and delete it
    WRITER = "writer"  # write under a writer name, which fences its other writers
    APPLICATION = "application"  # stage, commit, abort and forget for an application
    ACT_AS = "act-as"  # a right on users: use another user's grants instead of one's own


ON_RESOURCES: Final = frozenset({Right.READ, Right.WRITE, Right.MANAGE})
"""Rights on resources. A user with one of them may see that the resource exists. The other rights are on names that
the users of a virtual host share; every user has these rights on its own names.
"""

Need = tuple[frozenset[Right], tuple[str, ...]]
"""The need of one request: rights of which one is enough, and the names on which it is needed."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Principals affected by a change of the user records: `proof` have to authenticate again (removed, or with other
    credentials), `grants` have other rights now, `ended` lose what they have open (removed, or with another password).
    """

    proof: frozenset[str]
    grants: frozenset[str]
    ended: frozenset[str]


_Where = tuple[str, str, frozenset[Right]]
"""(principal, virtual host, rights of which one is enough)."""


class Accounts:
    """The users. `unlimited` are the principals that have all rights without a grant. `secret` is the key from
    which the verifiers of unknown users are computed, so that they stay the same across restarts.
    """

    def __init__(
        self, secret: bytes, unlimited: Collection[str] = (), unreadable: Unreadable | None = None
    ) -> None:
        self._secret = secret
        self._unlimited = frozenset(unlimited)
        self._unreadable = unreadable or Unreadable()
        self._users: dict[str, UserRecord] = {}
        self._owners: dict[str, str] = {}
        self._iterations: list[int] = []
        self._decisions: dict[_Where, dict[str, bool]] = {}
        self._remembered = 0

    def replace(self, records: Iterable[UserRecord]) -> Changes:
        """Replace all users by these records."""
        before, self._users = self._users, {r.name: r for r in records}
        self._owners = {key: r.name for r in self._users.values() for key in r.keys}
        passwords = [r.password for r in self._users.values() if r.password is not None]
        self._iterations = sorted({p.iterations for p in passwords}) or [limits.SCRAM_ITERATIONS]
        self._forget()
        now = self._users
        return Changes(
            frozenset(n for n, old in before.items() if n not in now or _proof(old) != _proof(now[n])),
            frozenset(n for n, old in before.items() if n not in now or old.grants != now[n].grants),
            frozenset(n for n, old in before.items() if n not in now or old.generation != now[n].generation),
        )

    @property
    def all(self) -> Mapping[str, UserRecord]:
        """Every user by name, as of the last `replace`."""
        return self._users

    def __len__(self) -> int:
        return len(self._users)

    def exists(self, principal: str) -> bool:
        """Whether this user exists, or is a principal that needs no record."""
        return principal in self._unlimited or principal in self._users

    def check_readable(self, user: str) -> None:
        """Raises `Refused` 503 for a user whose record cannot be read."""
        if user not in self._users:
            self._unreadable.check(UserRecord, user, f"user {user!r}")

    def owner(self, key: str) -> str | None:
        """The user that a CURVE key belongs to."""
        return self._owners.get(key)

    def verifier(self, user: str) -> Verifier:
        """The verifier of a user's password. An unknown user, or one without a password, gets a verifier that no
        password fits: always the same, with an iteration count that real users have, after the same work.
        """
        dummy = self._dummy_verifier(user)
        record = self._users.get(user)
        if record is None or record.password is None:
            return dummy
        kept = record.password
        return Verifier(kept.salt, kept.iterations, kept.stored_key, kept.server_key)

    def _dummy_verifier(self, user: str) -> Verifier:
        octets = hmac.digest(self._secret, user.encode(), "sha512")
        iterations = self._iterations or [limits.SCRAM_ITERATIONS]
        return Verifier(
            octets[:SALT_OCTETS], iterations[octets[-1] % len(iterations)], octets[:32], octets[32:]
        )

    # --- rights ---------------------------------------------------------------------------------------------

    def enters(self, principal: str, vhost: str) -> bool:
        """Whether a principal has a grant in a virtual host, and so may enter it."""
        return bool(self._patterns((principal, vhost, ON_RESOURCES | {Right.ACT_AS})))

    def is_unlimited(self, principal: str) -> bool:
        """Whether a principal has all rights without a grant."""
        return principal in self._unlimited

    def acts_as(self, login: str, vhost: str, user: str) -> bool:
        """Whether a user logged in as `login` may act as another user in this virtual host. False for an unknown user,
        and for `anonymous`, which needs no credentials.
        """
        patterns = self._patterns((login, vhost, frozenset({Right.ACT_AS})))
        return (
            user in self._users and user != ANONYMOUS_USER and any(matching(p, [user])[0] for p in patterns)
        )

    def is_door(self, login: str, vhost: str) -> bool:
        """Whether a user may act as any others in this virtual host."""
        return bool(self._patterns((login, vhost, frozenset({Right.ACT_AS}))))

    def may(self, principal: str, vhost: str, rights: frozenset[Right], names: Sequence[str]) -> list[bool]:
        """For each name whether the principal has one of the rights on it."""
        where = (principal, vhost, rights)
        patterns, owns = self._patterns(where), rights.isdisjoint(ON_RESOURCES)
        if not patterns and not owns:
            return [False] * len(names)
        if ANYTHING in patterns:
            return [True] * len(names)
        known = self._decisions.setdefault(where, {})
        new = [n for n in dict.fromkeys(names) if n not in known]
        if new:
            if self._remembered + len(new) > broker_limits.MAX_RIGHTS_REMEMBERED:
                self._forget()
                known, new = self._decisions.setdefault(where, {}), list(dict.fromkeys(names))
            matches = [matching(pattern, new) for pattern in patterns]
            if owns:
                matches.append([self._owner_of(name) == principal for name in new])
            known.update(zip(new, map(any, zip(*matches, strict=True)), strict=True))
            self._remembered += len(new)
        return [known[n] for n in names]

    def beginnings(self, principal: str, vhost: str, rights: frozenset[Right]) -> list[str]:
        """Texts with one of which each name begins on which the principal may have one of the rights. They are sorted,
        and none of them begins with another one. An empty text: it may be any name.
        """
        texts = {
            text for pattern in self._patterns((principal, vhost, rights)) for text in beginnings(pattern)
        }
        if rights.isdisjoint(ON_RESOURCES):
            texts.add(f"{principal}.")
        shortest: list[str] = []
        for text in sorted(texts):
            if not shortest or not text.startswith(shortest[-1]):
                shortest.append(text)
        return shortest

    def _owner_of(self, name: str) -> str | None:
        """The owner of a shared name: the user with the longest name that begins it, followed by a dot."""
        end = name.rfind(".")
        while end > 0:
            user = name[:end]
            if user in self._users or self._unreadable.has_key(UserRecord, user):
                return user
            end = name.rfind(".", 0, end)
        return None

    def _patterns(self, where: _Where) -> list[str]:
        principal, vhost, rights = where
        if principal in self._unlimited:
            return [ANYTHING]
        record = self._users.get(principal)
        if record is None:
            return []
        return [
            g.pattern
            for g in record.grants
            if g.vhost == vhost and g.right in rights and is_pattern(g.pattern)
        ]

    def _forget(self) -> None:
        """Clear the cached matches of patterns; they are computed again when they are needed."""
        self._decisions.clear()
        self._remembered = 0


def _proof(record: UserRecord) -> object:
    return record.password, frozenset(record.keys)
