"""Identifies a peer by a client certificate, HTTP's Authorization or a CURVE key.

Each yields the name of a user of the broker in its normal form, or None: the user that is checked is the user whose
rights the peer gets.
"""

from __future__ import annotations

import binascii
import hmac
import ssl
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, cast

from mtl.errors import Malformed, OptionError
from mtl.net.curve import read_public
from mtl.net.private import check_password_file
from mtl.protocol.sasl.names import user_name

SHORTEST_TOKEN: Final = 16
"""Minimum of characters of a bearer token: wrong tokens are not counted, so guessing has to be infeasible."""


class Basic(NamedTuple):
    """A user of the broker and its password (RFC 7617)."""

    user: str
    password: str


class Bearer(NamedTuple):
    """A token (RFC 6750)."""

    token: str


def parse(header: str) -> Basic | Bearer | None:
    """Parse the value of an Authorization header; None for another scheme or an invalid value."""
    scheme, _, rest = header.strip().partition(" ")
    if scheme.lower() == "bearer":
        return Bearer(rest.strip())
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = b64decode(rest.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    name = _normal(user)
    return Basic(name, password) if colon and name is not None else None


def user_of_certificate(tls: ssl.SSLObject | None) -> str | None:
    """The user of a verified client certificate: its only common name."""
    certificate = tls.getpeercert() if tls is not None else None
    if not certificate:
        return None
    subject = cast("Iterable[Iterable[tuple[str, str]]]", certificate.get("subject", ()))
    names = [value for part in subject for name, value in part if name == "commonName"]
    return _normal(names[0]) if len(names) == 1 else None


def _normal(name: str) -> str | None:
    try:
        return user_name(name)
    except Malformed:
        return None


def _configured(name: str, place: str) -> str:
    """The user in a configuration. Raises `OptionError` for a name that no user can have."""
    try:
        return user_name(name)
    except Malformed as error:
        raise OptionError(f"{place}: {error}") from error


class Tokens:
    """The users of bearer tokens, from a file with a line `USER TOKEN` for each; empty lines and # are ignored."""

    def __init__(self, path: Path) -> None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise OptionError(f"cannot read the tokens in {path}: {reason}") from error
        check_password_file(path, str(path), "token")
        self._users: list[tuple[str, bytes]] = []
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            user, _, token = line.strip().rpartition(" ")
            if not user or len(token) < SHORTEST_TOKEN:
                raise OptionError(
                    f"line {number} of {path} is not USER TOKEN, with a token of {SHORTEST_TOKEN} characters or more "
                    "(`openssl rand -hex 32` makes one)"
                )
            self._users.append((_configured(user.strip(), f"line {number} of {path}"), token.encode()))

    def user(self, token: str) -> str | None:
        """The user of a token. Compares with every token in constant time."""
        octets, owner = token.encode(), None
        for user, known in self._users:
            if hmac.compare_digest(known, octets):
                owner = user
        return owner


def users_of(peer_keys: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """CURVE public key in Z85 to its user. Raises `OptionError`."""
    users: dict[str, str] = {}
    for name, keys in peer_keys.items():
        user = _configured(name, "peer-keys")
        for key in keys:
            public = read_public(key).decode()
            if users.setdefault(public, user) != user:
                raise OptionError(f"peer-keys: the users {users[public]!r} and {user!r} have the same key")
    return users
