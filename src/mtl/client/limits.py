"""The bounds and the pace of the client. Units as in `mtl.limits`, which has the bounds that packages share."""

from __future__ import annotations

LOCAL_FILES = 2
"""Files of the broker that a reader keeps open: the current segment and the next one."""

READER_WINDOW_CONTENTS = 320_000
"""Default window of a packed reader: eight full packs, and as many of 10,000 contents as its queue takes
(PACKED_HWM). Whenever half of the window is consumed, three threads in two processes wake up, which costs as much
as reading a pack."""

READER_WINDOW = 32 << 20
"""The same window in octets: the memory that a slow reader needs. Packs that are sent as file name and offset need
none."""

PLAIN_WINDOW_CONTENTS = 20_000
"""Default window of a plain reader in contents. Its octets are those of a packed reader."""

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

TURN_MESSAGES = 1_000
"""Contents sent, and contents received, before other flows and timers are served: about two milliseconds of work,
and the queue of a plain socket. With 256 a reader took a fifth more processor time."""

QUIET_S = 2.0
"""Seconds without a Confirm after which a writer with unconfirmed contents checks its lease by a Ping."""

LINGER_S = 0.005
"""Seconds for which a packed writer waits for further contents before it sends a pack that is not full."""

PACK_TARGET = 256 << 10
"""Octets at which a packed writer sends its buffer at once. Above about 100 KiB larger packs are not cheaper."""

PACK_TARGET_CONTENTS = 2_000
"""The same limit in contents."""

LEAVE_S = 0.5
"""Seconds that the end of a block waits for the broker after an error in the block, Ctrl-C for example. A broker that
works answers in less; the lease at another one expires by itself."""
