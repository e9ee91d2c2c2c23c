"""Limits, sizes and intervals, each with its reason. No other module defines a size.

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
"""Contents of one pack: some 4 MB of 100 octets each. With so many the fixed cost of a pack is negligible."""

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
"""Octets of one encoded field table. Properties describe a content; larger data belongs in its body."""

REJECT_WORDS = 255
"""Octets of what a consumer says of a content that it rejects: a sentence. The record of a queue has it until the dead
letter is durable."""

RESERVED_FIELDS = 256
"""Octets that the broker's own `mtl-` entries (count, timestamp, ...) may add to a delivered table."""

MAX_HEADER = 10 + MAX_SHORT_STRING + MAX_TABLE + RESERVED_FIELDS
"""Header frame of a data command: type, sequence, a name and a field table of the largest size."""

MAX_PATTERN = 1_000
"""Characters of a regular expression over resource names; nobody writes a longer one by hand."""

MAX_PATTERN_COST = 4_000
"""Characters of such an expression times its counted repetitions: at 30,000 RE2 took half a minute for 1,000 names."""

MAX_PATTERN_WORK = 50_000_000
"""Characters of such an expression times the characters of all names that it is matched against. RE2 does some 100
million a second when it cannot cache its states. Enough for fifteen characters on the names of 100,000 resources."""

MAX_STAGES_PER_COMMIT = 20_000
"""Stages of one Stage.Commit: one per task of a Spark job, which has a few thousand. So many ids fit a frame."""

MAX_RESOURCES_PER_LEASE = 1_000
"""Names in one Reader or Writer request; each costs a dictionary entry and a line in the reply."""

# --- the log ------------------------------------------------------------------------------------------------

SEGMENT_BYTES = 256 << 20
"""Size at which a segment is sealed. Retention removes whole segments and recovery scans the newest one, which at
1 GB/s takes a quarter of a second; smaller ones only make more files."""

SEGMENT_CHUNKS = 1 << 18
"""Chunks at which a segment of any size is sealed: the newest segment's index is in memory, 32 octets per chunk."""

LOG_EPOCHS = 1_000
"""Epochs in a log's manifest: one a day for almost three years, in 25 KB that are rewritten with each new segment. A
position in an older epoch is accepted without a check."""

MAX_CHUNK_BODY = 64 << 20
"""Body of one chunk. Verifying reads a chunk whole; packs are far smaller (MAX_PACK)."""

MAX_CHUNK_RUNS = MAX_PACK_CONTENTS
"""Writers' runs in one chunk: each has at least one content."""

IOV_BATCH = 512
"""Buffers in one writev: below IOV_MAX of every system (1,024 on Linux and macOS)."""

SCAN_BLOCK = 4 << 20
"""Octets that a scan reads at a time: above 1 MiB nothing gets faster. A larger chunk is read as a whole."""

OPEN_FILES = 512
"""Log files open at a time; the least recently used one is closed, and reopened when it is needed. Without this limit
each log would keep one or two files open, and many systems give a process only a thousand or so."""

MAPPED_SEGMENTS = 256
"""Sealed segments that are mapped at a time, over all logs. Each takes a file descriptor and address space; the
least recently read one is unmapped. Segments without a mapping are read with pread."""

INDEX_CACHE_BYTES = 64 << 20
"""Indexes of sealed segments kept in memory, over all logs: 2 million chunks."""

TAIL_BYTES = 64 << 20
"""Newly appended bodies kept in memory, over all logs, so that readers at the end of a log need no disk read."""

MARK_IDLE_S = 1.0
"""After this time without new contents the end of a log is recorded in its manifest; from then on damage to its last
group is detected. With a shorter time logs with few contents would record it after each."""

MARK_CHECK_S = 0.25
"""Interval of the check for such logs, while there are any."""

MARKS_AT_ONCE = 32
"""Logs whose end is recorded in one check: each takes two syncs in the threads that also commit groups."""

GHOST_BYTES = 4 << 30
"""Octets of removed segments that are still mapped because a frame in flight refers to them: their disk space is not
free yet. Above this, contents are copied instead of mapped, so that a slow peer cannot hold more of the disk."""

LOCAL_FROM = 16 << 10
"""Packs of at least so many octets are sent to readers on the broker's machine as a file name and an offset. For
smaller packs opening the file costs more than the socket."""

LOCAL_WINDOW = 16 << 20
"""Octets of such a file that are mapped at once: a few packs, so that the cost of mapping is negligible and the memory
is released soon."""

LOCAL_FILES = 2
"""Files that a reader of such packs keeps open: the current segment and the next one."""

SHARED_MEMORY = 24 << 20
"""Memory that a packed writer shares with a broker on its machine: WRITER_WINDOW plus two packs. A pack that does not
fit goes through the socket. Only pages that were written to take memory, and packs reuse them."""

SHARED_MEMORIES = 64
"""Writers that have such memory at a time. With more writers the processor is the bottleneck and not the socket."""

# --- the client ---------------------------------------------------------------------------------------------

READER_WINDOW_CONTENTS = 320_000
"""Default window of a packed reader: eight full packs, and as many of 10,000 contents as its queue takes (PACKED_HWM).
Each time half of it is consumed, three threads in two processes are woken, which costs as much as reading a pack."""

READER_WINDOW = 32 << 20
"""The same in octets: the memory cost of a slow reader. Packs that are sent as file name and offset cost none."""

PLAIN_WINDOW_CONTENTS = 20_000
"""Default window of a plain reader in contents; its octets are those of a packed one."""

CONSUMER_WINDOW_CONTENTS = 100
"""Default window of a consumer of a queue. Contents in the window are not available to other consumers; if the consumer
dies, each of them loses one delivery attempt."""

WRITER_WINDOW_CONTENTS = 200_000
"""Default of a writer's unconfirmed contents; small contents reach it before the octets."""

WRITER_WINDOW = 16 << 20
"""Default of a writer's unconfirmed octets: the writer sends them again after a crash of the broker."""

MAX_UNSENT = 512
"""Contents between a writer's application and its sending thread. Above this the application waits; otherwise the two
threads compete for Python's interpreter lock at every send."""

PUMP = 1_000
"""Contents sent, and contents received, before other flows and timers are served: some two milliseconds, and the queue
of a plain socket. With 256 a reader took a fifth more processor time."""

CREDIT_DELAY_S = 0.02
"""How long a waiting reader delays the Confirm of consumed contents, to confirm more of them at once."""

RESEND_DELAY_S = 0.005
RESEND_DELAY_TOP_S = 1.0
"""Pause before contents that the broker pushed back (overload, a gap) are sent again; doubles up to the second one."""

QUIET_S = 2.0
"""A writer whose contents are not confirmed for this long asks whether its lease still holds."""

RECONNECT_DELAY_S = 0.05
RECONNECT_DELAY_TOP_S = 1.0
"""Pause between attempts to reach a broker; doubles up to RECONNECT_DELAY_TOP_S. A restart takes about a second."""

LINGER_S = 0.005
"""How long a packed writer waits for more contents before it sends a pack that is not full."""

PACK_TARGET = 256 << 10
"""Octets at which a packed writer's buffer leaves without waiting; above some 100 KiB packs get no cheaper."""

PACK_TARGET_CONTENTS = 2_000
"""The same in contents."""

REQUEST_TIMEOUT_S = 5.0
"""Default for one attempt of a request, a connect or a bind."""

RETRY_DEADLINE_S = 30.0
"""Default for a whole request or recovery with all its attempts; then `Unreachable` is raised."""

MAX_SOCKETS = 16_384
"""ZeroMQ sockets of one process: libzmq's default of 1,023 is some 250 readers; a Spark driver has one per resource."""

AIO_REQUESTS = 8
"""Threads of one asyncio connection that wait for replies: requests are few, and answered within milliseconds."""

# --- the broker: control ------------------------------------------------------------------------------------

DEFAULT_VIRTUAL_HOST = "/"
"""Virtual host of a client that names none."""

MAX_SESSIONS = 20_000
"""Control sessions kept; some 500 octets each. When another one is opened the longest silent ones are dropped."""

SESSIONS_LEAVING = 100
"""One in so many sessions is dropped at a time: finding the longest silent ones takes some 20 ms, too much for each of
a flood of new sessions."""

SESSION_IDLE_S = 3600.0
"""Time after which a silent control session is dropped; its client opens a new one after the reply `not-open`."""

SCRAM_ITERATIONS = 50_000
"""PBKDF2 iterations of a new password, twelve times the minimum of RFC 7677. A guess, and a log-in, cost some 15 ms."""

MIN_PASSWORD = 8
"""Characters of a new password, the minimum of NIST SP 800-63B: a shorter one can be guessed from its verifier."""

AUTHENTICATION_ATTEMPTS = 3
"""Failed log-ins of one session, after which the broker replies 403 and the client has to open another session."""

FAILED_LOGINS = 10
"""Failed log-ins of one user from one address within FAILED_LOGINS_S; further ones are refused without a check until
that time is over. Per address, so that nobody can lock out another user; a guesser has 14,400 tries a day."""

FAILED_LOGINS_ADDRESS = 100
"""The same for all users of one address together, against guesses with many user names. Higher than FAILED_LOGINS,
since many clients may share an address."""

FAILED_LOGINS_S = 60.0
"""Period of FAILED_LOGINS and FAILED_LOGINS_ADDRESS."""

MAX_FAILED_LOGINS = 20_000
"""(address, user) pairs counted at once, some 200 octets each; the oldest leave first."""

MAX_PASSWORD_CHECKS = 100
"""PLAIN passwords that wait for their check at once; each takes as long as SCRAM_ITERATIONS, on a thread of its own."""

MAX_RIGHTS_REMEMBERED = 100_000
"""Cached results of matching a grant's pattern with a name, some 100 octets each, until users or grants change."""

ACCOUNTS_CHECK_S = 1.0
"""Interval at which the broker checks for changes by `mtl user` or `mtl grant`."""

MAX_LEASES = 20_000
"""Live leases; some 2 KB each."""

MAX_LEASES_PER_SESSION = 2_000
"""Live leases of one session, so that one client cannot use up everybody's."""

MAX_LEASED_NAMES = 2_000_000
"""Names of resources in all live leases together, some 100 octets each: each lease may have MAX_RESOURCES_PER_LEASE."""

MAX_RESOURCES = 100_000
"""Resources of a broker; each costs some 2 KB of memory and two files on the disk."""

MAX_DESCRIBED = 5_000
"""Resources in one reply. More do not fit MAX_CONTROL_FRAME; the check comes before the work of describing them."""

MAX_WAITERS = 10_000
"""Describes that wait for news at once; each is a client that would poll otherwise."""

MAX_WAITING_NAMES = 200_000
"""Names in all waiting Describes together; each costs some 300 octets, and a request may have tens of thousands."""

MAX_WAIT_S = 30.0
"""Longest wait of a Describe; shorter than the time-out of any client."""

MAX_WRITER_NAMES = 1_000_000
"""Writer names kept; the library generates one per writer, and each costs some 300 octets until it expires."""

WRITER_NAME_IDLE_S = 24 * 3600.0
"""Time after which an unused writer name is dropped together with its publishing numbers."""

NAMES_CHECK_S = 600.0
"""Interval of the check for such names."""

# --- the broker: leases and heartbeats ----------------------------------------------------------------------

HEARTBEAT_S = 5.0
"""Interval of Pings on a silent flow (PROTOCOL.md 3); a peer is given up after three without any answer."""

HEARTBEAT_CHECK_S = 1.0
"""Interval of the heartbeat check, or a quarter of the heartbeat interval if that is shorter: the delay of a Ping."""

LEASE_UNBOUND_S = 60.0
"""How long a lease without a data flow is kept: long enough for a restart of the broker or the client."""

EXPIRY_CHECK_S = 5.0
"""Interval of the check for expired leases, sessions and stages."""

# --- the broker: contents in --------------------------------------------------------------------------------

INBOUND_OCTETS = 256 << 20
"""Contents taken in and not yet synced, over all resources. Above it contents are pushed back (Reject, recycle) and
never left unread, because Pings and Confirms share the socket."""

ARRIVAL_OVERHEAD = 512
"""Octets that each waiting content counts in addition to its body, so that empty contents are bounded, too."""

MAX_UNCONFIRMED = 1 << 20
"""Contents of one writing lease that are taken in and not confirmed. A resource that makes no progress holds back the
Confirms of a flow's other resources, and each costs some 200 octets meanwhile."""

GROUP_OCTETS = 32 << 20
"""Octets of one group commit of one log: large enough that the cost of the sync is negligible, small enough that a slow
disk confirms ten times a second."""

# --- the broker: contents out -------------------------------------------------------------------------------

WINDOW_CONTENTS = 1_000
"""A reader's window when it asks for none (PROTOCOL.md 5.2)."""

WINDOW_OCTETS = 8 << 20
"""The same in stored octets."""

MAX_WINDOW_CONTENTS = 1_000_000
"""Largest window granted. The broker keeps some 100 octets for each unsettled content, or for each run of contents sent
in a row. It also bounds the list that a Confirm out of order has to split."""

MAX_WINDOW_OCTETS = 1 << 30
"""The same in stored octets; they stay in the log, not in memory."""

TURN_OCTETS = 8 << 20
"""Octets sent to one reader before the next reader is served: a few packs, so that no reader waits long."""

TURN_SENDS = 64
"""Chunks, or runs of plain contents, that are prepared in such a turn: as many packs as the queues of both ends hold.
With small chunks (each content was confirmed before the next) thousands would fit TURN_OCTETS. All that are prepared
after the queue is full are wasted work."""

TURN_CONTENTS = 1_000
"""Plain contents in one run, for the same reason: sending takes one or two microseconds of Python for each."""

BLOCKED_RETRY_S = 0.001
"""Delay before the broker tries again to send to a reader whose queue was full; a frame from that reader ends it early.
ZeroMQ does not report room in a ROUTER's queue. With 20 ms an active reader fell to a quarter of its rate."""

BLOCKED_RETRY_TOP_S = 0.02
"""The same for a reader that has not read anything for a while, so that the loop prepares fewer contents in vain."""

FANOUT_RING_OCTETS = 16 << 20
"""Contents that wait for a slow reader of the `test` profile, each with `mtl.broker.reading.fanout.OVERHEAD`: a burst
of 100,000 small ones. The oldest are dropped and counted. A ring of 1,000 contents lost half of a burst of 5,000."""

FANOUT_RETRY_S = 0.02
"""Interval of the attempts to send from these rings."""

# --- the broker: groups, stages, retention ------------------------------------------------------------------

CURSOR_FLUSH_S = 0.1
"""Longest time until a moved cursor is durable (PROTOCOL.md 5.3)."""

MAX_CURSORS = 200_000
"""Cursors of a broker, some 1 KB each, until they or their resources are deleted: two groups for MAX_RESOURCES."""

MAX_APPLICATIONS = 100_000
"""Applications whose last commit is kept, some 1 KB each: a hundred new queries a day for three years."""

MAX_STAGES = 100_000
"""Stages at a time. 200 tasks every few seconds whose stages are never committed stay below this: stages expire."""

SEALED_STAGE_S = 24 * 3600.0
"""How long a sealed stage waits for its Stage.Commit: a driver may be restarted a day later."""

OPEN_STAGE_S = 3600.0
"""How long an open stage without a lease is kept: its task is dead, and a retry has a stage of its own."""

SAVE_RETRY_S = 0.5
"""Pause before mandatory work that failed on the disk is tried again, such as a commit past its commit point."""

OPEN_RETRY_S = 0.5
OPEN_RETRY_TOP_S = 10.0
"""Pause before another attempt to open a log that failed because the disk is full or failing; doubles up to
OPEN_RETRY_TOP_S. One log is tried at a time, and all of them once that one opens. Within OPEN_RETRY_S a request for
such a log gets the error of the last attempt."""

RETENTION_CHECK_S = 5.0
"""Interval of the retention check of each resource."""

# --- sockets ------------------------------------------------------------------------------------------------

CONTROL_HWM = 1_000
"""Control messages queued per peer; a REQ has one."""

CONTROL_WAITING = 64
"""Requests of one peer queued for the broker; each may have MAX_CONTROL_FRAME. Then its TCP connection is not read."""

PACKED_HWM = 32
"""Packed Contents queued per peer: HWM counts messages, and 32 packs of 4 MiB are 128 MiB already."""

PLAIN_HWM = 1_000
"""Plain contents queued per peer, on a socket of their own because HWM is per socket."""

PLAIN_WAITING = 256
"""Plain contents of one peer queued for the broker, for the same reason; more do not make it faster."""

LINGER_MS = 500
"""How long a closing socket goes on sending: long enough for a last reply on loopback."""

HANDSHAKE_MS = 10_000
"""Time for a peer's ZMTP handshake; then it is disconnected."""

ZMTP_HEARTBEAT_MS = 5_000
"""Interval of libzmq's own heartbeats: a peer that sends no Pings detects by them that the broker is gone."""

ZMTP_TIMEOUT_MS = 15_000
"""Time after which a peer that receives nothing disconnects, and after which the broker disconnects a peer that does
not acknowledge data at TCP level."""

DRAIN_MESSAGES = 4_000
"""Messages read from one socket before the other sockets are served. libzmq reads one message of each peer in turn, so
with many peers a batch still has several messages of each, which cost less together than one by one."""

DRAIN_S = 0.02
"""The same in time: a peer may make each message as costly as the limits allow while the other sockets wait."""

BURST_HEADERS = 64 << 10
"""Octets of headers read in one batch. DRAIN_S is checked between batches; properties take up to 0.25 us per octet."""

BURST_BODIES = 4 << 20
"""Octets of bodies read in one batch. INBOUND_OCTETS is checked between batches; 1,000 bodies of MAX_CONTENT would be
4 GiB. One body is always read."""

QUEUED_OCTETS = 16 << 20
"""Octets of large frames that libzmq holds for one peer of a socket with long queues (replies, plain contents): its
high-water mark counts messages, and a thousand of MAX_CONTENT would be 4 GiB. One frame is always accepted."""

SEND_BACKLOG = 10_000
"""Commands that wait for one peer's full queue. A peer with more of them does not read; its flow is ended."""

ZERO_COPY = 64 << 10
"""Frames from this size on are sent without copying (measured: below it the copy is cheaper)."""

# --- the broker: threads ------------------------------------------------------------------------------------

OPENINGS = 4
"""Logs that are opened at once for waiting requests. Scanning one large log that was not closed takes a second; the
others need not wait for it. While no request waits, logs are opened one at a time: the work is mostly Python and
competes with the loop for the interpreter."""

COMMIT_THREADS = 4
"""Logs that are written and synced at once; more would only queue at the device."""

PREPARED = 64 << 10
"""Packs of at least so many octets get their checksum from another thread, during the sync of earlier groups. For
smaller packs waking a thread costs as much as the checksum."""

LOOP_COMMIT = 64 << 10
"""Octets of a group that the idle loop may write and sync itself (`mtl.broker.runtime.commit`)."""

LOOP_COMMIT_S = 0.001
"""The loop does not write groups itself if a recent group took this long or none was written yet: a slow disk would
delay all other work."""

SWITCH_INTERVAL_S = 0.0002
"""sys.setswitchinterval of the broker: with a busy loop it allows 1,000 group commits a second, Python's default 70."""

STOP_S = 30.0
"""How long a stopping broker waits for its disk before it gives up."""

ADOPT_OCTETS = 8 << 20
"""A stage's log from this size on is adopted by rename. Copying smaller ones avoids thousands of files an hour."""
