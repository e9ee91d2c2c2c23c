"""The bounds of the sockets. Units as in `mtl.limits`, which has the bounds that packages share."""

from __future__ import annotations

SILENT_CONNECTIONS = 1_000
"""Connections on which nothing was received yet, at most a quarter of those that the process has descriptors for.
Above it the oldest one of the address with the most of them is ended. A client sends its first message within
milliseconds; a burst of so many at once, after a restart of the broker, is connected again by libzmq."""

OTHER_FILES = 64
"""File descriptors of a broker that neither connections nor log files take, beyond those that are open when it binds
its sockets: the sockets, their monitors and threads (30), and lists of directories."""

MAX_SOCKETS = 16_384
"""ZeroMQ sockets of a process: libzmq's default of 1,023 is about 250 readers."""

CONTROL_HWM = 1_000
"""Control messages queued per peer; a REQ has one."""

CONTROL_WAITING = 64
"""Requests of one peer queued for the broker; each may have MAX_CONTROL_FRAME. Then its TCP connection is not read."""

PACKED_HWM = 32
"""Packed Contents queued per peer: HWM counts messages, and 32 packs of 4 MiB are 128 MiB already."""

PLAIN_WAITING = 256
"""Plain contents of one peer queued for the broker. More do not make it faster."""

LINGER_MS = 500
"""Milliseconds for which a closing socket continues to send: long enough for a last reply on loopback."""

HANDSHAKE_MS = 10_000
"""Time for a peer's ZMTP handshake; then it is disconnected."""

ZMTP_HEARTBEAT_MS = 5_000
"""Interval of libzmq's own heartbeats: a peer that sends no Pings detects by them that the broker has ended."""

ZMTP_TIMEOUT_MS = 15_000
"""Time after which a peer that receives nothing disconnects, and after which the broker disconnects a peer that does
not acknowledge data at TCP level."""

DRAIN_MESSAGES = 4_000
"""Messages read from one socket before the other sockets are served. libzmq reads one message of each peer in turn, so
with many peers a batch still has several messages of each, which cost less together than one by one."""

BURST_HEADERS = 64 << 10
"""Octets of headers read in one batch. DRAIN_S is checked between batches; properties take up to 0.25 us per octet."""

BURST_BODIES = 4 << 20
"""Octets of bodies read in one batch. INBOUND_OCTETS is checked between batches; 1,000 bodies of MAX_CONTENT would be
4 GiB. One body is always read."""

VIEWED = 8 << 10
"""Packs from this number of octets on are received without copying. libzmq reads this much at a time, and smaller
messages share the memory of one such read: each of 400 octets that is kept kept 9 KiB."""

QUEUED_OCTETS = 16 << 20
"""Octets that libzmq holds for one peer of a socket with long queues (replies, plain contents): its high-water mark
counts messages, and a thousand of MAX_CONTENT would be 4 GiB. One message is always accepted."""

GROUP = 32 << 10
"""Octets of small messages that are counted together (`outgoing`). A tracker costs as much as twenty messages. Each
peer may have as much unsent without being counted: 320 MB for the connections of one address."""

MESSAGE_OVERHEAD = 256
"""Octets that libzmq takes for a message of three frames in addition to their octets, so that small ones count, too."""

PEERS_KNOWN = 1 << 16
"""Peers of one socket whose unsent octets are known, about 200 octets each; above it the oldest is forgotten. That a
peer has disconnected is found out only when the next message is sent to it."""

ZERO_COPY = 64 << 10
"""Frames from this size on are sent without copying (measured: below it the copy is cheaper)."""

DESCRIPTORS = 9
"""Descriptors of a client's lease at most: its control and its data socket, with the monitors, mailboxes and TCP
connections of both (measured with libzmq 4.3.5)."""
