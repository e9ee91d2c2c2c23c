"""The doors' bounds, each with its reason; see `mtl.limits`."""

from __future__ import annotations

from mtl.limits import MAX_CONTENT

DOOR_SESSIONS = 1_000
"""Default number of peers that one door serves at once (`max-sessions`); further ones are refused. A peer without
subscriptions needs about 10 KB. The share of a user is `quotas.sessions`."""

DOOR_PENDING = 1_000
"""Connections to one door before their log-in, over all addresses; above it the address with the most loses its oldest
one. As many as DOOR_SESSIONS, because all peers reconnect at once after a restart. TLS needs about 50 KB for each."""

DOOR_PENDING_ADDRESS = 250
"""The same for each address; above it its oldest one is closed. A peer needs milliseconds to log in, so only silent
ones are closed, also where many peers are behind one address."""

DOOR_LOGIN_S = 5.0
"""How long a peer may take from the begin of its connection until it has logged in: the handshake of TLS, and the first
message of the protocol. Some round trips, also by satellite; the door's own time for a password check is DOOR_CHECK_S.
"""

DOOR_USERS = 200
"""Users that one door acts as at once, a session and some sockets each; above it the longest idle one is closed."""

DOOR_LOGINS = 8
"""HTTP Basic: password checks at the broker at once per door; each takes about 15 ms of the event loop
(SCRAM_ITERATIONS)."""

DOOR_CHECK_S = 5.0
"""HTTP Basic: deadline of a password check. The WebSocket's handshake takes DOOR_LOGIN_S more (WS_OPEN_S)."""

DOOR_LOGINS_ADDRESS = 2
"""The same for each address of peers, so that a guesser leaves places for the peers at other addresses."""

DOOR_SUBSCRIPTIONS = 2_000
"""Subscriptions of one door, over all its peers: each is a lease and two sockets of its process (MAX_SOCKETS). The
share of a user is `quotas.subscriptions`."""

DOOR_FAILURES = 20
"""Burst of logged failed subscriptions per user and peer address: enough for a client with all its resources
misspelt."""

DOOR_FAILURES_PER_S = 0.1
"""The sustained rate of the same: a client that keeps trying causes a line every 10 s."""

DOOR_INBOUND = 64 << 20
"""Unconfirmed octets of contents of one door; above it the door stops reading from its peers. A few times as much as a
broker at full speed has under way, also a quarter of it, which is the share of a user (`quotas.inbound-octets`)."""

DOOR_WRITERS = 256
"""Resources that one door keeps a writer open for; any other resource costs an additional request."""

DOOR_WRITER_OCTETS = 16 << 20
"""The window of one of these writers, so that one resource cannot use up DOOR_INBOUND."""

DOOR_RUN_CONTENTS = 1_000
"""Contents that one peer's task handles at once, in either direction, before other tasks run: some milliseconds.
Batching shares the fixed cost of publishing or reading among them."""

DOOR_RUN_OCTETS = 256 << 10
"""The same in octets. Packs above about 100 KiB are not cheaper. A single content may be larger."""

DOOR_READER_CONTENTS = 10_000
"""The window of one subscription of a door; one pack."""

DOOR_READER_OCTETS = 1 << 20
"""The same in stored octets: a door's memory per slow consumer, in addition to one pack and the transport's buffer. The
windows of a user with many subscriptions are smaller: all of them have a quarter of DOOR_UNSENT."""

DOOR_READER_LEAST = 64 << 10
"""The smallest such window: some hundreds of small contents, or a single one of any size."""

DOOR_UNSENT = 512 << 20
"""Octets of contents that subscriptions have taken and their peers have not received, of all peers; an owner may have a
quarter. Above it the subscription that has waited longest is ended. A quarter is a run of DOOR_RUN_OCTETS for each of
an owner's subscriptions (a quarter of DOOR_SUBSCRIPTIONS), or 32 of the largest contents."""

DOOR_ARRIVING = 256 << 20
"""Octets that are reserved for large messages that have not arrived as a whole or are not processed, of all peers; an
owner may have a quarter: 14 of the largest messages at a time."""

DOOR_ARRIVING_STEP = MAX_CONTENT + (512 << 10)
"""What one connection reserves at a time: the largest message of every protocol, and one read of a socket (256 KiB in
asyncio)."""

DOOR_ARRIVING_FREE = 512 << 10
"""Octets of messages of one connection without a reservation: those of two reads of a socket, so that no peer with
small messages needs one. The number of connections bounds their sum."""

DOOR_STALL_S = 60.0
"""How long nothing may arrive of a message that has a reservation, and how long a connection with a reservation waits
for another one; then the connection ends. As long as TCP repeats a lost packet on a bad line."""

DOOR_ATTEMPT_S = 0.5
"""Seconds for which a starting door tries to reach the broker, and between two attempts: it reports a broker that does
not answer after the first one."""

DOOR_STOP_S = 5.0
"""Seconds for which a stopping door waits for the broker's Confirms: they take milliseconds while the broker
runs."""

DOOR_INTERRUPT_S = 1.0
"""The same after Ctrl-C: a command ends within two seconds, also if the broker does not answer."""

WS_OPEN_S = DOOR_LOGIN_S + DOOR_CHECK_S
"""WebSocket: how long a connection may take for its handshake, with the check of its password."""

WS_CLOSE_S = 2.0
"""WebSocket: how long to wait for the answer to a Close."""

WS_QUEUE = 1
"""WebSocket: queued received messages of one connection; above it its socket is not read. One read of the socket
(256 KiB in asyncio) can exceed it."""

WS_FRAGMENTS = 4096
"""WebSocket: fragments of one message; each is an object, also an empty one."""

WS_WRITE = 64 << 10
"""WebSocket: octets buffered for a peer that reads slowly; above it senders wait."""

WS_PING_S = 20.0
"""WebSocket: interval of pings, so that proxies do not close a silent connection; proxies wait for 60 s or more."""

WS_SILENT_S = 600.0
"""WebSocket: how long a peer may take to answer a ping before its connection is closed. The time is long because a
busy peer does not read the ping either."""

WS_KEEPALIVE_S = 60
"""WebSocket: TCP keepalive, idle time before the first probe and interval of the next ones."""

MC0_HWM = 1_000
"""mc0: messages queued for one peer, libzmq's default. Further contents wait in the broker's log."""

MC0_QUEUED = 4 << 20
"""mc0: octets queued for one peer, as HWM counts messages of any size; one always fits."""

MC0_UNSENT = 256 << 20
"""mc0: unsent octets of all peers together."""

MC0_WAITING = 256
"""mc0: received messages of one peer in libzmq's queue, as many as the broker's for plain contents. With 64 a message
costs the door a third more processor time, and the broker more than twice as much."""

MC0_RETRY_S = 0.005
"""mc0: retry interval for a peer whose queue is full; a ROUTER does not signal when there is room."""

MC0_STUCK_S = 60.0
"""mc0: how long a subscriber's queue may stay full before the subscriber is disconnected."""

MC0_FRAMES = 10_000
"""mc0: frames of one message; lists of headers and positionals are written by hand, so they are short."""

MC0_TTL_MS = 24 * 3600 * 1000
"""mc0: longest TTL, one day; a longer one would be useless as a liveness check."""

MC0_INBOX = 1_000
"""mc0: messages that are read at once (and BURST_BODIES octets), by the door and by the client. One peer's messages of
one read are one turn of its task; with a second turn waiting the socket is not read."""

MC0_UNHANDLED = 16 << 20
"""mc0: octets of messages that were read and wait for their turn, of all peers; an owner may have a quarter. One socket
serves all peers, so the messages of a peer that waits must not stay in it. A quarter holds the largest message."""

MC0_STALL_S = 1.0
"""mc0: how long the door waits for a peer whose owner has its share of MC0_UNHANDLED, in which it reads from no peer;
then the peer is disconnected. A broker confirms contents within milliseconds, a slow disk within some tenths."""

MC0_REFUSED_S = 1.0
"""mc0: how long a refused peer keeps its connection: until it has read the ERROR."""

MC0_BACKLOG = 4 << 20
"""mc0: octets of answers that wait for one peer's full queue, each with ARRIVAL_OVERHEAD: about 8,000 short ones, but
an answer repeats the ID of its request, which may have 64 KiB. Above it the peer does not read and is disconnected."""

MC0_ABSENT = 1_000
"""mc0: remembered identities of disconnected silent peers, up to 255 octets each; as many as DOOR_SESSIONS, a quarter
for each user. A peer whose identity is forgotten gets no ERROR about its lost subscriptions when it returns."""

MC0_CLIENT_WINDOW = 1_000
"""mc0, the client: unanswered PUTs, and unread contents."""

MC0_TOPICS = 1_000
"""mc0: subscriptions of one peer."""

MM2_TEXT = 64 << 10
"""micromessage: payload of a COMMAND, EXTENSION or ERROR frame, octets; text, limited like a field table."""

MM2_FRAGMENT = 1 << 20
"""micromessage: payload of one sent MESSAGE frame; a larger one is split (MM2-41). Received ones may have
MAX_CONTENT."""

MM2_WINDOW = 1_000
"""micromessage: largest window of unacknowledged messages, in either direction, in the negotiation; one pack holds a
number of the same order."""

MM2_EXTENSIONS = 64
"""micromessage: extensions in one list; ids have one octet, and there are five extensions."""

MM2_TERMS = 32
"""micromessage: terms of one filter; each is evaluated for each message."""

MM2_SUBSCRIPTIONS = 1_000
"""micromessage: subscriptions of one peer."""

MM2_HANDSHAKE_S = DOOR_LOGIN_S
"""micromessage: how long a peer may take for its two steps of the handshake."""

MM2_READ = 64 << 10
"""micromessage: octets per read, and octets buffered for a slow peer before its subscriptions wait."""

MM2_CLIENT_UNREAD = 1_000
"""micromessage, the client: unread contents of one reader; above it the socket is not read."""

RS_TEXT = 64 << 10
"""Reactive Streams: octets of a publisher's name, an error or a reason."""

RS_ELEMENT = MAX_CONTENT + 8
"""Reactive Streams: octets of one element, also one in parts: a content after its sequence."""

RS_PART = 64 << 10
"""Reactive Streams: a larger element is split into parts of this size, so that it delays other streams no longer than
the transport's buffer does."""

RS_JOINED = 4 * RS_ELEMENT
"""Reactive Streams: incomplete elements of one connection. We send large elements one after the other, so a peer with
the same limit never reaches it."""

RS_PACKED = 10_000
"""Reactive Streams: elements of one onNextPacked; each becomes an object."""

RS_STREAMS = 1_000
"""Reactive Streams: streams of one connection in each direction, and extensions that a hello may name."""

RS_DEMAND = 1_000
"""Reactive Streams: demand for a producer's elements beyond the confirmed ones."""

RS_CLIENT_WINDOW = 256
"""Reactive Streams, the client: default of one reader's demand, renewed by halves. The reader buffers at most this many
elements, of any size."""

RS_BACKLOG = 1 << 20
"""Reactive Streams: octets buffered for a slow peer; above it the peer's socket is not read either."""

RS_HELLO_S = DOOR_LOGIN_S
"""Reactive Streams: deadline for a connection's hello; then it is closed."""

RS_GOODBYE_S = 2.0
"""Reactive Streams: how long to wait for the answer to our goodbye."""

MBWS_ENTRIES = 1_000
"""MBWS: addresses of one message, and properties: each is an object, and each address an append."""

MBWS_ALIKE = 1 << 10
"""MBWS: octets before the body of a message that are cached, as the next message is likely to begin with the same."""

MBWS_HEADER = 64 << 10
"""MBWS: octets of a message in addition to a body of MAX_CONTENT. Properties become a field table, which is limited to
this size."""

MBWS_WINDOW = 1_000
"""MBWS: unacknowledged messages to one client; about the number in one pack. The door keeps their places in the log,
about 100 octets each, and no bodies."""

MBWS_RETAINED = 1_000
"""MBWS: failed connections that wait for their clients; above it the oldest is forgotten, and of one user above a
quarter its oldest. About 100 KB each with a full window, 2 KB with a quick client; as many as DOOR_SESSIONS."""

MBWS_RETAINED_S = 600.0
"""MBWS: how long a failed connection waits. It covers a change of network, but not the sleep of a laptop; the contents
are in the log in any case."""

MBWS_PEERS = 16
"""MBWS: other brokers that one door sends to."""

MBWS_PEER_RESOURCES = 100
"""MBWS: resources that one door sends to one broker: each takes a reader and a WebSocket."""

MBWS_PEER_CONTENTS = 1_000
"""MBWS: contents that are sent to a peer before the door waits for the acknowledgement and moves the position; as many
as one connection has under way (MBWS_CLIENT_WINDOW). At most this many are repeated when this door is killed."""

MBWS_PEER_PATIENCE_S = 60.0
"""MBWS: how long a door tries to reach a peer, or to recover a connection to it, before it logs that and restarts."""

MBWS_PEER_AGAIN_S = 5.0
"""MBWS: how long a door waits before it retries a peer that was unreachable or refused it."""

MBWS_KEPT_S = 3600.0
"""MBWS: retention age of `mbws.connections`, if a door created it: well above MBWS_RETAINED_S, so that no waiting
connection is removed before its time is over."""

MBWS_CONNECT_S = DOOR_LOGIN_S
"""MBWS: how long a client may take to send Connect, after its log-in."""

MBWS_ADDRESSES = 100
"""MBWS: addresses that one client reads; each is a subscription."""

MBWS_ACK_S = 0.05
"""MBWS, the client: delay of an acknowledgement, so that it covers further messages."""

MBWS_CLIENT_WINDOW = 1_000
"""MBWS, the client: unacknowledged messages to the door, and unread messages from it."""

MBWS_CLIENT_OCTETS = 16 << 20
"""MBWS, the client: octets of the unacknowledged messages, which are kept for a repetition."""
