"""The dependencies of the loop: sockets, a clock, workers, and a receiver of outcomes. Tests replace them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mtl.broker import actions
from mtl.errors import StorageError
from mtl.net.router import SendOutcome
from mtl.storage.api import ChunkRef, StorageAction
from mtl.wire import commands
from mtl.wire.fields import Buffer


class Sockets(Protocol):
    """The sockets for sends. No send blocks: nothing is sent to a peer whose queue is full, or for an owner without
    room (`SendOutcome.FULL`).
    """

    def reply(self, frames: Sequence[bytes], owner: str) -> SendOutcome:
        """Send one message on the control socket, to the identity in its first frame."""

    def send(self, peer: actions.Peer, header: bytes, body: Buffer, owner: str) -> SendOutcome:
        """Send one data command that is not a content."""

    def send_contents(
        self, peer: actions.Peer, headers: Sequence[bytes], bodies: Sequence[Buffer], owner: str
    ) -> tuple[int, SendOutcome]:
        """Send contents in a row. Returns how many were sent, and the outcome of the next one."""


class Clock(Protocol):
    """Reads the time."""

    def __call__(self) -> actions.Now: ...


class Outcomes(Protocol):
    """The receiver of sends that were not carried out: the core, whose methods these are."""

    def blocked(self, lease: str, sequence: int, now: actions.Now) -> None: ...

    def unsent(self, lease: str, content: commands.Content, now: actions.Now) -> None: ...

    def unreachable(self, peer: actions.Peer, now: actions.Now) -> None: ...

    def unread(
        self, lease: str, resource: str, ref: ChunkRef, error: StorageError, now: actions.Now
    ) -> None: ...


class Workers(Protocol):
    """Performs the actions that are not sends."""

    def begin(self, action: StorageAction | actions.CheckPassword) -> None:
        """Perform an action now or later; its result is passed to the core later."""

    def end_turn(self) -> list[tuple[int, object]]:
        """All sends of this turn are done. Returns the results of actions performed at once, by number."""
