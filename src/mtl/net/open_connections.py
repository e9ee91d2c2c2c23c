"""The open connections of each address. A socket's monitor reports begin and end by descriptor.

libzmq accepts every connection that the system has a descriptor for. So connections on which nothing was received are
ended while there are too many, and those that send something are refused by ZAP.
"""

from __future__ import annotations

import resource
import socket
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mtl.net import limits as net_limits
from mtl.shares import Uses

CONNECTIONS_OPEN = 10_000
"""Connections that one address may have open at the same time: about 3,000 executors behind one address, with three
connections each. A silent connection costs a file descriptor, too."""

_Key = tuple[str, int]
"""(endpoint of the socket, descriptor)."""


def connections_in_all(files: int) -> int:
    """Connections that this process has descriptors for, beside those that are open now and `files` others."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(4, soft - sum(1 for _ in Path("/dev/fd").iterdir()) - files - net_limits.OTHER_FILES)


def peer_address(descriptor: int) -> str | None:
    """The address of a socket's peer, empty for a transport without addresses; None for a closed socket."""
    try:
        # Not a copy of the descriptor: there may be none left.
        borrowed = socket.socket(fileno=descriptor)
    except OSError:
        return None
    try:
        name = borrowed.getpeername()
    except OSError:
        return None
    finally:
        borrowed.detach()
    return str(name[0]) if isinstance(name, tuple) else ""


def shut_down(descriptor: int) -> None:
    """End a connection; libzmq then closes it. No effect on a descriptor that is closed, or of another file."""
    with suppress(OSError):
        borrowed = socket.socket(fileno=descriptor)
        try:
            borrowed.shutdown(socket.SHUT_RDWR)
        finally:
            borrowed.detach()


class OpenConnections:
    """Counts the connections of all sockets of a ZAP handler. `most` connections of an address may be open, and
    `in_all` (default: any number) of all addresses; one address may have three quarters of these. `address_of` finds
    the address of a descriptor.
    """

    def __init__(
        self,
        most: int = CONNECTIONS_OPEN,
        address_of: Callable[[int], str | None] = peer_address,
        in_all: int | None = None,
    ) -> None:
        self._most = most if in_all is None else min(most, in_all - in_all // 4)
        self._in_all = in_all
        self._most_silent = net_limits.SILENT_CONNECTIONS
        if in_all is not None:
            self._most_silent = min(self._most_silent, in_all // 4)
        self._address_of = address_of
        self._addresses: dict[_Key, str] = {}
        self._counts = Uses()
        self._silent: dict[str, OrderedDict[_Key, None]] = {}
        """By address, the oldest first."""
        self._silent_count = 0

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
            key = endpoint, descriptor
            self._addresses[key] = address
            self._counts.add(address)
            self._silent.setdefault(address, OrderedDict())[key] = None
            self._silent_count += 1

    def spoke(self, endpoint: str, descriptor: int) -> None:
        """A message was received on a connection."""
        key = endpoint, descriptor
        address = self._addresses.get(key)
        silent = self._silent.get(address) if address is not None else None
        if address is None or silent is None or key not in silent:
            return
        del silent[key]
        self._silent_count -= 1
        if not silent:
            del self._silent[address]

    def ended(self, endpoint: str, descriptor: int) -> None:
        """A connection is closed. No effect for a connection that was never open."""
        self.spoke(endpoint, descriptor)
        address = self._addresses.pop((endpoint, descriptor), None)
        if address is None:
            return
        self._counts.remove(address)

    def surplus(self) -> list[int]:
        """The descriptors of silent connections that have to be ended: the oldest ones of the addresses with the most.
        Each is returned once.
        """
        surplus = []
        while self._silent_count > self._most_silent:
            busiest = max(self._silent.values(), key=len)
            endpoint, descriptor = next(iter(busiest))
            self.spoke(endpoint, descriptor)
            surplus.append(descriptor)
        return surplus

    def admits(self, address: str) -> bool:
        """Whether a connection of this address, which counts already, may stay."""
        if self._in_all is not None and len(self._addresses) > self._in_all:
            return False
        return self._counts.of(address) <= self._most
