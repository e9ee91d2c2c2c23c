"""The session of a request, as it was when the request arrived."""

from __future__ import annotations

from dataclasses import dataclass

from mtl.errors import Refused
from mtl.profiles import Profile
from mtl.wire import control


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

    @property
    def chosen_profile(self) -> Profile:
        """The profile. Raises `Refused` 400 for a session without one."""
        if self.profile is None:  # the state table of sessions does not admit such requests
            raise Refused(400, control.NO_PROFILE, "send Connection.Profile first")
        return self.profile
