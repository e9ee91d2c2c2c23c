"""Everything that can grow has a bound, and the bound has a reason. Nothing else in the code decides a size.

Units are in the names: bytes unless said otherwise, `_s` seconds, `_ms` milliseconds, `_us` microseconds.
"""

from __future__ import annotations

# --- contents and packs -------------------------------------------------------------------------------------

MAX_CONTENT = 4 << 20
"""Body of one content. A pack is one unit on the wire and in a chunk, so a body must fit into one."""

MAX_PACK = 4 << 20
"""Bodies and properties of one pack, in octets; PACK_OVERHEAD is what Arrow may add. One pack is one allocation at
both ends and the unit of the reader's window; above some MiB nothing gets faster."""

PACK_OVERHEAD = 96 << 10
"""What Arrow may add to a pack: at 10,000 contents 80 KB of offsets and 2.5 KB of validity bitmaps, and the metadata.
It also lets one content of MAX_CONTENT with properties of MAX_TABLE into a pack of its own."""

PACK_METADATA = 4 << 10
"""The flatbuffer of a pack. That of the fixed schema has some 220 octets."""

MAX_PACK_CONTENTS = 10_000
"""Contents of one pack. Spark's own default for an Arrow batch; the cost per content is flat from about 1,000."""

MAX_FRAME = 2 * (MAX_PACK + PACK_OVERHEAD)
"""ZMQ_MAXMSGSIZE of the data sockets: twice the announced limit, so that a near miss is answered with a Reject
instead of libzmq's silent disconnect (profiles.md)."""

MAX_CONTROL_FRAME = 1 << 20
"""One JSON request or reply. A Describe of 1,000 resources is some 300 KB."""

# --- names and field tables ---------------------------------------------------------------------------------

MAX_SHORT_STRING = 255
"""RFC 11 "Field Encodings": one length octet."""

MAX_FIELD_NAME = 128
"""Octets of a field name (decisions.md G1; AMQP's own bound)."""

MAX_TABLE_DEPTH = 16
"""Nesting of field tables (profiles.md): deeper is an attack on the stack, not data."""

MAX_TABLE = 64 << 10
"""Octets of one encoded field table. Properties describe a content; what is larger belongs in its body."""

RESERVED_FIELDS = 256
"""Octets that the broker's own `mtl-` entries (count, timestamp, sequence, redelivered) may add to a delivered table."""

MAX_HEADER = 10 + MAX_SHORT_STRING + MAX_TABLE + RESERVED_FIELDS
"""Header frame of a data command: type, sequence, a name and a field table of the largest size."""

MAX_PATTERN = 1_000
"""Characters of a regular expression over resource names; a longer one is no longer written by hand."""

MAX_STAGES_PER_COMMIT = 20_000
"""Stages of one Stage.Commit: one per task of a Spark job, and a job has a few thousand. Ids of 32 octets still fit a
control frame."""

MAX_RESOURCES_PER_LEASE = 1_000
"""Names in one Reader or Writer request; each costs a dictionary entry and a line in the reply."""

# --- the log ------------------------------------------------------------------------------------------------

SEGMENT_BYTES = 256 << 20
"""Size at which a segment is sealed. Retention removes whole segments and recovery scans the newest one, which at
1 GB/s takes a quarter of a second; smaller ones only make more files."""

SEGMENT_CHUNKS = 1 << 18
"""Chunks at which a segment is sealed, whatever its size: the index of the newest one lies in memory, 32 octets each."""

MAX_CHUNK_BODY = 64 << 20
"""Body of one chunk. Verifying reads a chunk whole; packs are far smaller (MAX_PACK)."""

MAX_CHUNK_RUNS = MAX_PACK_CONTENTS
"""Writers' runs in one chunk: each has at least one content."""

MAX_DEDUP_WRITERS = 1 << 20
"""Writers in the dedup snapshot at the head of a segment, 16 octets each. Above it somebody makes up a name per
content; a segment would begin with more snapshot than contents."""

IOV_BATCH = 512
"""Buffers in one writev: below IOV_MAX of every system (1,024 on Linux and macOS)."""

SCAN_BLOCK = 4 << 20
"""Octets that a scan reads at a time: above 1 MiB nothing gets faster, and a chunk with the largest pack fits."""

MAPPED_SEGMENTS = 256
"""Sealed segments that are mapped at a time, over all logs. Each takes a file descriptor and address space; the
least recently read one is dropped, and what is not mapped is read."""

INDEX_CACHE_BYTES = 64 << 20
"""Indexes of sealed segments kept in memory, over all logs: 2 million chunks."""

TAIL_BYTES = 64 << 20
"""Bodies just appended that are kept for readers that follow the end, over all logs: they cost no read then."""

GHOST_BYTES = 4 << 30
"""Octets of segments that were removed but are still mapped, because a frame in flight shows them: their space is
not free yet. Above this, contents are copied instead of mapped, so that a slow peer cannot hold more of the disk."""

# --- the Spark connector ------------------------------------------------------------------------------------

LATEST_OFFSET_WAIT_MS = 250
"""How long an idle query's latestOffset waits for contents. With the default trigger Spark calls it every 11 ms
otherwise; a longer wait would only delay what else the trigger does."""

MAX_OPEN_RESOURCES_PER_TASK = 100
"""Resources that one task of a sink may write to at once: each is a lease, a stage and its files in the broker."""

MAX_TRIGGER_DELAY_S = 15 * 60
"""Default of `maxTriggerDelay`, Kafka's own."""

MAX_PARTITIONS = 100_000
"""Tasks of one batch. More is a mistyped `maxRecordsPerPartition`; Spark's driver would choke on them."""

TEST_HOOK_HOLD_S = 60
"""Longest hold of a test hook (pyspark_mtl.hooks), so that a forgotten one cannot hang a query for ever."""
