"""What becomes of a content's properties where a protocol has headers of text, in both directions.

A header's name is the property's name, so that what one protocol's producer says is what another's consumer hears; the
media type of the body is the property `content-type`. Values that are no text are shown as text, as Spark shows them
(`mtl.wire.text`); what comes in is text and stays it. Names that begin with `mtl-` are the broker's: a door adds
`mtl-sequence` where its protocol has no sequence of its own, and refuses them from its peers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mtl.doors.telling import Unfit
from mtl.wire.fields import RESERVED, Value
from mtl.wire.text import text

CONTENT_TYPE = "content-type"
SEQUENCE = "mtl-sequence"
BAD_PROPERTIES = "bad-properties"
"""The reason of a refusal by `from_texts`."""


def to_texts(properties: Mapping[str, Value]) -> dict[str, str]:
    """Properties as headers; no value is an empty one."""
    return {name: text(value) or "" for name, value in properties.items()}


def from_texts(headers: Iterable[tuple[str, Value]]) -> dict[str, Value]:
    """Headers as properties; where a protocol has types, values as they are.

    Raises `Refused` for a name that is the broker's, and for one that comes twice.
    """
    properties: dict[str, Value] = {}
    for name, value in headers:
        if name.startswith(RESERVED):
            raise Unfit(400, BAD_PROPERTIES, f"{name!r}: names that begin with {RESERVED} are the broker's")
        if name in properties:
            raise Unfit(400, BAD_PROPERTIES, f"{name!r} is there twice")
        properties[name] = value
    return properties
