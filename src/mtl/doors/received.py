"""What the doors' clients give to their applications: the same for every protocol."""

from __future__ import annotations

from dataclasses import dataclass, field

from mtl.doors.properties import CONTENT_TYPE


@dataclass(frozen=True, slots=True)
class Received:
    """One content. `sequence` is its place in the resource's log, where the protocol tells; properties are text."""

    resource: str
    sequence: int | None
    body: bytes
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def content_type(self) -> str | None:
        """The media type of the body, where its producer said one."""
        return self.properties.get(CONTENT_TYPE)
