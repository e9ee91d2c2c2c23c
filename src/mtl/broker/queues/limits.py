"""The bounds of queues (PROTOCOL.md 6), each with its reason, as in `limits`."""

from __future__ import annotations

DEFAULT_QUEUE = "default"
"""The queue of a consumer that names none."""

MAX_QUEUES = 100_000
"""Queues of a broker; each costs some 2 KB of memory, and a row that is written at most ten times a second."""

QUEUE_TICK_S = 0.1
"""Seconds between two checks of queues: settlements are written, backoffs end, dead letters are moved. After a crash
of the broker contents that were settled since the last check are delivered again."""

QUEUE_RANGES = 10_000
"""Most ranges of settled contents above a queue's low-water mark. They are written with every change, 20 octets each. A
queue with more delivers nothing new until its oldest contents are settled."""

QUEUE_RETURNED = 10_000
"""Most contents that came back and wait for a consumer or the end of a backoff. With more, nothing new is delivered."""

QUEUE_OUTSTANDING = 100_000
"""Most contents of a queue that are with its consumers or on their way to the dead letters, some 200 octets each. With
more, nothing new is delivered."""

QUEUE_AHEAD = 1_000
"""Contents that a queue records as perhaps delivered before it delivers the first of them: contents that were delivered
before a crash of the broker must not be delivered again without a mark."""

QUEUE_LOOK = 256
"""Most returned contents that are searched for one that the consumer at hand did not send back."""

MAX_QUEUE_WINDOW_CONTENTS = 10_000
"""Largest window of a consumer, in contents: more than a tenth of a second's work only delays the other consumers."""

QUEUE_BACKOFF_S = 0.1
QUEUE_BACKOFF_TOP_S = 30.0
"""Seconds before a content that was rejected with recycle is delivered again; doubled each time, up to the second."""

QUEUE_DELIVERIES = 10
"""Deliveries after which a content goes to the dead letters, by default. Its backoffs then add up to a minute."""

MAX_QUEUE_DELIVERIES = 1_000_000
"""Largest configurable number of deliveries; at the longest backoff they take a year."""

QUEUE_BURY = 100
"""Most dead letters appended for one queue at a check: the loop reads each from the log."""
