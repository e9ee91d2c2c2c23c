"""What the loop around the core is given: sockets, a clock, workers, and somebody to tell. Tests bring their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mtl.broker import actions as a
from mtl.errors import StorageError
from mtl.net.ports import Port
from mtl.net.router import Sent
from mtl.storage.api import ChunkRef, StorageAction
from mtl.wire import commands as c


class ControlSocket(Protocol):
    """Where replies go."""

    def send(self, *frames: bytes) -> Sent:
        """Send one message to the identity in its first frame."""


class Sockets(Protocol):
    """What is sent on. Nothing waits: a peer whose queue is full gets nothing (`Sent.FULL`)."""

    @property
    def control(self) -> ControlSocket:
        """The control socket."""

    def send(self, port: Port, identity: bytes, header: bytes, body: c.Buffer) -> Sent:
        """Send one data command."""

    def send_run(
        self, port: Port, identity: bytes, headers: Sequence[bytes], bodies: Sequence[c.Buffer]
    ) -> tuple[int, Sent]:
        """Send data commands in a row: how many of them left, and what became of the next."""


class Clock(Protocol):
    """Reads the time."""

    def __call__(self) -> a.Now: ...


class Outcomes(Protocol):
    """What is told of sends that were not carried out: the core, whose methods these are."""

    def blocked(self, lease: str, sequence: int, now: a.Now) -> None: ...

    def unsent(self, lease: str, content: c.Content, now: a.Now) -> None: ...

    def unreachable(self, peer: a.Peer, now: a.Now) -> None: ...

    def unread(self, lease: str, resource: str, ref: ChunkRef, error: StorageError, now: a.Now) -> None: ...


class Workers(Protocol):
    """Who performs what is not a send."""

    def begin(self, action: StorageAction | a.CheckPassword) -> None:
        """Perform an action now or later; its result is given to the core later."""

    def end_turn(self) -> list[tuple[int, object]]:
        """The sends of this turn are carried out. Results, by action, of what is performed at once."""
