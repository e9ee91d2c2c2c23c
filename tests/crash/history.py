"""The requests to a broker and its answers: the checker's only source. No code of the project is used here, nor in
bodies.py and checker.py.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

Origin = tuple[str, int]
"""The writer of a content, and its number: from 1, in the order of its resource."""


@dataclass
class Sent:
    """Contents sent by a named writer to a resource, numbered from 1, and the last confirmed number."""

    sent: int = 0
    confirmed: int = 0


@dataclass
class Commit:
    """A version of an application: `contents` are the numbers of its contents for each resource, `first` their
    positions by the broker's answer (None without an answer). `floors` are the numbers that writers had sent to the
    truncated resources by then.
    """

    application: str
    version: int
    contents: dict[str, int]
    truncate: tuple[str, ...] = ()
    first: dict[str, int] | None = None
    floors: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def writer(self) -> str:
        """The writer's name in the version's contents."""
        return f"{self.application}@{self.version}"


@dataclass
class Cursor:
    """`asked` is one above the highest content that was confirmed for the group, `durable` the highest position that a
    Cursor.Describe answered, which is durable by then.
    """

    asked: int = 1
    durable: int = 1


@dataclass
class History:
    """All events, without order of time. `trimmed` are resources with retention; `lasting` says for each created or
    deleted resource whether it must exist (None if its request had no answer); `troubles` are errors that no client
    should get.
    """

    sent: dict[tuple[str, str], Sent] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    read_contents: dict[str, dict[int, Origin]] = field(default_factory=dict)
    cursors: dict[tuple[str, str], Cursor] = field(default_factory=dict)
    delivered: dict[str, set[int]] = field(default_factory=dict)
    trimmed: set[str] = field(default_factory=set)
    lasting: dict[str, bool | None] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def record_read(self, resource: str, sequence: int, origin: Origin | None) -> None:
        """A reader got a content. So it is durable: no reader may get another one at its position."""
        known = self.read_contents.setdefault(resource, {}).setdefault(sequence, origin or ("nobody", 0))
        if origin is None:
            self.troubles.append(f"{resource}: content {sequence} has octets that no client sent")
        elif known != origin:
            self.troubles.append(f"{resource}: content {sequence} was {known} and is {origin}")

    def was_delivered(self, resource: str, sequence: int, origin: Origin | None, *, again: bool) -> None:
        """A consumer got a content of a queue."""
        self.record_read(resource, sequence, origin)
        known = self.delivered.setdefault(resource, set())
        if sequence in known and not again:
            self.troubles.append(
                f"{resource}: the queue delivered content {sequence} again and did not say so"
            )
        known.add(sequence)


@dataclass
class Kept:
    """The final state of a resource: contents from `earliest` on, in order, or the reason why they cannot be read."""

    earliest: int
    next: int
    contents: list[tuple[int, bytes]]
    trouble: str = ""


@dataclass
class Observed:
    """The final state as found by a client."""

    kept: dict[str, Kept] = field(default_factory=dict)
    cursors: dict[tuple[str, str], int] = field(default_factory=dict)
