"""The interface between the client and its sockets: links and polls.

`mtl.net.network` implements it with ZeroMQ, the tests in memory. One thread makes all calls, except `Poll.wake`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Protocol, TypeAlias

from mtl.wire.fields import Buffer


class LinkEvents(Flag):
    """Events of a link. DENIED comes with DOWN: the two ends do not agree about CURVE or its keys."""

    READABLE = auto()
    WRITABLE = auto()
    UP = auto()
    DOWN = auto()
    DENIED = auto()


Frames: TypeAlias = tuple[bytes, Buffer]


@dataclass(frozen=True, slots=True)
class Curve:
    """A client's CURVE keys (RFC 26/CurveZMQ), in Z85: the broker's public key, and the client's own pair."""

    server: bytes
    public: bytes
    secret: bytes = field(repr=False)


class Link(Protocol):
    """One connection to a broker. It connects once and never reconnects."""

    endpoint: str
    malformed: int
    """Messages that were dropped because they did not have two frames."""

    def send(self, first: bytes, second: Buffer) -> bool:
        """Send a message of two frames; False when there is no room for it now (ask the poll for WRITABLE)."""

    def send_many(self, firsts: Sequence[bytes], seconds: Sequence[Buffer]) -> int:
        """Send messages in order until the queue is full. Returns how many were sent."""

    def receive(self) -> Frames | None:
        """The next message of two frames, or None. Messages with more or fewer frames are dropped."""

    def receive_many(self, most: int) -> tuple[list[bytes], list[Buffer]]:
        """The waiting messages of two frames, in order: their first frames and their second frames. At most `most`
        messages, and fewer when they are large (`BURST_BODIES`).
        """

    def close(self) -> None:
        """Drop the connection and all messages under way. Harmless when repeated."""


class Watcher(Protocol):
    """Receives the events of a link."""

    def ready(self, link: Link, events: LinkEvents) -> None:
        """`link` has events. Also called for a link that was removed in the same round."""


class Poll(Protocol):
    """Waits for many links at once."""

    def add(self, link: Link, watcher: Watcher) -> None:
        """Notify `watcher` when `link` is up, down or readable."""

    def remove(self, link: Link) -> None:
        """Forget `link`. Harmless when it is unknown."""

    def watch_writable(self, link: Link, wanted: bool) -> None:
        """Whether to report WRITABLE, too."""

    @property
    def may_have_events(self) -> bool:
        """Whether `wait` may find events although its descriptor is not readable."""

    def fileno(self) -> int:
        """A descriptor that is readable when links have events, for an event loop that calls `wait(0.0)` then, and as
        long as the poll is `may_have_events`.
        """

    def wait(self, timeout: float | None) -> Iterable[tuple[Watcher, Link, LinkEvents]]:
        """Wait for events, at most `timeout` seconds (None: no limit) or until `wake`, and return them."""

    def wake(self) -> None:
        """End a `wait`, from any thread, a signal handler included."""

    def close(self) -> None:
        """Close the file descriptors."""


class Network(Protocol):
    """Makes links and polls."""

    def request(self, endpoint: str, curve: Curve | None = None) -> Link:
        """A link for the control flow: REQ."""

    def data(self, endpoint: str, *, packed: bool, curve: Curve | None = None) -> Link:
        """A link for a data flow: DEALER."""

    def poll(self) -> Poll:
        """A poll without links."""
