"""Caches for encoded properties: those of consecutive contents are mostly equal."""

from __future__ import annotations

from collections.abc import Mapping

from mtl.client.contents import Content
from mtl.doors.micromessage.contents import from_message, to_message
from mtl.doors.micromessage.filters import Filter
from mtl.doors.micromessage.negotiation import Agreed
from mtl.doors.micromessage.session import MessageArrived
from mtl.doors.micromessage.values import FilterValue, encode_properties, encode_whole
from mtl.doors.properties import SEQUENCE, from_texts
from mtl.wire import fields


class TableCache:
    """Field tables of the messages of one peer."""

    def __init__(self) -> None:
        self._last_properties: Mapping[str, FilterValue] | None = None
        self._type: str | None = None
        self._table = fields.EMPTY

    def of(self, message: MessageArrived, agreed: Agreed) -> bytes:
        """The content's properties, encoded. Raises `Refused`, `FieldError` for invalid ones."""
        if message.properties is not self._last_properties or message.type != self._type:
            self._table = fields.encode_properties(from_texts(from_message(message, agreed).items()))
            self._last_properties, self._type = message.properties, message.type
        return self._table


class PropertyCache:
    """Encoded message properties for the contents of one subscription that match its filter."""

    def __init__(self, keep: Filter, agreed: Agreed) -> None:
        self._keep = keep
        self._agreed = agreed
        self._table: bytes | None = None
        self._matches = True
        self._text = ""
        self._type: str | None = None

    def of(self, content: Content) -> tuple[str, str | None] | None:
        """A message's properties, encoded, and its type; None if the filter does not match."""
        if content.table != self._table:
            properties, self._type = to_message(content.properties, self._agreed)
            self._matches = self._keep.matches(properties)
            self._text = encode_properties(properties)
            self._table = content.table
        return (self._text + encode_whole(SEQUENCE, content.sequence), self._type) if self._matches else None
