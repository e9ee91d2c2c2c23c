"""One client's control session: its token, its virtual host and its principal."""

from __future__ import annotations

from mtl.broker.access.caller import Caller
from mtl.net.origin import Origin
from mtl.profiles import Profile
from mtl.protocol.control import ControlSession
from mtl.protocol.sasl.server import Exchange


class Session:
    """One client's control session.

    `id` names it inside the broker and never changes. `token` is the client's proof: each log-in gets another one,
    so that an intercepted earlier token is useless. `wanted` is the virtual host of the last Open; the session
    enters it with its 201. `principal` is empty until the client has been admitted. `exchange` is the SASL exchange
    in progress, `failed` the number of failed ones.
    """

    def __init__(
        self, number: str, token: str, identity: bytes, origin: Origin, vhost: str, now: float
    ) -> None:
        self.id = number
        self.token = token
        self.identity = identity
        self.origin = origin
        self.control = ControlSession()
        self.vhost = vhost
        self.wanted = vhost
        self.principal = ""
        self.login = ""
        """The authenticated user; the same as `principal`, unless it acts as another user."""
        self.exchange: Exchange | None = None
        self.failed = 0
        self.profile: Profile | None = None
        self.last_request = now

    @property
    def caller(self) -> Caller:
        """The caller of a request that arrives now."""
        origin = self.origin
        return Caller(self.id, self.principal, self.vhost, self.profile, origin.key, origin.address)
