"""The doors' bounds, each with its reason; see `mtl.limits`."""

from __future__ import annotations

from mtl.limits import MAX_CONTENT

DOOR_SESSIONS = 1_000
"""Default of the peers that one door serves at once; more are turned away. Some 10 KB each without subscriptions."""

DOOR_USERS = 200
"""Users that one door acts as at once, a session and some sockets each; the one that is idle longest makes room."""

DOOR_LOGINS = 8
"""HTTP Basic: passwords that one door has the broker check at once; each takes some milliseconds of a thread."""

DOOR_CHECK_S = 5.0
"""HTTP Basic: how long the broker may take for that; the WebSocket's handshake has WS_OPEN_S."""

DOOR_FAILED_LOGINS = 10
"""HTTP Basic: wrong passwords of one peer's address within DOOR_FAILED_S; then it is refused unseen until that is over,
as the broker does."""

DOOR_FAILED_LOGINS_ALL = 50
"""The same for all addresses together: half of what the broker takes from the door's address before it locks that out,
and the door with it."""

DOOR_FAILED_S = 60.0
"""The time of the two above, the broker's own."""

DOOR_SUBSCRIPTIONS = 2_000
"""Subscriptions of one door, over all its peers: each is a lease and two sockets of its process (MAX_SOCKETS)."""

DOOR_FAILURES = 20
"""Failed subscriptions of one peer's address that are logged at once: a client with all its resources misspelt."""

DOOR_FAILURES_PER_S = 0.1
"""The same in the long run: a client that tries again and again writes a line every 10 s."""

DOOR_INBOUND = 64 << 20
"""Contents that one door has taken in and the broker has not confirmed; above it the door reads no more from its
peers. A few times what a broker at full speed has under way."""

DOOR_WRITERS = 256
"""Resources that one door keeps a writer open for; another one takes a request more."""

DOOR_WRITER_OCTETS = 16 << 20
"""The window of one of them: no resource takes the whole of DOOR_INBOUND."""

DOOR_RUN_CONTENTS = 1_000
"""Contents that one peer's task hands on at once, in either direction, before others have their turn: some
milliseconds. What publishing or reading one costs by itself is shared by them."""

DOOR_RUN_OCTETS = 256 << 10
"""The same in octets; above some 100 KiB packs get no cheaper. One content may be larger."""

DOOR_READER_CONTENTS = 10_000
"""The window of one subscription of a door; one pack."""

DOOR_READER_OCTETS = 1 << 20
"""The same in stored octets. This is what a slow consumer costs a door, beside one pack and its transport's buffer."""

DOOR_ATTEMPT_S = 0.5
"""How long a door that starts tries to reach the broker before it looks whether it is to stop, and tries again."""

DOOR_STOP_S = 5.0
"""How long a stopping door waits for the broker's Confirms: they take milliseconds where there is a broker."""

TLS_OPEN_S = 10.0
"""How long a connection to a door on TCP may take for the handshake of TLS."""

WS_OPEN_S = 10.0
"""WebSocket: how long a connection may take for its handshake."""

WS_CLOSE_S = 2.0
"""WebSocket: how long the answer to a Close is waited for."""

WS_QUEUE = 1
"""WebSocket: messages of one connection that wait for their turn; then its socket is read no more. What one read of
the socket brings (256 KiB of asyncio) comes on top."""

WS_WRITE = 64 << 10
"""WebSocket: octets kept for a peer that reads slowly; then whatever sends to it waits."""

WS_PING_S = 20.0
"""WebSocket: a ping goes out after this, so that no proxy takes a quiet connection for a dead one; they wait for 60 s
or more."""

WS_SILENT_S = 600.0
"""WebSocket: a peer that does not answer a ping for so long is given up. Long, as one that has enough to do for now
does not read it either."""

WS_KEEPALIVE_S = 60
"""WebSocket: TCP asks after this whether the other machine is there, and again and again."""

MC0_HWM = 1_000
"""mc0: messages queued for one peer, libzmq's default. What does not fit waits in the broker's log."""

MC0_QUEUED = 4 << 20
"""mc0: octets of large messages (above 4 KiB) queued for one peer, as HWM counts messages of any size; one always fits.
"""

MC0_WAITING = 256
"""mc0: messages of one peer that libzmq keeps for us, as many as the broker's of plain contents. With 64 the door takes
a third more processor time for each, the broker more than twice as much."""

MC0_RETRY_S = 0.005
"""mc0: a peer whose queue is full is tried again after this; a ROUTER does not tell when there is room."""

MC0_STUCK_S = 60.0
"""mc0: a subscriber whose full queue takes nothing for so long is given up."""

MC0_FRAMES = 10_000
"""mc0: frames of one message; headers and positionals are lists made by hand."""

MC0_TTL_MS = 24 * 3600 * 1000
"""mc0: longest TTL; a day of silence is no liveness check."""

MC0_INBOX = 1_000
"""mc0: messages that are read at once (and BURST_BODIES octets), by the door and by the client. What came of one peer
together is one turn of its task; with one turn waiting behind it the socket is read no more."""

MC0_BACKLOG = 10_000
"""mc0: answers that wait for one peer's full queue; one that lets more pile up reads nothing and is let go."""

MC0_ABSENT = 1_000
"""mc0: identities that were given up and did not come back, up to 255 octets each; as many as DOOR_SESSIONS. A peer
whose identity is forgotten is not told that its subscriptions are gone."""

MC0_CLIENT_WINDOW = 1_000
"""mc0, the client: PUTs that are not answered yet, and contents that are not read yet."""

MC0_TOPICS = 1_000
"""mc0: subscriptions of one peer."""

MM2_TEXT = 64 << 10
"""micromessage: payload of a COMMAND, EXTENSION or ERROR frame, octets; they are text, as a field table is at most."""

MM2_FRAGMENT = 1 << 20
"""micromessage: payload of one MESSAGE frame that we send; what is larger is split (MM2-41). Up to MAX_CONTENT
is read."""

MM2_WINDOW = 1_000
"""micromessage: the most messages without acknowledgement, in either direction, that we agree to; what one pack holds
is of the same order."""

MM2_EXTENSIONS = 64
"""micromessage: extensions in one list; ids have one octet, and five exist."""

MM2_TERMS = 32
"""micromessage: terms of one filter; each is looked at for each message."""

MM2_SUBSCRIPTIONS = 1_000
"""micromessage: subscriptions of one peer."""

MM2_HANDSHAKE_S = 10.0
"""micromessage: how long a peer may take for its two steps of the handshake."""

MM2_READ = 64 << 10
"""micromessage: octets read at a time, and kept for a peer that reads slowly before its subscriptions wait."""

MM2_CLIENT_UNREAD = 1_000
"""micromessage, the client: contents of one reader that its application has not taken; then nothing more is read."""

RS_TEXT = 64 << 10
"""Reactive Streams: octets of a publisher's name, an error or a reason."""

RS_ELEMENT = MAX_CONTENT + 8
"""Reactive Streams: one element, also when it comes in parts: a content with its sequence before it."""

RS_PART = 64 << 10
"""Reactive Streams: a larger element is split into parts of this, so that it holds up other streams no longer than
their transport's buffer does."""

RS_JOINED = 4 * RS_ELEMENT
"""Reactive Streams: parts of one connection that wait for their last ones. We send one large element after the other,
so that a peer with the same limit never meets it."""

RS_PACKED = 10_000
"""Reactive Streams: elements of one onNextPacked; each becomes an object."""

RS_STREAMS = 1_000
"""Reactive Streams: streams of one connection in each direction, and extensions that a hello may name."""

RS_DEMAND = 1_000
"""Reactive Streams: elements that we ask a producer for beyond what is confirmed."""

RS_CLIENT_WINDOW = 256
"""Reactive Streams, the client: default of one reader's demand, renewed by halves: this many elements of whatever size
are its memory."""

RS_BACKLOG = 1 << 20
"""Reactive Streams: octets that wait for a peer to read; above it nothing is read from the peer either."""

RS_HELLO_S = 10.0
"""Reactive Streams: a connection that says no hello for so long is closed."""

RS_GOODBYE_S = 2.0
"""Reactive Streams: how long the answer to our goodbye is waited for."""

MBWS_ENTRIES = 1_000
"""MBWS: addresses of one message, and properties: each is an object, and each address an append."""

MBWS_ALIKE = 1 << 10
"""MBWS: octets before the body of a message that are remembered, as the next one is likely to begin with the same."""

MBWS_HEADER = 64 << 10
"""MBWS: octets of a message beyond a body of MAX_CONTENT. Properties become a field table, which has no room for
more."""

MBWS_WINDOW = 1_000
"""MBWS: messages to one client that it has not acknowledged; about what one pack holds. The door keeps their places in
the log, some 100 octets each, and no bodies."""

MBWS_RETAINED = 1_000
"""MBWS: failed connections that wait for their clients; the oldest is forgotten for another one. Up to some 100 KB
each when its window is full, 2 KB when its client is quick; as many as DOOR_SESSIONS."""

MBWS_RETAINED_S = 600.0
"""MBWS: how long. A laptop's sleep is longer, the change of a network is not; the contents are in the log anyway."""

MBWS_PEERS = 16
"""MBWS: other brokers that one door sends to."""

MBWS_PEER_RESOURCES = 100
"""MBWS: resources of which it sends contents to one of them: each takes a reader and a WebSocket."""

MBWS_PEER_CONTENTS = 1_000
"""MBWS: contents that are sent to a peer before its acknowledgement is waited for and the position moves; as many as
one connection has under way (MBWS_CLIENT_WINDOW). So many may be repeated when this door is killed."""

MBWS_PEER_PATIENCE_S = 60.0
"""MBWS: how long a door tries to reach a peer, or to recover a connection to it, before it says so and begins anew."""

MBWS_PEER_AGAIN_S = 5.0
"""MBWS: how long a door waits before it tries a peer again that could not be reached, or refused."""

MBWS_KEPT_S = 3600.0
"""MBWS: age at which contents of `mbws.connections` go, where a door made it: well after MBWS_RETAINED_S, so that no
connection that waits is gone before its time is over."""

MBWS_CONNECT_S = 10.0
"""MBWS: how long a client may take to say Connect."""

MBWS_ADDRESSES = 100
"""MBWS: addresses that one client reads; each is a subscription."""

MBWS_ACK_S = 0.05
"""MBWS, the client: an acknowledgement waits so long for more to acknowledge with it."""

MBWS_CLIENT_WINDOW = 1_000
"""MBWS, the client: messages that the door has not acknowledged, and messages that are not read yet."""

MBWS_CLIENT_OCTETS = 16 << 20
"""MBWS, the client: octets of the former; they are kept to be sent again."""
