"""The bounds of the broker. Units as in `mtl.limits`, which has the bounds that packages share."""

from __future__ import annotations

# --- names and field tables ---------------------------------------------------------------------------------

MAX_PATTERN_COST = 4_000
"""Characters of a regular expression over names times its counted repetitions: at 30,000 RE2 took half a minute for
1,000 names."""

MAX_PATTERN_WORK = 50_000_000
"""Characters of a regular expression times the characters of the names that are matched against it at a time. RE2 does
some 100 million a second when it cannot cache its states. Patterns of up to 19 characters are matched against
MAX_PAGE_SCANNED names of 255 characters at a time."""

# --- the log ------------------------------------------------------------------------------------------------

MARKS_AT_ONCE = 32
"""Logs whose end is recorded between two checks: each takes two syncs in the threads that also commit groups."""

ACTIONS_TOGETHER = 1_000
"""Actions that are one batch, such as transactions on the records: a save takes some 50 µs in addition to the two syncs
of its batch, and the next one waits for the whole batch."""

# --- the broker: control ------------------------------------------------------------------------------------

MAX_SESSIONS = 40_000
"""Control sessions kept; about 500 octets each. When another one is opened the longest silent ones are dropped."""

SESSIONS_LEAVING = 100
"""Divisor of the number of sessions that are dropped at a time. Finding the sessions with the longest silence takes
about 20 ms, which is too much for each of a flood of new sessions."""

SESSION_IDLE_S = 3600.0
"""Time after which a silent control session is dropped; its client opens a new one after the reply `not-open`."""

AUTHENTICATION_ATTEMPTS = 3
"""Failed log-ins of one session, after which the broker replies 403 and the client has to open another session."""

FAILED_LOGINS = 10
"""Wrong passwords of one user from one address within FAILED_LOGINS_S; further log-ins of this user from there are
refused without a check until that time is over. Per address, so that clients elsewhere cannot lock out the user; a
guesser has 14,400 tries a day for each user. There is no limit for an address as a whole: it would lock out the users
who share the address with a guesser. The pace of connections limits the guesses with many names."""

FAILED_LOGINS_S = 60.0
"""Period of FAILED_LOGINS."""

MAX_FAILED_LOGINS = 20_000
"""(address, user) pairs counted at once, about 200 octets each; the oldest leave first. Names without a user have a
table of their own, so that invented names cannot displace the counts of users."""

MAX_PASSWORD_CHECKS = 1_000
"""PLAIN passwords that wait for their check, about 1 KB each; a check takes as long as SCRAM_ITERATIONS, on a thread
of its own."""

MAX_PASSWORD_CHECKS_ADDRESS = 25
"""Those of one address, so that a guesser cannot fill the places of all; the addresses take turns."""

PASSWORD_CHECKS_AT_ONCE = 2
"""Those that are with the thread: one is checked, and the next one is there when it is done."""

MAX_RIGHTS_REMEMBERED = 100_000
"""Cached results of matching a grant's pattern with a name, about 100 octets each, until users or grants change."""

ACCOUNTS_CHECK_S = 1.0
"""Interval at which the broker checks for changes by `mtl user` or `mtl grant`."""

MAX_LEASES = 40_000
"""Live leases; about 2 KB each."""

MAX_LEASES_PER_SESSION = 2_000
"""Live leases of one session, so that one client cannot use up all leases."""

MAX_LEASED_NAMES = 2_000_000
"""Names of resources in all live leases together, about 100 octets each: a lease may have MAX_RESOURCES_PER_LEASE."""

MAX_RESOURCES = 100_000
"""Resources of a broker; each costs about 2 KB of memory and two files on the disk."""

MAX_PAGE = 1_000
"""Entries in one reply of a list: a Describe of so many resources takes about 10 ms, for which all other clients
wait."""

PAGE_OCTETS = 768 << 10
"""Octets of the entries in one reply, which has to fit MAX_CONTROL_FRAME. An entry has from 100 octets to tens of
thousands (a history of epochs, the resources of a commit)."""

MAX_PAGE_SCANNED = 10_000
"""Names that are compared for one page with a pattern, and with the rights of the client. The page ends there, also if
few or none of them are in it."""

MAX_CHANGES = 200_000
"""Resources of which the last change is kept, about 200 octets each: MAX_RESOURCES, and as many that were deleted."""

MAX_REQUESTS = 40_000
"""Requests that are not answered yet, about 2 KB each: they wait for the disk, or for changes. A socket may send any
number without an answer."""

MAX_WAITERS = 10_000
"""Describes that wait for changes at once; without the wait each client would poll."""

MAX_WAITING_NAMES = 400_000
"""Names in all waiting Describes together; each costs about 300 octets. A Describe by pattern has none."""

MAX_WAITING_PATTERNS = 1_000
"""Different patterns of all waiting Describes together. A group commit compares the name of its resource with each of
them: 0.1 µs for a result that is remembered."""

MAX_MATCHES_REMEMBERED = 200_000
"""Results of comparing one name with one pattern, about 150 octets each. Another comparison takes 10 µs."""

MAX_WAIT_S = 30.0
"""Longest wait of a Describe; shorter than the time-out of any client."""

MAX_WRITER_NAMES = 1_000_000
"""Writer names kept; the library generates one per writer, and each costs about 300 octets until it expires."""

WRITER_NAME_IDLE_S = 24 * 3600.0
"""Time after which an unused writer name is dropped together with its publishing numbers."""

NAMES_CHECK_S = 600.0
"""Interval of the check for such names."""

# --- the broker: leases and heartbeats ----------------------------------------------------------------------

HEARTBEAT_CHECK_S = 1.0
"""Interval of the heartbeat check, or a quarter of the heartbeat interval if that is shorter: the delay of a Ping."""

LEASE_UNBOUND_S = 60.0
"""How long a lease without a data flow is kept: long enough for a restart of the broker or the client."""

EXPIRY_CHECK_S = 5.0
"""Interval of the check for expired leases, sessions and stages."""

# --- the broker: contents in --------------------------------------------------------------------------------

INBOUND_OCTETS = 256 << 20
"""Contents taken in and not yet synced, over all resources. Above it contents are pushed back (Reject, recycle) and
not left unread, because Pings and Confirms share the socket. A part is left for other users (`mtl.shares`), whose
contents would otherwise come back for as long as one user sends faster than the disk."""

MAX_UNCONFIRMED = 1 << 20
"""Contents of one writing lease that are taken in and not confirmed. A resource that makes no progress holds back the
Confirms of a flow's other resources, and each costs about 200 octets meanwhile."""

GROUP_OCTETS = 32 << 20
"""Octets of one group commit of one log: large enough that the cost of the sync is negligible, small enough that a slow
disk confirms ten times a second."""

# --- the broker: contents out -------------------------------------------------------------------------------

WINDOW_CONTENTS = 1_000
"""A reader's window if it requests none (PROTOCOL.md 5.2)."""

WINDOW_OCTETS = 8 << 20
"""The same in stored octets."""

MAX_WINDOW_CONTENTS = 1_000_000
"""Largest granted window. The broker keeps about 100 octets for each unsettled content, or for each run of contents
sent in a row. It also bounds the list that a Confirm out of order has to split."""

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
"""The same for a reader that has not read anything for a while, so that the loop prepares fewer contents that are
not sent."""

BLOCKED_RETRY_SHARE_S = 0.0001
"""With many blocked readers the delay grows to this for each of them, so that their attempts stay below 10,000 a
second: a few percent of the loop's time."""

UNSENT_OCTETS = 1 << 30
"""Octets of contents that were handed to sockets and are not sent yet, over all readers: with INBOUND_OCTETS and the
caches well below the 4 GiB of the shipped unit. Above it readers wait. A single reader at full speed has 128 MiB at
most (PACKED_HWM)."""

UNSENT_ANSWER_OCTETS = 256 << 20
"""The same for replies and commands, so that readers of contents do not hold back replies. A reply that finds no room
is dropped; the client asks again."""

FANOUT_OCTETS = 256 << 20
"""Octets in the rings of all readers of the `test` profile together."""

FANOUT_RING_OCTETS = 16 << 20
"""Contents that wait for a slow reader of the `test` profile, each with `mtl.broker.reading.fanout.OVERHEAD`: a burst
of 100,000 small ones. The oldest are dropped and counted. A ring of 1,000 contents lost half of a burst of 5,000."""

FANOUT_RETRY_S = 0.02
"""Interval of the attempts to send from these rings."""

# --- the broker: groups, stages, retention ------------------------------------------------------------------

CURSOR_FLUSH_S = 0.1
"""Longest time until a moved cursor is durable (PROTOCOL.md 5.3)."""

MAX_CURSORS = 200_000
"""Cursors of a broker, about 1 KB each, until they or their resources are deleted: two groups for MAX_RESOURCES."""

MAX_QUEUES = 100_000
"""Queues of a broker, about 2 KB each, and a row that is written at most ten times a second."""

MAX_APPLICATIONS = 100_000
"""Applications whose last commit is kept, about 1 KB each: a hundred new queries a day for three years."""

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

DRAIN_S = 0.02
"""Seconds for which one socket is read before the others are served: a peer may make each message as costly as the
limits allow while the other sockets wait."""

SEND_BACKLOG = 10_000
"""Commands that wait for one peer's full queue. A peer with more of them does not read; its flow is ended."""

MAX_WAITING_COMMANDS = 400_000
"""Those of all peers together, about 300 octets each."""

MEMORY_RETURNED = 64 << 20
"""When the most unsent octets of some seconds are so much fewer than before, freed memory is returned to the system."""

# --- the broker: threads ------------------------------------------------------------------------------------

PREPARED = 64 << 10
"""Packs of at least this number of octets get their checksum from another thread, during the sync of earlier
groups. For smaller packs waking a thread costs as much as the checksum."""

LOOP_COMMIT = 64 << 10
"""Octets of a group that the idle loop may write and sync itself (`mtl.broker.runtime.workers`)."""

LOOP_COMMIT_S = 0.001
"""The loop does not write groups itself if a recent group took this long or none was written yet: a slow disk would
delay all other work."""

SWITCH_INTERVAL_S = 0.0002
"""sys.setswitchinterval of the broker: with a busy loop it allows 1,000 group commits a second, Python's default 70."""

STOP_S = 30.0
"""How long a stopping broker waits for its disk before it gives up."""
