"""The connector's bounds, each with its reason; see `mtl.limits`."""

from __future__ import annotations

LATEST_OFFSET_WAIT_MS = 250
"""Milliseconds for which an idle query's latestOffset waits for contents. Without the wait, Spark's default trigger
calls it every 11 ms; a longer wait would delay the trigger's other work."""

PACED_S = 0.1
"""Seconds. A query that calls at least this time after the last answer paces itself (Trigger.ProcessingTime,
batches without rows) and gets an answer without a wait. The default trigger calls 11 ms after an answer without
news."""

WATCH_WAIT_S = 30.0
"""Seconds for which the broker holds an idle query's watch request before it answers "no change": the longest time
that it accepts (mtl.limits.MAX_WAIT_S). A request costs client and broker 2 ms of processor time, which is much for
an idle query if repeated every few seconds."""

PARALLEL_REQUESTS = 8
"""Requests for single resources that the driver of a query has with the broker at a time, each on a session of its own
(mtl.client.sessions). The broker stores cursors of requests that come together in one transaction."""

STOPPED_RETRY_S = 0.5
"""Seconds between requests for a resource whose log the broker cannot open. The broker tries to open it at the same
interval."""

MAX_OPEN_RESOURCES_PER_TASK = 100
"""Resources that one task of a sink may write to. For each of them the stage has a log, with files in the
broker."""

GATHERED_OCTETS = 8 << 20
"""Octets of rows that a task gathers before it sends them. One Spark frame (10,000 rows) makes one small pack, or
several. With several MiB per pack, the fixed cost of a pack in task, broker and reader is negligible."""

MAX_TRIGGER_DELAY_S = 15 * 60
"""Default of `maxTriggerDelay`, Kafka's own."""

LONGEST_WAIT_S = 366 * 86400.0
"""Upper bound in seconds of options that are waits. A longer time than a year is considered a mistyped unit."""

MAX_PARTITIONS = 100_000
"""Most tasks of one batch. More tasks come from a mistyped `maxRecordsPerPartition`, and would overload Spark's
driver."""

BUNDLED_FROM = 200
"""Spark partitions of one batch from which on ranges of small resources share a partition: as many as Spark uses for a
shuffle by default. 10,000 resources with a content each would otherwise be 10,000 tasks of 10 ms."""

MAX_NAMES = 100_000
"""Names in one option: the most resources of a broker."""

MAX_BODY_ROWS = 1_000_000
"""Most rows of one typed body. Only Arrow bodies have several rows, and a few octets can encode any number of null
rows."""

MAX_BODY_OCTETS = 64 << 20
"""Octets of one Arrow body after decompression and cast, and about the octets of bodies that a task decodes at a time.
Sixteen times MAX_CONTENT: rows rarely compress better. An executor has a multiple of this for each task."""

ARROW_BODY = 1 << 20
"""Octets that a sink puts into one Arrow body: larger bodies take no fewer octets per row. A quarter of MAX_CONTENT:
rows are divided by their mean size, so a body with large rows may exceed this."""

FENCED_DEAD_LETTERS = 8
"""Number of retries of a task whose dead-letter writer was fenced by another attempt at the same contents. Two
attempts may run at a time (a speculated task, two actions of one foreachBatch). Each takeover follows progress of
one of them."""

DEAD_LETTER_REASON = 500
"""Characters of a dead letter's reason that are kept: properties are short, and some reasons quote the body."""

DEAD_LETTER_PATH = 16
"""Resources of a dead letter's path that are kept: a chain of so many reads, each of the dead letters of the one
before, is seen to come back to its beginning. Their names have 4 KiB at most, a small part of the properties."""

LAST_QUERIES = 1000
"""Queries whose last lag the listener keeps: more than a driver runs at a time. Bounds the memory of a driver that
starts queries all the time."""

RELEASE_S = 2.0
"""Seconds for which a reader process that ends waits for the broker to release its holdings. Spark shows the error
that ended the process only after this wait. Holdings that are not released expire."""
