"""Other message brokers that a door sends contents to: `[doors.mbws.peers.NAME]` (see `mbws.peering`)."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from mtl.doors.addresses import ListenAddress
from mtl.doors.identity import Basic, Bearer
from mtl.doors.limits import MBWS_PEER_RESOURCES
from mtl.errors import OptionError
from mtl.net.private import check_password_file


class PeerConfig(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True, kw_only=True):
    """One peer. `url` is its MBWS door, ws: or wss:; `send` are resources whose contents go to the addresses of the
    same names there.

    `user` with `password-file`, or `token-file`, are the door's credentials there. `authority-file` has the
    authorities, as PEM, for the peer's certificate; by default the system's.
    """

    url: str
    send: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=MBWS_PEER_RESOURCES)]
    user: str | None = None
    password_file: str | None = None
    token_file: str | None = None
    authority_file: str | None = None

    def __post_init__(self) -> None:
        """Check the rules that types cannot express."""
        parts = urlsplit(self.url)
        if parts.scheme not in {"ws", "wss"} or not parts.hostname or parts.query or parts.fragment:
            raise OptionError(
                "url is not ws://HOST:PORT or wss://HOST:PORT; it is not shown, because it may have a password"
            )
        if (self.user is None) != (self.password_file is None):
            raise OptionError("user and password-file belong together")
        if self.user is not None and self.token_file is not None:
            raise OptionError("a peer takes user with password-file or token-file, not both")
        secret = self.user is not None or self.token_file is not None
        if secret and parts.scheme == "ws" and not ListenAddress("ws", parts.hostname, 0).local:
            raise OptionError(
                f"a password or token would be readable on the network to {self.url}; use wss://"
            )

    def credentials(self) -> Basic | Bearer | None:
        """The door's credentials. Raises `OptionError` for a file that is unreadable, or readable by others."""
        if self.user is not None and self.password_file is not None:
            return Basic(self.user, _secret(self.password_file, "password"))
        return Bearer(_secret(self.token_file, "token")) if self.token_file is not None else None

    def tls(self) -> ssl.SSLContext | None:
        """TLS for a wss: URL; None: with the system's authorities. Raises `OptionError`."""
        if self.authority_file is None:
            return None
        try:
            return ssl.create_default_context(cafile=self.authority_file)
        except OSError as error:  # an SSLError is one
            raise OptionError(f"no authority's certificate in {self.authority_file}: {error}") from error


def _secret(path: str, noun: str) -> str:
    try:
        check_password_file(Path(path), path, noun)
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"cannot read the {noun} in {path}: {error}") from error
