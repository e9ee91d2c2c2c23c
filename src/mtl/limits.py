"""Limits, sizes and intervals that several packages share, each with its reason. A package has its own in `limits.py`.

Units are in the names: bytes unless said otherwise, `_s` seconds, `_ms` milliseconds, `_us` microseconds.
"""

from __future__ import annotations

# --- contents and packs -------------------------------------------------------------------------------------

MAX_CONTENT = 4 << 20
"""Body of one content. A pack is one unit on the wire and in a chunk, so a body must fit into one."""

MAX_PACK = 4 << 20
"""Bodies and properties of one pack, in octets; Arrow may add PACK_OVERHEAD. One pack is one allocation at both
ends and the unit of the reader's window. Packs above a few MiB are not faster."""

PACK_OVERHEAD = 384 << 10
"""Octets that Arrow may add to a pack: at 40,000 contents 320 KB of offsets and 10 KB of validity bitmaps; metadata.
It also lets one content of MAX_CONTENT with properties of MAX_TABLE into a pack of its own."""

MAX_PACK_CONTENTS = 40_000
"""Most contents of one pack: about 4 MB of 100 octets each. With this number the fixed cost of a pack is
negligible."""

MAX_PACK_PROPERTIES = 512 << 10
"""Octets of properties in a pack. The broker's loop decodes each distinct table, at worst 4 octets a microsecond."""

MAX_FRAME = 2 * (MAX_PACK + PACK_OVERHEAD)
"""ZMQ_MAXMSGSIZE of the data sockets: twice the announced limit, so that libzmq does not disconnect a near miss."""

MAX_CONTROL_FRAME = 1 << 20
"""One JSON request or reply. A Describe of 1,000 resources is about 300 KB."""

# --- names and field tables ---------------------------------------------------------------------------------

MAX_SHORT_STRING = 255
"""RFC 11 "Field Encodings": one length octet."""

MAX_TABLE = 64 << 10
"""Octets of one encoded field table. Properties describe a content; larger data belongs in its body."""

MAX_RESOURCES_PER_LEASE = 1_000
"""Names in one Reader or Writer request; each costs a dictionary entry and a line in the reply."""

# --- the log ------------------------------------------------------------------------------------------------

SEGMENT_BYTES = 256 << 20
"""Size at which a segment is sealed. Retention removes whole segments and recovery scans the newest one, which at
1 GB/s takes a quarter of a second; smaller ones only make more files."""

MARK_IDLE_S = 1.0
"""After this time without new contents the end of a log is recorded in its manifest; from then on a loss at its end is
detected. With a shorter time logs with few contents would record it after each."""

MARK_BUSY_S = 0.5
MARK_GROUPS = 32
"""A log under load records its end after this time and this number of groups. Contents after the recorded end are those
whose loss is not detected (PROTOCOL.md 9.3). A record takes two syncs, so it costs at most one sync in sixteen; a fast
disk has hundreds of groups in this time."""

MARK_OCTETS = 64 << 20
"""Octets after which a log records its end, too. At most this and one group are undetected; a disk that writes 500 MB/s
needs 8 records a second for that."""

MARK_CHECK_S = 0.25
"""Interval of the check for such logs, while there are any."""

LOCAL_FROM = 16 << 10
"""Packs of at least this number of octets are sent to readers on the broker's machine as a file name and an offset.
For smaller packs opening the file costs more than the socket."""

# --- the client ---------------------------------------------------------------------------------------------

CREDIT_DELAY_S = 0.02
"""Seconds by which a waiting reader delays the Confirm of consumed contents, to confirm more of them at once."""

RECONNECT_DELAY_S = 0.05
RECONNECT_DELAY_TOP_S = 1.0
"""Pause between attempts to reach a broker; doubles up to RECONNECT_DELAY_TOP_S. A restart takes about a second."""

REQUEST_TIMEOUT_S = 5.0
"""Default for one attempt of a request, a connect or a bind."""

RETRY_DEADLINE_S = 30.0
"""Default for a whole request or recovery with all its attempts; then `Unreachable` is raised."""

# --- the broker: control ------------------------------------------------------------------------------------

DEFAULT_ENDPOINT = "tcp://127.0.0.1:5975"
"""The endpoint of a broker and a client if none is given. The port is that of the earliest implementation."""

DEFAULT_VIRTUAL_HOST = "/"
"""Virtual host of a client that does not name one."""

SCRAM_ITERATIONS = 50_000
"""PBKDF2 iterations of a new password, twelve times the minimum of RFC 7677. A guess and a log-in cost about 15 ms."""

MIN_PASSWORD = 8
"""Characters of a new password, the minimum of NIST SP 800-63B: a shorter one can be guessed from its verifier."""

# --- the broker: leases and heartbeats ----------------------------------------------------------------------

HEARTBEAT_S = 5.0
"""Interval of Pings on a silent flow (PROTOCOL.md 3); a peer is given up after three without any answer."""

# --- the broker: contents in --------------------------------------------------------------------------------

ARRIVAL_OVERHEAD = 512
"""Octets that each waiting content counts in addition to its body, so that empty contents are bounded, too."""

# --- sockets ------------------------------------------------------------------------------------------------

PLAIN_HWM = 1_000
"""Plain contents queued per peer, on a socket of their own because HWM is per socket."""

# --- the broker: threads ------------------------------------------------------------------------------------

OPENINGS = 4
"""Logs that are opened at once for waiting requests. Scanning one large log that was not closed takes a second; the
others need not wait for it. While no request waits, logs are opened one at a time: the work is mostly Python and
competes with the loop for the interpreter."""

COMMIT_THREADS = 4
"""Logs that are written and synced at once; more would only queue at the device."""
