"""The number of open connections of each address. A socket's monitor reports begin and end by descriptor."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Callable

CONNECTIONS_OPEN = 10_000
"""Connections that one address may have open at the same time: about 3,000 executors behind one address, with three
connections each. A silent connection costs a file descriptor, too."""


def peer_address(descriptor: int) -> str | None:
    """The address of a socket's peer, empty for a transport without addresses; None for a closed socket."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            name = copy.getpeername()
    except OSError:
        return None
    return str(name[0]) if isinstance(name, tuple) else ""


class OpenConnections:
    """Counts the connections of all sockets of a ZAP handler. `most` connections of an address may be open;
    `address_of` finds the address of a descriptor.
    """

    def __init__(
        self, most: int = CONNECTIONS_OPEN, address_of: Callable[[int], str | None] = peer_address
    ) -> None:
        self._most = most
        self._address_of = address_of
        self._addresses: dict[tuple[str, int], str] = {}
        self._counts: Counter[str] = Counter()

    @property
    def limit(self) -> int:
        """How many connections of an address may be open."""
        return self._most

    def opened(self, endpoint: str, descriptor: int) -> None:
        """The socket bound to `endpoint` has accepted a connection. One that has ended already does not count."""
        self.ended(endpoint, descriptor)  # in case the end of the former connection was not reported
        address = self._address_of(descriptor)
        if address is not None:
            # Events are ordered per socket only: another socket may get a descriptor before the end of the former
            # connection with that descriptor is reported here.
            self._addresses[endpoint, descriptor] = address
            self._counts[address] += 1

    def ended(self, endpoint: str, descriptor: int) -> None:
        """A connection is closed. No effect for a connection that was never open."""
        address = self._addresses.pop((endpoint, descriptor), None)
        if address is None:
            return
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]

    def admits(self, address: str) -> bool:
        """Whether a connection of this address, which counts already, may stay."""
        return self._counts[address] <= self._most
