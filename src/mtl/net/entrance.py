"""Connections before their log-in: few for each address, and each for some seconds. Pure: the timer is a parameter.

A connection that has not logged in belongs to no user, so its address is all that is known of it. Where an address has
too many of them, its oldest one makes room for the new one: silent connections never keep others out, also not those of
their own address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import NamedTuple, Protocol


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Do not call it."""


CallLater = Callable[[float, Callable[[], None]], Timer]
"""Calls a function after this many seconds, as an event loop does."""


class _Newcomer(NamedTuple):
    origin: str
    drop: Callable[[], None]
    timer: Timer


class Entrance:
    """`total` connections in all, `share` of each address (of IPv6: of each network of 64 bits, which one machine may
    have), each for `patience` seconds. `reported` gets the address of each connection that is dropped to make room.
    """

    def __init__(
        self,
        total: int,
        share: int,
        patience: float,
        call_later: CallLater,
        reported: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._total = total
        self._share = share
        self._patience = patience
        self._call_later = call_later
        self._reported = reported
        self._newcomers: dict[int, _Newcomer] = {}
        self._origins: dict[str, dict[int, None]] = {}
        """Origin to the keys of its newcomers, the oldest first."""

    def __len__(self) -> int:
        """How many connections have not logged in."""
        return len(self._newcomers)

    def __contains__(self, key: int) -> bool:
        """Whether this connection has not logged in."""
        return key in self._newcomers

    def enter(self, key: int, address: str, drop: Callable[[], None]) -> None:
        """A connection was accepted; `key` is its descriptor. `drop` ends it: after `patience`, or to make room."""
        self.leave(key)  # in case the end of the former connection with this descriptor was not reported
        origin = _origin(address)
        timer = self._call_later(self._patience, lambda: self._drop(key))
        self._newcomers[key] = _Newcomer(origin, drop, timer)
        of_origin = self._origins.setdefault(origin, {})
        of_origin[key] = None
        if len(of_origin) > self._share:
            self._make_room(origin)
        elif len(self._newcomers) > self._total:
            self._make_room(max(self._origins, key=lambda each: len(self._origins[each])))

    def heard(self, key: int) -> None:
        """The peer has sent its part of the log-in, which is being checked: it is not silent."""
        newcomer = self._newcomers.get(key)
        if newcomer is not None:
            newcomer.timer.cancel()

    def leave(self, key: int) -> None:
        """The connection has logged in, or has ended. Harmless when repeated."""
        newcomer = self._newcomers.pop(key, None)
        if newcomer is None:
            return
        newcomer.timer.cancel()
        of_origin = self._origins[newcomer.origin]
        del of_origin[key]
        if not of_origin:
            del self._origins[newcomer.origin]

    def close(self) -> None:
        """Drop all that have not logged in."""
        for key in list(self._newcomers):
            self._drop(key)

    def _make_room(self, origin: str) -> None:
        self._reported(origin)
        self._drop(next(iter(self._origins[origin])))

    def _drop(self, key: int) -> None:
        newcomer = self._newcomers.get(key)
        if newcomer is not None:
            newcomer.drop()
            self.leave(key)


def _origin(address: str) -> str:
    """The address, or its network of 64 bits with IPv6."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address  # a transport without addresses
    if isinstance(known, ipaddress.IPv4Address):
        return address
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    return str(ipaddress.ip_network((known, 64), strict=False))
