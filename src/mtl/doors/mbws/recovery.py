"""Connections that outlive their sessions: their state, and whether a client may continue one.

A connection spans WebSocket sessions (MBWS-06). While its client is away the door keeps the connection's numbers and,
for each unacknowledged message, its place in the log, where the body is. The time and the number of such connections
are limited; beyond that a reconnect becomes a new connection. `connection_store` stores them when the door ends.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Generic, NamedTuple, TypeVar

from mtl.client.reader_part import Start
from mtl.doors.limits import MBWS_WINDOW
from mtl.doors.mbws.codec import Connect
from mtl.doors.mbws.windows import Outgoing
from mtl.doors.remembered import Remembered


class MessageOrigin(NamedTuple):
    """The origin of a message: the content `sequence` of `address`."""

    address: str
    sequence: int


class Client(NamedTuple):
    """The owner of a connection, the only client that can recover it (MBWS-14, 44). `origin` is the origin of its
    page, None if it is not a browser; `user` is its user at the broker, None without authentication.
    """

    origin: str | None
    user: str | None = None

    def owner(self, connection: str) -> str:
        """The owner of a waiting connection's place: the user, without one the connection itself."""
        return connection if self.user is None else self.user


@dataclass(slots=True)
class ReadPosition:
    """The position at which reading an address continues; `incarnation` is the resource's, once that is known."""

    start: Start
    incarnation: str | None = None


class KnownConnection:
    """One connection of a client."""

    def __init__(self, name: str, client: Client, addresses: dict[str, Start]) -> None:
        self.name = name
        self.client = client
        self.outgoing: Outgoing[MessageOrigin] = Outgoing(MBWS_WINDOW)
        self.reading = {address: ReadPosition(start) for address, start in addresses.items()}

    def sent(self, address: str, sequences: Sequence[int]) -> None:
        """Record contents that are sent as the next messages."""
        self.outgoing.send(*map(MessageOrigin, repeat(address), sequences))
        self.reading[address].start = sequences[-1] + 1

    def can_continue(self, request: Connect, received: int) -> bool:
        """Whether a reconnect matches both states (MBWS-27, 28). `received`: the client's last message here, SSLR."""
        cslr, cslw, csuw = request.numbers
        return self.outgoing.can_resume_after(cslr) and cslw - 1 <= received <= csuw

    def resume(self, received: int) -> None:
        """Continue after the client's last message (CSLR), each address at its first content that was not received."""
        unsent = self.outgoing.rewind(received)
        for place in reversed(unsent):
            self.reading[place.address].start = place.sequence


C = TypeVar("C", bound=KnownConnection)


class Connections(Generic[C]):
    """A door's connections that can be recovered. At most `most` wait for their clients, a quarter of one user's, and
    `patience` seconds each.
    """

    def __init__(self, most: int, patience: float, clock: Callable[[], float]) -> None:
        self._patience = patience
        self._clock = clock
        self._all: dict[str, C] = {}
        self._waiting: Remembered[tuple[str, float]] = Remembered(most)
        """Names and their expiry times, in this order."""

    def __len__(self) -> int:
        """The number of connections."""
        return len(self._all)

    def add(self, connection: C) -> None:
        """Add a new connection with a session."""
        self._all[connection.name] = connection

    def find(self, name: str, client: Client) -> C | None:
        """The connection of this name, if it is this client's (MBWS-13, 14, 26)."""
        self.forget_old()
        connection = self._all.get(name)
        return connection if connection is not None and connection.client == client else None

    def failed(self, connection: C) -> None:
        """The connection lost its session and waits for the client."""
        self.forget_old()
        if connection.name not in self._all:
            return
        until = self._clock() + self._patience
        for name, _ in self._waiting.add(
            connection.name, connection.client.owner(connection.name), (connection.name, until)
        ):
            del self._all[name]

    @property
    def waiting(self) -> list[C]:
        """The connections that wait for their clients."""
        return [self._all[name] for name in self._waiting]

    def remaining_time(self, connection: C) -> float:
        """Seconds until the connection expires if its client does not reconnect."""
        waiting = self._waiting.get(connection.name)
        return self._patience if waiting is None else max(0.0, waiting[1] - self._clock())

    def recovered(self, connection: C) -> None:
        """The connection has a session again."""
        self._waiting.pop(connection.name)

    def clear(self, connection: C) -> None:
        """Remove a connection that was closed, or replaced by its client. Harmless when repeated."""
        self._forget(connection.name)

    def forget_old(self) -> None:
        """Remove expired connections."""
        while (oldest := next(iter(self._waiting), None)) is not None:
            waiting = self._waiting.get(oldest)
            assert waiting is not None
            if waiting[1] > self._clock():
                return
            self._forget(oldest)

    def _forget(self, name: str) -> None:
        self._waiting.pop(name)
        self._all.pop(name, None)


def new_name() -> str:
    """A name for a connection: an unguessable URN (MBWS-12)."""
    return uuid.uuid4().urn
