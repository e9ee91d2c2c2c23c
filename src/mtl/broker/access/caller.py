"""The session of a request, as it was when the request arrived."""

from __future__ import annotations

from dataclasses import dataclass

from mtl.profiles import Profile


@dataclass(frozen=True, slots=True)
class Caller:
    """`session` is the session's id, `key` the CURVE key of its connection, `address` its peer's.

    A request that waits for the disk goes on with these values, even if its session has another virtual host or
    principal meanwhile.
    """

    session: str
    principal: str
    vhost: str
    profile: Profile | None
    key: str
    address: str
