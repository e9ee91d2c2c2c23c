"""The control flow at either end: which requests are allowed, and the state after a reply. Sans IO."""

from __future__ import annotations

from mtl.errors import Refused
from mtl.protocol import states
from mtl.protocol.states import Control, RequestKind
from mtl.wire import control

_KINDS: dict[type, RequestKind] = {
    control.ConnectionOpen: RequestKind.OPEN,
    control.ConnectionAuthorize: RequestKind.AUTHORIZE,
    control.ConnectionProfile: RequestKind.PROFILE,
    control.ConnectionReader: RequestKind.LEASE,
    control.ConnectionWriter: RequestKind.LEASE,
}


def kind_of(request: object) -> RequestKind:
    """The row of the table for a request. All classes except Connection share one row."""
    return _KINDS.get(type(request), RequestKind.CLASS)


class ControlSession:
    """The state of one control session (RFC 11 "Client Authentication" to "Requesting a Data Lease")."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state = Control.NEW

    def check(self, request: object) -> RequestKind:
        """The row for `request`; raises `Refused` with the status for an out-of-turn request."""
        kind = kind_of(request)
        if kind not in states.CONTROL[self.state]:
            status, reason, message = states.OUT_OF_TURN[self.state]
            raise Refused(status, reason, message)
        return kind

    def replied(self, kind: RequestKind, status: int) -> None:
        """Apply the reply to a request of `kind`. A 401 leads back to authentication from every state (MTL-28)."""
        row = states.CONTROL[self.state].get(kind, {})
        if status in row:
            self.state = row[status]
        elif status == 401:
            self.state = Control.UNAUTHORIZED

    def suspended(self) -> None:
        """The broker requires authentication again before any other request (MTL-28)."""
        self.state = states.SUSPENDED[self.state]

    def profile_kept(self) -> None:
        """The same principal has authenticated again, and its profile is still selected (PROTOCOL.md 2.1)."""
        self.state = states.PROFILE_KEPT[self.state]
