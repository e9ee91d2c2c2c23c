"""Stored contents: decoded, or the reason why they cannot be read.

This is the one place where the broker decodes the contents of a log. Contents are verified before they are stored.
Contents that nevertheless do not decode are damaged: this is an error of their resource and its readers, never of
the broker.
"""

from __future__ import annotations

from mtl.errors import Damaged, Malformed
from mtl.storage.api import ChunkRef
from mtl.wire.fields import Buffer
from mtl.wire.packs import RecordBatch, trust_pack


def stored_pack(ref: ChunkRef, body: Buffer) -> RecordBatch:
    """The contents of the chunk `ref`, decoded from its body. Raises `Damaged`."""
    try:
        pack = trust_pack(body)
    except Malformed as e:
        raise _damaged(ref, str(e)) from e
    if pack.num_rows != ref.count:
        raise _damaged(ref, f"{pack.num_rows} contents")
    return pack


def _damaged(ref: ChunkRef, form: str) -> Damaged:
    message = f"contents {ref.base} to {ref.end - 1} are stored as {form}; `mtl verify` lists all damages"
    return Damaged(message, first=ref.base, end=ref.end)
