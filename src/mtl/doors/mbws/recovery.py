"""Connections that outlive their sessions: what the door knows of one, and whether a client may go on with it.

A connection spans WebSocket sessions (MBWS-06). While its client is away the door keeps the connection's numbers and,
for each message that was not acknowledged, its place in the log: the bodies are there already. It keeps them for a
while, and for so many; then a reconnect becomes a new connection. `keeping` has them when the door itself ends.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Generic, NamedTuple, TypeVar

from mtl.client.incoming import Start
from mtl.doors.limits import MBWS_WINDOW
from mtl.doors.mbws.codec import Connect
from mtl.doors.mbws.windows import Outgoing


class Place(NamedTuple):
    """Where a message came from: the content `sequence` of `address`."""

    address: str
    sequence: int


class Client(NamedTuple):
    """Whose a connection is: nobody else can recover it (MBWS-14, 44). `origin` is where its page came from, None for
    what is no browser; `user` the user of the broker that it came in as, None where nobody has to prove anything.
    """

    origin: str | None
    user: str | None = None


@dataclass(slots=True)
class Next:
    """Where the reading of an address goes on; `incarnation` is the resource's, once that is known."""

    start: Start
    incarnation: str | None = None


class Connection:
    """One connection of a client."""

    def __init__(self, name: str, client: Client, addresses: dict[str, Start]) -> None:
        self.name = name
        self.client = client
        self.outgoing: Outgoing[Place] = Outgoing(MBWS_WINDOW)
        self.reading = {address: Next(start) for address, start in addresses.items()}

    def sent(self, address: str, sequences: Sequence[int]) -> None:
        """Contents go out as the next messages."""
        self.outgoing.send(*map(Place, repeat(address), sequences))
        self.reading[address].start = sequences[-1] + 1

    def goes_on(self, asked: Connect, received: int) -> bool:
        """Whether a reconnect fits what both know (MBWS-27, 28). `received`: the client's last that we have, SSLR."""
        cslr, cslw, csuw = asked.numbers
        return self.outgoing.can_go_on_after(cslr) and cslw - 1 <= received <= csuw

    def resume(self, received: int) -> None:
        """Go on behind the last message that the client has (CSLR); each address where it has not had its contents."""
        unsent = self.outgoing.rewind(received)
        for place in reversed(unsent):
            self.reading[place.address].start = place.sequence


C = TypeVar("C", bound=Connection)


class Connections(Generic[C]):
    """A door's connections that can be recovered. At most `most` wait for their clients, `patience` seconds each."""

    def __init__(self, most: int, patience: float, clock: Callable[[], float]) -> None:
        self._most = most
        self._patience = patience
        self._clock = clock
        self._all: dict[str, C] = {}
        self._waiting: dict[str, float] = {}
        """Name -> when it is forgotten; in this order."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self._all)

    def add(self, connection: C) -> None:
        """A new one, with a session."""
        self._all[connection.name] = connection

    def find(self, name: str, client: Client) -> C | None:
        """The connection of this name, if it is this client's (MBWS-13, 14, 26)."""
        self.forget_old()
        found = self._all.get(name)
        return found if found is not None and found.client == client else None

    def failed(self, connection: C) -> None:
        """Its session is lost: it waits for the client."""
        self.forget_old()
        if connection.name not in self._all:
            return
        self._waiting[connection.name] = self._clock() + self._patience
        self._forget(list(self._waiting)[: max(0, len(self._waiting) - self._most)])

    @property
    def waiting(self) -> list[C]:
        """Those that wait for their clients."""
        return [self._all[name] for name in self._waiting]

    def left(self, connection: C) -> float:
        """For how many seconds it is kept if its client does not come from now on."""
        until = self._waiting.get(connection.name)
        return self._patience if until is None else max(0.0, until - self._clock())

    def recovered(self, connection: C) -> None:
        """It has a session again."""
        self._waiting.pop(connection.name, None)

    def clear(self, connection: C) -> None:
        """It is closed, or its client began another one in its place. Harmless when repeated."""
        self._forget([connection.name])

    def forget_old(self) -> None:
        """Forget those whose clients did not come."""
        now = self._clock()
        old = []
        for name, when in self._waiting.items():
            if when > now:
                break
            old.append(name)
        self._forget(old)

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._waiting.pop(name, None)
            self._all.pop(name, None)


def new_name() -> str:
    """A name for a connection: a URN (MBWS-12) that nobody guesses."""
    return uuid.uuid4().urn
