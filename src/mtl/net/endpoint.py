"""The seam between the client and its sockets: what a link and a poll do, whoever does it.

`mtl.net.network` does it with ZeroMQ; the tests have a twin in memory. Everything here is called by one thread, save
`Poll.wake`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Protocol, TypeAlias

from mtl.wire.fields import Buffer


class Ready(Flag):
    """What a link has to say. DENIED comes with DOWN: the two ends do not agree about CURVE, or its keys."""

    READABLE = auto()
    WRITABLE = auto()
    UP = auto()
    DOWN = auto()
    DENIED = auto()


Frames: TypeAlias = tuple[bytes, Buffer]


@dataclass(frozen=True, slots=True)
class Curve:
    """What a client needs for CURVE (RFC 26/CurveZMQ): the broker's public key, and a pair of its own, all in Z85.

    `lasting`: the pair is one that the broker may know, and not one made up for this connection.
    """

    server: bytes
    public: bytes
    secret: bytes = field(repr=False)
    lasting: bool = False


class Link(Protocol):
    """One connection to a broker: it is attempted once and, when it is gone, gone for good."""

    endpoint: str

    def send(self, first: bytes, second: Buffer) -> bool:
        """Send a message of two frames; False when there is no room for it now (ask the poll for WRITABLE)."""

    def send_many(self, firsts: Sequence[bytes], seconds: Sequence[Buffer]) -> int:
        """Send messages one after the other: how many of them there was room for."""

    def receive(self) -> Frames | None:
        """The next message of two frames, or None. Others are dropped."""

    def receive_many(self, most: int) -> tuple[list[bytes], list[Buffer]]:
        """What waits of such messages, in order: their first frames and their second ones. At most `most`, and fewer
        when these are large (`BURST_BODIES`).
        """

    def close(self) -> None:
        """Drop the connection and what is under way. Harmless when repeated."""


class Watcher(Protocol):
    """Whoever is told about a link."""

    def ready(self, link: Link, what: Ready) -> None:
        """`link` has something to say. Also called for a link that was removed in the same round."""


class Poll(Protocol):
    """Waits for many links at once."""

    def add(self, link: Link, watcher: Watcher) -> None:
        """Tell `watcher` when `link` is up, down or readable."""

    def remove(self, link: Link) -> None:
        """Forget `link`. Harmless when it is unknown."""

    def want_writable(self, link: Link, wanted: bool) -> None:
        """Whether WRITABLE is of interest, too."""

    def wait(self, timeout: float | None) -> Iterable[tuple[Watcher, Link, Ready]]:
        """What happened, after at most `timeout` seconds (None: no limit), or after a `wake`."""

    def wake(self) -> None:
        """End a `wait`, from any thread, a signal handler included."""

    def close(self) -> None:
        """Give back the file descriptors."""


class Network(Protocol):
    """Makes links and polls."""

    def request(self, endpoint: str, curve: Curve | None = None) -> Link:
        """A link for the control flow: REQ."""

    def data(self, endpoint: str, *, packed: bool, curve: Curve | None = None) -> Link:
        """A link for a data flow: DEALER."""

    def poll(self) -> Poll:
        """A poll without links."""
