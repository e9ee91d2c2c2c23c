"""The administration of users: changes of the records in the data directory, with or without a running broker.

The protocol has no command for this, so that no client can be tricked into it: a person that may write the data
directory is the administrator. A running broker finds a change within `ACCOUNTS_CHECK_S`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self

import msgspec

from mtl import limits
from mtl.broker.access.patterns import is_pattern
from mtl.broker.runtime.config import MEMORY
from mtl.errors import Damaged, Malformed, OptionError
from mtl.net.private import make_data_directory
from mtl.protocol.sasl.names import user_name
from mtl.protocol.sasl.scram import SALT_OCTETS, make_verifier
from mtl.protocol.sasl.server import ANONYMOUS_USER
from mtl.storage.records import GrantRecord, PasswordRecord, UserRecord
from mtl.storage.sqlite import SqliteStore

MAX_USER_NAME = 128
"""Most octets of a new user's name. A user's own shared names begin with it (`accounts`), and the connector's suffix
has to fit as well."""

Random = Callable[[int], bytes]


class Users:
    """The users of a data directory; close it, or use it as a context manager.

    Every method raises `OptionError` for an invalid user, key or pattern, `StorageError` when the records cannot be
    read or written.
    """

    def __init__(self, data: Path) -> None:
        if str(data) == MEMORY:
            raise OptionError(
                f"a broker with --data {MEMORY} has no users; give the directory of another one"
            )
        make_data_directory(data)
        self._store = SqliteStore(str(data / "broker.db"), first=True)

    def close(self) -> None:
        """Close the records."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def all(self) -> list[UserRecord]:
        """Every user, by name."""
        return self._store.of(UserRecord)

    def add(self, name: str, password: PasswordRecord | None, keys: Sequence[str]) -> None:
        """Add a user without grants."""
        _check_name(name)
        for key in keys:
            self._check_key(name, key)

        def create(present: UserRecord | None) -> UserRecord:
            if present is not None:
                raise OptionError(f"user {name!r} exists already; `mtl user password` changes the password")
            return UserRecord(name, password, tuple(keys))

        self._store.edit(UserRecord, name, create)

    def remove(self, name: str) -> None:
        """Remove a user with its grants, even a damaged one. A running broker ends its sessions and leases."""

        def delete(present: UserRecord | None) -> None:
            _require(name, present)

        try:
            self._store.edit(UserRecord, name, delete)
        except Damaged:
            self._store.forget(UserRecord.kind, name)

    def set_password(
        self, name: str, password: PasswordRecord | None, *, keep_sessions: bool = False
    ) -> None:
        """Give a user another password, or none. A running broker ends the user's leases, unless `keep_sessions`; its
        clients authenticate again in any case.
        """

        def changed(user: UserRecord) -> UserRecord:
            generation = user.generation + (not keep_sessions)
            return msgspec.structs.replace(user, password=password, generation=generation)

        self._change(name, changed)

    def add_key(self, name: str, key: str) -> None:
        """Add a CURVE public key to the user; it must not belong to another user."""
        self._check_key(name, key)
        self._change(name, lambda user: msgspec.structs.replace(user, keys=tuple(sorted({*user.keys, key}))))

    def remove_key(self, name: str, key: str) -> None:
        """Remove a CURVE public key from the user."""

        def without(user: UserRecord) -> UserRecord:
            if key not in user.keys:
                raise OptionError(f"user {name!r} has no such key; `mtl user list` shows its keys")
            return msgspec.structs.replace(user, keys=tuple(k for k in user.keys if k != key))

        self._change(name, without)

    def grant(self, name: str, grants: Iterable[GrantRecord]) -> None:
        """Give rights. `anonymous` need not be a user yet: it stands for clients without credentials."""
        given = set(grants)
        for grant in given:
            if not is_pattern(grant.pattern):
                raise OptionError(f"{grant.pattern!r} is not a regular expression of RE2, or is too large")

        def granted(present: UserRecord | None) -> UserRecord:
            user = present or (UserRecord(name) if name == ANONYMOUS_USER else _require(name, present))
            return msgspec.structs.replace(user, grants=tuple(sorted({*user.grants, *given})))

        self._store.edit(UserRecord, name, granted)

    def revoke(self, name: str, grants: Iterable[GrantRecord] | None) -> None:
        """Take rights away: those given with the same pattern, or (None) all of them."""

        def without(user: UserRecord) -> UserRecord:
            gone = set(user.grants if grants is None else grants)
            missing = gone - set(user.grants)
            if missing:
                first = min(missing)
                raise OptionError(
                    f"user {name!r} has no grant of {first.right} {first.pattern!r} in {first.vhost!r}; "
                    "`mtl user list` shows its grants"
                )
            return msgspec.structs.replace(user, grants=tuple(g for g in user.grants if g not in gone))

        self._change(name, without)

    def _change(self, name: str, change: Callable[[UserRecord], UserRecord]) -> None:
        self._store.edit(UserRecord, name, lambda present: change(_require(name, present)))

    def _check_key(self, name: str, key: str) -> None:
        owner = next((u.name for u in self.all() if key in u.keys), name)
        if owner != name:
            raise OptionError(f"this key is user {owner!r}'s")


def new_password(password: str, random: Random, iterations: int = limits.SCRAM_ITERATIONS) -> PasswordRecord:
    """The record of a password. Raises `LocalError` for one that cannot be used."""
    made = make_verifier(password, random(SALT_OCTETS), iterations)
    return PasswordRecord(made.salt, made.iterations, made.stored_key, made.server_key)


def _require(name: str, user: UserRecord | None) -> UserRecord:
    if user is None:
        raise OptionError(f"there is no user {name!r}; `mtl user add` creates one")
    return user


def _check_name(name: str) -> None:
    if name == ANONYMOUS_USER:
        raise OptionError(
            f"{name!r} stands for clients without credentials and cannot be added; use `mtl grant` only"
        )
    try:
        normal = user_name(name)
    except Malformed as error:
        raise OptionError(f"{error}; choose another name") from error
    if normal != name:
        raise OptionError(
            f"{name!r} is not in the normal form of user names (SASLprep), which is {normal!r}: clients that log in "
            "with one of them are the same user; choose the normal form"
        )
    if len(name.encode()) > MAX_USER_NAME:
        raise OptionError(f"a user name has at most {MAX_USER_NAME} octets of UTF-8; this one has more")
