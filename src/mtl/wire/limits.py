"""Bounds of encoding and decoding. Units as in `mtl.limits`, which has the bounds that packages share."""

from __future__ import annotations

from mtl import limits

PACK_METADATA = 4 << 10
"""The flatbuffer of a pack. That of the fixed schema has about 220 octets."""

MAX_FIELD_NAME = 128
"""Octets of a field name (PROTOCOL.md 1; AMQP's own bound)."""

MAX_TABLE_DEPTH = 16
"""Nesting of field tables: deeper is an attack on the stack, not data."""

REJECT_WORDS = 255
"""Octets of the reason that a consumer gives for a rejection: one sentence. The record of a queue contains the reason
until the dead letter is durable."""

RESERVED_FIELDS = 256
"""Octets that the broker's own `mtl-` entries (count, timestamp, ...) may add to a delivered table."""

MAX_HEADER = 10 + limits.MAX_SHORT_STRING + limits.MAX_TABLE + RESERVED_FIELDS
"""Header frame of a data command: type, sequence, a name and a field table of the largest size."""

MAX_PATTERN = 1_000
"""Characters of a regular expression over resource names; expressions written by hand are shorter."""

MAX_STAGES_PER_COMMIT = 20_000
"""Stages of one Stage.Commit: one per task of a Spark job, which has a few thousand. So many ids fit a frame."""

MAX_DIGEST = 16
"""Values of a commit's digest: counts and hashes, in the forms of a few versions of a client. The broker keeps them."""

MAX_SEQUENCE = (1 << 64) - 1
"""The largest sequence that a command can have."""

MAX_QUEUE_DELIVERIES = 1_000_000
"""Largest configurable number of deliveries of a queue's content; at the longest backoff they take a year."""
