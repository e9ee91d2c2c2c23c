"""The clients' view: contents published, confirmed, and delivered to readers.

A content's body is its unique tag, so that a log can be read and compared. `Violation` is raised as soon as a guarantee
is broken; other checks are in checks.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Tag = str
"""`<writer>.<n>`: n counts the contents that a writer or a task published to all its resources, from 1."""


class Violation(AssertionError):
    """A guarantee was broken."""


@dataclass(slots=True)
class Published:
    """One content: its target, and whether its writer may send it twice."""

    resource: str
    writer: str
    number: int
    once: bool
    confirmed: bool = False
    refused: bool = False


@dataclass(slots=True)
class Version:
    """One version of an application: the lists of stages of its commit requests, and the answer."""

    asked: list[tuple[str, ...]] = field(default_factory=list)
    first: dict[str, int] | None = None
    """Per resource, the start of the commit; None until a request was answered."""


@dataclass
class Model:
    """See the module."""

    published: dict[Tag, Published] = field(default_factory=dict)
    delivered: dict[str, dict[int, Tag]] = field(default_factory=dict)
    """Per resource: the contents delivered to readers, by sequence."""
    ends: dict[str, int] = field(default_factory=dict)
    """Per resource: the sequence after the last one delivered or reported to any client."""
    stages: dict[str, dict[str, list[Tag]]] = field(default_factory=dict)
    """Per sealed stage and resource: its contents in order."""
    versions: dict[tuple[str, int], Version] = field(default_factory=dict)
    snapshots: dict[str, list[str]] = field(default_factory=dict)
    """Per application that replaces its earlier contents: its resources, which have no other writers."""
    cursors: dict[tuple[str, str], int] = field(default_factory=dict)
    """Per group and resource: the highest position that is known to be durable."""
    allowed: dict[tuple[str, str], int] = field(default_factory=dict)
    """Per group and resource: the highest position that a holder ever confirmed."""

    # --- writers --------------------------------------------------------------------------------------------

    def publish(self, tag: Tag, resource: str, writer: str, number: int, *, once: bool = True) -> None:
        """A writer publishes a content."""
        self.published[tag] = Published(resource, writer, number, once)

    def confirm(self, tags: Iterable[Tag]) -> None:
        """The client reports these contents as durable."""
        for tag in tags:
            self.published[tag].confirmed = True

    def refuse(self, tags: Iterable[Tag]) -> None:
        """The client reports these contents as rejected for good."""
        for tag in tags:
            if self.published[tag].confirmed:
                raise Violation(f"{tag} was confirmed and then refused")
            self.published[tag].refused = True

    # --- readers --------------------------------------------------------------------------------------------

    def show(self, resource: str, first: int, tags: Sequence[Tag]) -> None:
        """A reader gets contents."""
        known = self.delivered.setdefault(resource, {})
        self.ends[resource] = max(self.end(resource), first + len(tags))
        for sequence, tag in enumerate(tags, first):
            before = known.setdefault(sequence, tag)
            if before != tag:
                raise Violation(
                    f"{resource} {sequence} was {before!r} for one reader and {tag!r} for another"
                )
            if tag not in self.published:
                raise Violation(f"{resource} {sequence} is {tag!r}, which no client published")

    def end(self, resource: str) -> int:
        """The sequence after the last one delivered or reported to any client."""
        return self.ends.get(resource, 1)

    def tell_end(self, resource: str, end: int) -> None:
        """The broker reports the end of a resource: contents before it are durable."""
        self.ends[resource] = max(self.end(resource), end)

    # --- groups ---------------------------------------------------------------------------------------------

    def ask_cursor(self, group: str, resource: str, position: int) -> None:
        """A holder confirms all contents before `position`."""
        key = group, resource
        self.allowed[key] = max(position, self.allowed.get(key, 1))

    def tell_cursor(self, group: str, resource: str, position: int) -> None:
        """The broker reports the durable position of a group."""
        key = group, resource
        if position < self.cursors.get(key, 1):
            raise Violation(f"{group} went back on {resource} from {self.cursors[key]} to {position}")
        if position > self.allowed.get(key, 1):
            raise Violation(f"{group} is at {position} of {resource}; no holder confirmed that")
        self.cursors[key] = position

    # --- stages ---------------------------------------------------------------------------------------------

    def seal(self, stage: str, contents: dict[str, list[Tag]]) -> None:
        """A task's stage is complete."""
        self.stages[stage] = contents

    def ask_commit(self, application: str, version: int, stages: Iterable[str]) -> None:
        """A driver is about to request a commit."""
        self.versions.setdefault((application, version), Version()).asked.append(tuple(stages))

    def tell_commit(self, application: str, version: int, first: dict[str, int]) -> None:
        """The broker answered a commit, for the first time or again."""
        known = self.versions[application, version]
        if known.first is not None and known.first != first:
            raise Violation(f"{application} {version} was committed at {known.first} and at {first}")
        known.first = first
