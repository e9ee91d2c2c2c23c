"""The rule for a socket that other machines reach: it needs credentials and encryption, unless the operator decides."""

from __future__ import annotations

import ipaddress

from mtl.errors import OptionError


def is_local(host: str) -> bool:
    """Whether only this machine reaches a socket at `host`, a name or an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name, an interface or "*": it may be reachable from other machines


def check_exposure(place: str, credentials: str | None, encryption: str | None) -> None:
    """Raises `OptionError` for a socket at `place`, which other machines reach, without credentials or encryption. Each
    of the two is None if it is there, else the settings that provide it.
    """
    for missing, problem in (
        (credentials, "clients need no credentials"),
        (encryption, "nothing is encrypted"),
    ):
        if missing is not None:
            raise OptionError(
                f"{place} is reachable from other machines and {problem}; set {missing}, listen on 127.0.0.1, or, if "
                "the network is trusted, set insecure = true (`mtl broker --insecure`)"
            )
