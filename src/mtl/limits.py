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

PACK_OVERHEAD = 384 << 10
"""What Arrow may add to a pack: at 40,000 contents 320 KB of offsets and 10 KB of validity bitmaps, and the metadata.
It also lets one content of MAX_CONTENT with properties of MAX_TABLE into a pack of its own."""

PACK_METADATA = 4 << 10
"""The flatbuffer of a pack. That of the fixed schema has some 220 octets."""

MAX_PACK_CONTENTS = 40_000
"""Contents of one pack: some 4 MB of 100 octets each. What a pack costs by itself does not show beside so many."""

MAX_PACK_PROPERTIES = 512 << 10
"""Octets of properties in a pack. The broker's loop decodes each distinct table, at worst 4 octets a microsecond."""

MAX_FRAME = 2 * (MAX_PACK + PACK_OVERHEAD)
"""ZMQ_MAXMSGSIZE of the data sockets: twice the announced limit, so that libzmq does not disconnect a near miss."""

MAX_CONTROL_FRAME = 1 << 20
"""One JSON request or reply. A Describe of 1,000 resources is some 300 KB."""

# --- names and field tables ---------------------------------------------------------------------------------

MAX_SHORT_STRING = 255
"""RFC 11 "Field Encodings": one length octet."""

MAX_FIELD_NAME = 128
"""Octets of a field name (PROTOCOL.md 1; AMQP's own bound)."""

MAX_TABLE_DEPTH = 16
"""Nesting of field tables: deeper is an attack on the stack, not data."""

MAX_TABLE = 64 << 10
"""Octets of one encoded field table. Properties describe a content; what is larger belongs in its body."""

REJECT_WORDS = 255
"""Octets of what a consumer says of a content that it rejects: a sentence. The record of a queue has it until the dead
letter is durable."""

RESERVED_FIELDS = 256
"""Octets that the broker's own `mtl-` entries (count, timestamp, ...) may add to a delivered table."""

MAX_HEADER = 10 + MAX_SHORT_STRING + MAX_TABLE + RESERVED_FIELDS
"""Header frame of a data command: type, sequence, a name and a field table of the largest size."""

MAX_PATTERN = 1_000
"""Characters of a regular expression over resource names; a longer one is no longer written by hand."""

MAX_PATTERN_COST = 4_000
"""Characters of such an expression times its counted repetitions: at 30,000 RE2 took half a minute for 1,000 names."""

MAX_PATTERN_WORK = 50_000_000
"""Characters of such an expression times those of all names that it is held against: RE2 does some 100 million in a
second when its states are too many to remember. Fifteen characters over the names of 100,000 resources."""

MAX_STAGES_PER_COMMIT = 20_000
"""Stages of one Stage.Commit: one per task of a Spark job, which has a few thousand. So many ids fit a frame."""

MAX_RESOURCES_PER_LEASE = 1_000
"""Names in one Reader or Writer request; each costs a dictionary entry and a line in the reply."""

# --- the log ------------------------------------------------------------------------------------------------

SEGMENT_BYTES = 256 << 20
"""Size at which a segment is sealed. Retention removes whole segments and recovery scans the newest one, which at
1 GB/s takes a quarter of a second; smaller ones only make more files."""

SEGMENT_CHUNKS = 1 << 18
"""Chunks at which a segment is sealed, whatever its size: the newest one's index lies in memory, 32 octets each."""

LOG_EPOCHS = 1_000
"""Epochs that a log's manifest remembers: one a day for almost three years, in 25 KB that are written again with each
new segment. A position in an older one is accepted without a check."""

MAX_CHUNK_BODY = 64 << 20
"""Body of one chunk. Verifying reads a chunk whole; packs are far smaller (MAX_PACK)."""

MAX_CHUNK_RUNS = MAX_PACK_CONTENTS
"""Writers' runs in one chunk: each has at least one content."""

IOV_BATCH = 512
"""Buffers in one writev: below IOV_MAX of every system (1,024 on Linux and macOS)."""

SCAN_BLOCK = 4 << 20
"""Octets that a scan reads at a time: above 1 MiB nothing gets faster. A larger chunk is read as a whole."""

OPEN_FILES = 512
"""Files of logs that the system has open at a time; the one not used for longest is closed, and opened again when it is
needed. Each log has one or two for all its life otherwise, and many systems give a process a thousand or so."""

MAPPED_SEGMENTS = 256
"""Sealed segments that are mapped at a time, over all logs. Each takes a file descriptor and address space; the
least recently read one is dropped, and what is not mapped is read."""

INDEX_CACHE_BYTES = 64 << 20
"""Indexes of sealed segments kept in memory, over all logs: 2 million chunks."""

TAIL_BYTES = 64 << 20
"""Bodies just appended that are kept for readers that follow the end, over all logs: they cost no read then."""

MARK_IDLE_S = 1.0
"""A log that got contents and then none for so long has its end recorded, after which damage to its last group is
detected. Sooner, and logs that get a content now and then would have it recorded after each."""

MARK_CHECK_S = 0.25
"""How often that is looked for, while there is such a log."""

MARKS_AT_ONCE = 32
"""Logs whose end is recorded in one such round: each takes two syncs in the threads that groups wait for, too."""

GHOST_BYTES = 4 << 30
"""Octets of segments that were removed but are still mapped, because a frame in flight shows them: their space is
not free yet. Above this, contents are copied instead of mapped, so that a slow peer cannot hold more of the disk."""

LOCAL_FROM = 16 << 10
"""Octets from which on a pack is told by its place on the broker's machine: below, files cost more than the socket."""

LOCAL_WINDOW = 16 << 20
"""Octets of such a file that are mapped at once: a few packs, so that mapping costs nothing beside reading them, and
little enough to be let go of soon after."""

LOCAL_FILES = 2
"""Files that a reader of such packs keeps open: the segment that it reads, and the one after it."""

SHARED_MEMORY = 24 << 20
"""Memory that a packed writer shares with a broker on its machine: WRITER_WINDOW, and a pack before and behind it. What
does not fit goes through the socket. It costs what was written to at most, and packs go where others were before."""

SHARED_MEMORIES = 64
"""Writers that have such memory at a time: more of them would have a core to share, and not the socket to wait for."""

# --- the client ---------------------------------------------------------------------------------------------

READER_WINDOW_CONTENTS = 320_000
"""Default window of a packed reader: eight full packs, and as many of 10,000 contents as its queue takes (PACKED_HWM).
Each time half of it is done with, three threads in two processes are woken, which costs as much as reading one."""

READER_WINDOW = 32 << 20
"""The same in octets: what a slow reader costs in memory. Packs that are told by their place cost none."""

PLAIN_WINDOW_CONTENTS = 20_000
"""Default window of a plain reader in contents; its octets are those of a packed one."""

CONSUMER_WINDOW_CONTENTS = 100
"""Default window of a consumer of a queue: what it has the others cannot have, and its death costs each a delivery."""

WRITER_WINDOW_CONTENTS = 200_000
"""Default of a writer's unconfirmed contents; small contents reach it before the octets."""

WRITER_WINDOW = 16 << 20
"""Default of a writer's unconfirmed octets: what one broker crash makes it send again."""

MAX_UNSENT = 512
"""Contents that a writer's application may be ahead of the thread that sends: above it the two take turns, else they
fight for Python's interpreter lock at every send."""

PUMP = 1_000
"""Contents sent, and contents received, in one go before other flows and timers have their turn: some two milliseconds,
and what a plain socket queues. With 256 a reader took a fifth more processor time."""

CREDIT_DELAY_S = 0.02
"""How long a reader that waits for contents keeps back the Confirm of what it consumed, to confirm more at once."""

RESEND_DELAY_S = 0.005
RESEND_DELAY_TOP_S = 1.0
"""Pause before contents that the broker pushed back (overload, a gap) are sent again; doubles up to the second one."""

QUIET_S = 2.0
"""A writer whose contents are not confirmed for this long asks whether its lease still holds."""

RECONNECT_DELAY_S = 0.05
RECONNECT_DELAY_TOP_S = 1.0
"""Pause between attempts to reach a broker; doubles up to the second one. A restart takes about a second."""

LINGER_S = 0.005
"""How long a packed writer's `send` waits for company before its contents leave as one pack."""

PACK_TARGET = 256 << 10
"""Octets at which a packed writer's buffer leaves without waiting; above some 100 KiB packs get no cheaper."""

PACK_TARGET_CONTENTS = 2_000
"""The same in contents."""

REQUEST_TIMEOUT_S = 5.0
"""Default for one attempt of a request, a connect or a bind."""

RETRY_DEADLINE_S = 30.0
"""Default for a whole request or recovery with all its attempts: then the broker is called unreachable."""

MAX_SOCKETS = 16_384
"""ZeroMQ sockets of one process: libzmq's 1,023 is some 250 readers, and a Spark driver has one per resource."""

AIO_REQUESTS = 8
"""Threads of one asyncio connection that wait for replies: requests are few, and answered within milliseconds."""

# --- the broker: control ------------------------------------------------------------------------------------

DEFAULT_VIRTUAL_HOST = "/"
"""Where a client is that names no virtual host."""

MAX_SESSIONS = 20_000
"""Control sessions kept; some 500 octets each. Those that were silent for longest leave when another comes."""

SESSIONS_LEAVING = 100
"""One in so many leaves then: finding out which takes some 20 ms, and a flood of new ones would cost that for each."""

SESSION_IDLE_S = 3600.0
"""A silent control session is forgotten; the client opens a new one when it is told `not-open`."""

SCRAM_ITERATIONS = 50_000
"""PBKDF2 iterations of a new password, twelve times the least of RFC 7677. A guess, and a log-in, cost some 15 ms."""

MIN_PASSWORD = 8
"""Characters of a new password, as NIST SP 800-63B has it: a shorter one is guessed from its verifier."""

AUTHENTICATION_ATTEMPTS = 3
"""Failed log-ins of one session, after which it is told 403 and has to be opened anew."""

FAILED_LOGINS = 10
"""Failed log-ins of one user from one address within FAILED_LOGINS_S; then they are refused unseen until that time is
over. Per address, so that nobody locks somebody else's user out; a user's guesser has 14,400 tries a day."""

FAILED_LOGINS_ADDRESS = 100
"""The same for all users together: a list of names buys nothing. Higher, since many clients may share an address."""

FAILED_LOGINS_S = 60.0
"""The time of the two above."""

MAX_FAILED_LOGINS = 20_000
"""(address, user) pairs counted at once, some 200 octets each; the oldest leave first."""

MAX_PASSWORD_CHECKS = 100
"""PLAIN passwords that wait for their check at once; each takes as long as SCRAM_ITERATIONS, on a thread of its own."""

MAX_RIGHTS_REMEMBERED = 100_000
"""Answers of a grant's pattern for a name that are remembered, some 100 octets each, until users or grants change."""

ACCOUNTS_CHECK_S = 1.0
"""How often the broker looks whether `mtl user` or `mtl grant` changed something."""

MAX_LEASES = 20_000
"""Live leases; some 2 KB each."""

MAX_LEASES_PER_SESSION = 2_000
"""Live leases of one session, so that one client cannot use up everybody's."""

MAX_LEASED_NAMES = 2_000_000
"""Names of resources in all live leases together, some 100 octets each: each lease may have MAX_RESOURCES_PER_LEASE."""

MAX_RESOURCES = 100_000
"""Resources of a broker; each costs some 2 KB of memory and two files on the disk."""

MAX_DESCRIBED = 5_000
"""Resources in one answer; more do not fit MAX_CONTROL_FRAME, and it is better to know that before describing them."""

MAX_WAITERS = 10_000
"""Describes that wait for news at once; each is a client that would poll otherwise."""

MAX_WAITING_NAMES = 200_000
"""Names in all of their requests together; each costs some 300 octets, and a request may have tens of thousands."""

MAX_WAIT_S = 30.0
"""Longest wait of a Describe; shorter than any client's patience."""

MAX_WRITER_NAMES = 1_000_000
"""Writer names remembered; the library makes one up per writer, and each costs some 300 octets until it expires."""

WRITER_NAME_IDLE_S = 24 * 3600.0
"""A writer name that nobody used for this long is forgotten, and with it its publishing numbers."""

NAMES_CHECK_S = 600.0
"""How often such names are looked for."""

# --- the broker: leases and heartbeats ----------------------------------------------------------------------

HEARTBEAT_S = 5.0
"""Interval of Pings on a silent flow (PROTOCOL.md 3); a peer is given up after three without any answer."""

HEARTBEAT_CHECK_S = 1.0
"""How often heartbeats are looked at, or four times per interval where that is shorter; the error of the interval."""

LEASE_UNBOUND_S = 60.0
"""How long a lease waits for a data flow, its first or its next one: a broker's or client's restart fits."""

EXPIRY_CHECK_S = 5.0
"""How often leases, sessions and stages are looked at."""

# --- the broker: contents in --------------------------------------------------------------------------------

INBOUND_OCTETS = 256 << 20
"""Contents taken in and not yet synced, over all resources. Above it contents are pushed back (Reject, recycle) and
never left unread, because Pings and Confirms share the socket."""

ARRIVAL_OVERHEAD = 512
"""What a content that waits for the disk costs beside its octets; counted with them, else empty ones were free."""

MAX_UNCONFIRMED = 1 << 20
"""Contents of one writing lease that are taken in and not confirmed. A resource that stands still holds back the
Confirms of a flow's other resources, and each costs some 200 octets meanwhile."""

GROUP_OCTETS = 32 << 20
"""One group commit of one log: the sync no longer shows, and a slow disk still confirms every tenth of a second."""

# --- the broker: contents out -------------------------------------------------------------------------------

WINDOW_CONTENTS = 1_000
"""A reader's window when it asks for none (PROTOCOL.md 5.2)."""

WINDOW_OCTETS = 8 << 20
"""The same in stored octets."""

MAX_WINDOW_CONTENTS = 1_000_000
"""Largest window granted; the broker's cost of a window is its unsettled Contents, some 100 octets each, or each run of
them that was sent in a row. The worst a Confirm can do is to make a hole in a list of so many."""

MAX_WINDOW_OCTETS = 1 << 30
"""The same in stored octets; they stay in the log, not in memory."""

TURN_OCTETS = 8 << 20
"""What one reader is sent before the next has its turn: a few packs, so that nobody waits long."""

TURN_SENDS = 64
"""Chunks, or runs of plain contents, that are made ready in such a turn: what the queues of both ends take of packs.
When chunks are small (each content was confirmed before the next) thousands of them fit the octets, and all behind the
first that found no room would be made ready in vain."""

TURN_CONTENTS = 1_000
"""Plain contents in one run, for the same reason: sending them is Python's work, a microsecond or two each."""

BLOCKED_RETRY_S = 0.001
"""A reader whose queue was full is tried again after this, or on its next frame. Nothing tells when there is room; one
that reads has it a moment later, and with 20 ms it fell to a quarter of its rate."""

BLOCKED_RETRY_TOP_S = 0.02
"""The same for one that has not read anything for a while: making contents ready in vain is work for the loop."""

FANOUT_RING_OCTETS = 16 << 20
"""Contents that wait for a slow reader of the `test` profile, `mtl.broker.reading.fanout.OVERHEAD` more for each: a
burst of 100,000 small ones. The oldest are dropped and counted. Of 1,000 contents, half of a burst of 5,000 was lost.
"""

FANOUT_RETRY_S = 0.02
"""How often waiting rings of the `test` profile are tried."""

# --- the broker: groups, stages, retention ------------------------------------------------------------------

CURSOR_FLUSH_S = 0.1
"""A moved cursor is durable after this at the latest (PROTOCOL.md 5.3)."""

MAX_CURSORS = 200_000
"""Cursors of a broker, some 1 KB each, until they or their resources are deleted: two groups for MAX_RESOURCES."""

MAX_APPLICATIONS = 100_000
"""Applications whose last commit is remembered, some 1 KB each: a hundred new queries a day for three years."""

MAX_STAGES = 100_000
"""Stages at once: 200 tasks every few seconds that nobody commits expire long before."""

SEALED_STAGE_S = 24 * 3600.0
"""A sealed stage waits this long for its Stage.Commit: a driver may be restarted a day later."""

OPEN_STAGE_S = 3600.0
"""An open stage without a lease goes after this: its task is dead, and a retry has its own stage."""

SAVE_RETRY_S = 0.5
"""Pause after which what must be done is tried again when the disk refuses, such as a commit past its commit point."""

OPEN_RETRY_S = 0.5
OPEN_RETRY_TOP_S = 10.0
"""A log that a full or failing disk did not let open is tried again after this, then after twice as long, up to the
second value: one log at a time, and all of them once that one opens. Within the first value a request for such a log
gets the error of the last attempt."""

RETENTION_CHECK_S = 5.0
"""How often retention looks at each resource."""

# --- sockets ------------------------------------------------------------------------------------------------

CONTROL_HWM = 1_000
"""Control messages queued per peer; a REQ has one."""

CONTROL_WAITING = 64
"""Requests of one peer that wait for us; each may have MAX_CONTROL_FRAME. Then its TCP connection is not read."""

PACKED_HWM = 32
"""Packed Contents queued per peer: HWM counts messages, and 32 packs of 4 MiB are 128 MiB already."""

PLAIN_HWM = 1_000
"""Plain contents queued per peer, on a socket of their own because HWM is per socket."""

PLAIN_WAITING = 256
"""Plain contents of one peer that wait for us, for the same reason; more do not make it faster."""

LINGER_MS = 500
"""How long a closing socket goes on sending: long enough for a last reply on loopback."""

HANDSHAKE_MS = 10_000
"""A peer that does not finish its ZMTP handshake is cut off."""

ZMTP_HEARTBEAT_MS = 5_000
"""libzmq's own heartbeat: who waits for us, and sends no Pings, notices by it that we are gone."""

ZMTP_TIMEOUT_MS = 15_000
"""A peer that hears nothing for so long takes us for gone, and we one that acknowledges nothing that was sent to it."""

DRAIN_MESSAGES = 4_000
"""Messages read from one socket before the others have their turn. libzmq gives one of each peer in turn: even of very
many peers there are some of each then, which cost less together than one by one."""

DRAIN_S = 0.02
"""The same in time: a peer may make each message as costly as the limits allow, and the others wait meanwhile."""

BURST_HEADERS = 64 << 10
"""Octets of headers that are read before DRAIN_S can count what they take: properties up to 0.25 us per octet."""

BURST_BODIES = 4 << 20
"""Octets of bodies that are read before room is asked for: 1,000 of MAX_CONTENT would be 4 GiB. One is always read."""

QUEUED_OCTETS = 16 << 20
"""Octets of large frames that libzmq holds for one peer of a socket with long queues (replies, plain contents): its
high-water mark counts messages, and a thousand of MAX_CONTENT would be 4 GiB. One frame is always let through."""

SEND_BACKLOG = 10_000
"""Commands that wait for one peer's full queue; a peer that lets more pile up reads nothing and is let go."""

ZERO_COPY = 64 << 10
"""Frames from this size on are sent without copying (measured: below it the copy is cheaper)."""

# --- the broker: threads ------------------------------------------------------------------------------------

OPENINGS = 4
"""Logs that are opened at once for requests that wait. One large log that was not closed is read for a second; the
others need not wait for it. While no request waits the rest are opened one at a time: the work is mostly Python, and
the loop shares the interpreter with it."""

COMMIT_THREADS = 4
"""Logs that are written and synced at once; more would only queue at the device."""

PREPARED = 64 << 10
"""Octets from which on a pack's checksum is computed while others are synced: below, waking a thread costs as much."""

LOOP_COMMIT = 64 << 10
"""Octets of a group that the loop may write and sync itself while it has nothing else to do
(`mtl.broker.runtime.commit`).
"""

LOOP_COMMIT_S = 0.001
"""It does not when a group took as long as this lately, or none was written yet: a slow disk would hold up the rest."""

SWITCH_INTERVAL_S = 0.0002
"""sys.setswitchinterval of the broker: with a busy loop 1,000 group commits a second; by default they fell to 70."""

STOP_S = 30.0
"""How long a stopping broker waits for its disk before it gives up."""

ADOPT_OCTETS = 8 << 20
"""A stage's log from this size on is adopted by rename. Copying smaller ones avoids thousands of files an hour."""
