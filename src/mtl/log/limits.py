"""The bounds of the log. Units as in `mtl.limits`, which has the bounds that packages share."""

from __future__ import annotations

from mtl import limits

SEGMENT_CHUNKS = 1 << 18
"""Chunks at which a segment of any size is sealed: the newest segment's index is in memory, 32 octets per chunk."""

LOG_EPOCHS = 1_000
"""Epochs in a log's manifest: one a day for almost three years, in 25 KB that are rewritten with each new segment. A
position in an older epoch is accepted without a check."""

CLOCK_SKEW_US = 5_000_000
"""Microseconds by which the clock may be behind the newest stamp of a log; the next content then gets the same stamp.
Corrections by NTP and a leap second stay below, so they begin no segments."""

LOG_SETBACKS = 100
"""Setbacks of the clock in a log's manifest, about 30 octets each. Where the clock went back more often, a search by
time among the oldest contents may begin too early or too late."""

MAX_CHUNK_BODY = 64 << 20
"""Body of one chunk. Verifying reads a chunk whole; packs are far smaller (MAX_PACK)."""

MAX_CHUNK_RUNS = limits.MAX_PACK_CONTENTS
"""Writers' runs in one chunk: each has at least one content."""

IOV_BATCH = 512
"""Buffers in one writev: below IOV_MAX of every system (1,024 on Linux and macOS)."""

SCAN_BLOCK = 4 << 20
"""Octets that a scan reads at a time. Reads above 1 MiB are not faster. A larger chunk is read as a whole."""

OPEN_FILES = 512
"""Log files open at a time; the least recently used one is closed, and reopened when it is needed. Without this
limit each log would keep one or two files open, and many systems allow a process only about a thousand."""

RESERVED_FILES = 1_024
"""File descriptors that connections cannot take, at most a quarter of those that the process may have: twice
OPEN_FILES, because an open file may have lost its name, and files are read and listed meanwhile."""

INDEX_CACHE_BYTES = 64 << 20
"""Indexes of sealed segments kept in memory, over all logs: 2 million chunks."""

TAIL_BYTES = 64 << 20
"""Newly appended bodies kept in memory, over all logs, so that readers at the end of a log need no disk read."""
