"""Failed log-ins, counted by peer address and user, to limit the guessing of passwords."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from mtl.broker import limits as broker_limits
from mtl.broker.outbox import Outbox

_Key = tuple[str, str | None]
"""(address, user); user None: all users of the address."""


@dataclass(slots=True)
class _Count:
    since: float
    failed: int = 0


class LoginFailures:
    """Failed log-ins of each address within `FAILED_LOGINS_S`, counted from the first failure."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._counts: OrderedDict[_Key, _Count] = OrderedDict()

    def too_many(self, address: str, user: str) -> bool:
        """Whether this user at this address, or this address with any user, has to wait."""
        return (
            self._failed((address, user)) >= broker_limits.FAILED_LOGINS
            or self._failed((address, None)) >= broker_limits.FAILED_LOGINS_ADDRESS
        )

    def count(self, address: str, user: str) -> None:
        """Count one failed log-in."""
        for key in ((address, user), (address, None)):
            self._failed(key)
            self._counts.setdefault(key, _Count(self._outbox.now.mono)).failed += 1
        while len(self._counts) > broker_limits.MAX_FAILED_LOGINS:
            self._counts.popitem(last=False)

    def _failed(self, key: _Key) -> int:
        found = self._counts.get(key)
        if found is not None and found.since + broker_limits.FAILED_LOGINS_S <= self._outbox.now.mono:
            del self._counts[key]
            found = None
        return found.failed if found is not None else 0
