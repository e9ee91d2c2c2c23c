"""The content type that the doors' clients return, the same for every protocol."""

from __future__ import annotations

import msgspec

from mtl.doors.properties import CONTENT_TYPE


class Received(msgspec.Struct, frozen=True):
    """One content. `sequence` is its place in the log, None if the protocol has none. Properties are text."""

    resource: str
    sequence: int | None
    body: bytes
    properties: dict[str, str] = {}

    @property
    def content_type(self) -> str | None:
        """The media type of the body, if its producer gave one."""
        return self.properties.get(CONTENT_TYPE)
