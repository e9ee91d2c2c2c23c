"""The session of a request, as it was when the request arrived."""

from __future__ import annotations

from dataclasses import dataclass

from mtl.profiles import Profile


@dataclass(frozen=True, slots=True)
class Caller:
    """`session` is the session's id, `key` the CURVE key of its connection, `address` the peer's address.

    A request that waits for the disk continues with these values, even if the virtual host or the principal of its
    session changes in the meantime.
    """

    session: str
    principal: str
    vhost: str
    profile: Profile | None
    key: str
    address: str
