"""Chooses the decoder of bodies by the name of their format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark_mtl.rows.bodies.from_arrow import FromArrow
from pyspark_mtl.rows.bodies.from_objects import from_json, from_msgpack
from pyspark_mtl.rows.bodies.from_text import FromText
from pyspark_mtl.rows.bodies.values import Decoded

Decoder = Callable[[Any], Decoded]
"""Takes bodies (binary, none null) and returns their rows."""

DECODERS: dict[str, Callable[[Any], Decoder]] = {
    "text": FromText,
    "json": from_json,
    "msgpack": from_msgpack,
    "arrow": FromArrow,
}


def decoder(name: str, schema: Any) -> Decoder:
    """The decoder of a format for the body's columns (a pyarrow.Schema)."""
    return DECODERS[name](schema)
