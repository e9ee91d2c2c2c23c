"""The bounds of queues (PROTOCOL.md 6), each with its reason, as in `limits`."""

from __future__ import annotations

DEFAULT_QUEUE = "default"
"""The queue of a consumer that does not name one."""

QUEUE_TICK_S = 0.1
"""Seconds between two checks of queues: settlements are written, backoffs end, dead letters are moved. After a crash
of the broker contents that were settled since the last check are delivered again."""

QUEUE_RANGES = 10_000
"""Most ranges of settled contents above a queue's low-water mark. They are written with every change, 20 octets
each. A queue with this number delivers no new contents until its oldest ones are settled."""

QUEUE_RETURNED = 10_000
"""Most contents that came back and wait for a consumer or for the end of a backoff. A queue with this number
delivers no new contents."""

QUEUE_OUTSTANDING = 100_000
"""Most contents of a queue that are with its consumers or on their way to the dead letters, about 200 octets each.
A queue with this number delivers no new contents."""

QUEUE_AHEAD = 1_000
"""Contents that a queue records as possibly delivered before it delivers the first of them. So contents that were
delivered before a crash of the broker are not delivered again without a mark."""

QUEUE_LOOK = 256
"""Most returned contents that are searched for one that a consumer did not send back itself."""

MAX_QUEUE_WINDOW_CONTENTS = 10_000
"""Largest window of a consumer, in contents: about a tenth of a second's work. A larger window would only delay the
other consumers."""

QUEUE_BACKOFF_S = 0.1
QUEUE_BACKOFF_TOP_S = 30.0
"""Seconds before a content that was rejected with recycle is delivered again: the first value, doubled each time,
up to the second value."""

QUEUE_DELIVERIES = 10
"""Default number of deliveries after which a content becomes a dead letter. Its backoffs then add up to a
minute."""

QUEUE_BURY = 100
"""Most dead letters that are appended for one queue at a check, because each is read from the log."""

DEAD_LETTER_CHAIN = 100
"""Most dead-letter resources, each that of the one before, that Resource.Create follows to see whether they come back
to the new resource. People make chains of two or three."""
