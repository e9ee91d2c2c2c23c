"""The bounds of queues (PROTOCOL.md 6), each with its reason, as in `limits`."""

from __future__ import annotations

DEFAULT_QUEUE = "default"
"""The queue of a resource that a consumer means who names none."""

MAX_QUEUES = 100_000
"""Queues of a broker; each costs some 2 KB of memory, and a row that is written at most ten times a second."""

QUEUE_TICK_S = 0.1
"""How often queues are looked at: what was settled is written, backoffs end, dead letters are moved. A crash of the
broker delivers again what was settled since the last look."""

QUEUE_RANGES = 10_000
"""Ranges of settled contents above a queue's low-water mark. They are written with every change, 20 octets each; a
queue with more delivers nothing new until the oldest contents are settled."""

QUEUE_RETURNED = 10_000
"""Contents that came back and wait for a consumer or the end of a backoff. With more, nothing new is delivered."""

QUEUE_OUTSTANDING = 100_000
"""Contents of a queue that are with its consumers or on their way to the dead letters, some 200 octets each. With more,
nothing new is delivered."""

QUEUE_AHEAD = 1_000
"""A queue writes down that it may have delivered so many contents before it delivers the first of them: what was
delivered before a crash of the broker must not come again without a mark."""

QUEUE_LOOK = 256
"""How many of the contents that came back are looked at for one that is not to avoid the consumer at hand."""

MAX_QUEUE_WINDOW_CONTENTS = 10_000
"""Largest window granted to a consumer: more than a tenth of a second's work only delays the others."""

QUEUE_BACKOFF_S = 0.1
QUEUE_BACKOFF_TOP_S = 30.0
"""Pause before a content that was rejected with recycle is delivered again; doubles with each, up to the second one."""

QUEUE_DELIVERIES = 10
"""Deliveries after which a content goes to the dead letters, where the resource does not say another number. By then
its backoffs add up to a minute."""

MAX_QUEUE_DELIVERIES = 1_000_000
"""Largest such number; at the longest backoff that is a year."""

QUEUE_BURY = 100
"""Dead letters that are appended for one queue at a look: each is read from the log by the loop."""
