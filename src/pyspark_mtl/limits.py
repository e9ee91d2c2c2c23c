"""The connector's bounds, each with its reason; see `mtl.limits`."""

from __future__ import annotations

LATEST_OFFSET_WAIT_MS = 250
"""How long an idle query's latestOffset waits for contents. With the default trigger Spark calls it every 11 ms
otherwise; a longer wait would only delay what else the trigger does."""

PACED_S = 0.1
"""Who asks again so long after the last answer takes its time by itself (Trigger.ProcessingTime, batches without rows)
and is answered at once. The default trigger asks 11 ms after an answer without news."""

NEWS_WAIT_S = 30.0
"""How long the broker keeps an idle query's question for news before it answers that there are none. A request costs
client and broker 2 ms of processor time, so that every few seconds would show beside what an idle trigger costs. As
long as a broker keeps one at all (mtl.limits.MAX_WAIT_S)."""

STOPPED_RETRY_S = 0.5
"""How long a query waits before it asks again for a resource whose log the broker cannot open: the broker itself tries
again after as long."""

MAX_OPEN_RESOURCES_PER_TASK = 100
"""Resources that one task of a sink may write to: each is a log of its stages, with files of its own in the broker."""

GATHERED_OCTETS = 8 << 20
"""Octets of rows that a task waits for before it sends them: a frame of Spark has 10,000, which make a small pack, or
eight smaller ones. What a pack costs by itself, in task, broker and reader, does not show beside some MiB."""

MAX_TRIGGER_DELAY_S = 15 * 60
"""Default of `maxTriggerDelay`, Kafka's own."""

LONGEST_WAIT_S = 366 * 86400.0
"""Of the options that are waits: more than a year is a mistyped unit."""

LONGEST_AGE_S = 100 * LONGEST_WAIT_S
"""Of `createRetainAge`. Contents are kept for years; no age at all keeps them for ever."""

MAX_PARTITIONS = 100_000
"""Tasks of one batch. More is a mistyped `maxRecordsPerPartition`; Spark's driver would choke on them."""

MAX_BODY_ROWS = 1_000_000
"""Rows of one typed body. Only an Arrow body has more than one, and one of nulls has any number in a few octets."""

MAX_BODY_OCTETS = 64 << 20
"""Octets of one Arrow body once it is decompressed and cast, and about what a task has of them at a time. Sixteen times
MAX_CONTENT: few rows compress better. An executor has a multiple of it for each task."""

ARROW_BODY = 1 << 20
"""Octets that a sink puts into one Arrow body: beyond, streams get no smaller per row. A quarter of MAX_CONTENT, for
rows differ in size, and a body is cut by their mean."""

FENCED_DEAD_LETTERS = 8
"""How often a task takes the writer of its dead letters back from another attempt at the same contents. Attempts run
two at a time (a speculated task, two actions of one foreachBatch), and each time one of them has written more."""

DEAD_LETTER_REASON = 500
"""Letters of a dead letter's reason that are kept: a property is a note, and some reasons quote the body."""

LAST_QUERIES = 1000
"""Queries whose last lag the listener keeps: more than a driver runs, so that one that starts them for ever does not
grow."""

LET_GO_S = 2.0
"""How long a reader process that ends waits for the broker to take back its holdings. Spark shows the error that ended
it only afterwards, and without an answer the holdings expire by themselves."""

TEST_HOOK_HOLD_S = 60
"""Longest hold of a test hook (pyspark_mtl.hooks), so that a forgotten one cannot hang a query for ever."""
