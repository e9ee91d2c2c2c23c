"""Every option of `format("mtl")` in one table: its name, where it has a meaning, how it is read, its default. Pure.

docs/reference/options.md has a table that is made of it (`scripts/docs`). What the options mean together is in
pyspark_mtl.options.settings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any

from mtl.limits import REQUEST_TIMEOUT_S, RETRY_DEADLINE_S
from pyspark_mtl.limits import MAX_TRIGGER_DELAY_S
from pyspark_mtl.options import kinds


class Use(Flag):
    """Where an option has a meaning."""

    STREAM_READ = auto()
    BATCH_READ = auto()
    STREAM_WRITE = auto()
    BATCH_WRITE = auto()
    READ = STREAM_READ | BATCH_READ
    WRITE = STREAM_WRITE | BATCH_WRITE
    ALL = READ | WRITE

    @property
    def words(self) -> str:
        """For people: "a streaming read"."""
        return _USES[self]


_USES = {
    Use.STREAM_READ: "a streaming read",
    Use.BATCH_READ: "a batch read",
    Use.STREAM_WRITE: "a streaming write",
    Use.BATCH_WRITE: "a batch write",
}


@dataclass(frozen=True)
class Option:
    """A row of the table. `default` is what an absent option means; text where it depends on others."""

    name: str
    use: Use
    parse: Callable[[str], Any] = field(repr=False)
    default: object
    meaning: str


OPTIONS: tuple[Option, ...] = (
    # --- the broker -----------------------------------------------------------------------------------------
    Option("endpoint", Use.ALL, kinds.endpoint, "tcp://127.0.0.1:5975", "the broker's control endpoint"),
    Option("virtualHost", Use.ALL, kinds.name, "/", "the broker's namespace of resources"),
    Option(
        "requestTimeout",
        Use.ALL,
        kinds.duration,
        REQUEST_TIMEOUT_S,
        "how long one attempt of a request waits for its answer",
    ),
    Option(
        "retryDeadline",
        Use.ALL,
        kinds.duration,
        RETRY_DEADLINE_S,
        "how long a request, a read or a commit is tried again, reconnecting, before it is an error",
    ),
    # --- who we are there, and encryption -------------------------------------------------------------------
    Option("user", Use.ALL, kinds.text, None, "log in as this user"),
    Option(
        "password",
        Use.ALL,
        kinds.secret,
        None,
        "its password; better where only those see it who need it: the next two",
    ),
    Option(
        "passwordFile",
        Use.ALL,
        kinds.text,
        None,
        "a file, on the driver and every executor, whose first line is the password",
    ),
    Option(
        "passwordEnv",
        Use.ALL,
        kinds.text,
        None,
        "an environment variable, of the driver and every executor, that is the password",
    ),
    Option(
        "saslMechanism",
        Use.ALL,
        kinds.text,
        None,
        "SCRAM-SHA-256, PLAIN, EXTERNAL or ANONYMOUS, and no other; else the strongest that the broker offers",
    ),
    Option(
        "curveServerKey",
        Use.ALL,
        kinds.text,
        None,
        "the broker's public CURVE key, or its file on the driver and every executor: encrypts everything",
    ),
    Option(
        "curveKeyFile",
        Use.ALL,
        kinds.text,
        None,
        "a private CURVE key, by its file on the driver and every executor, that the broker knows the user by",
    ),
    # --- what is read ---------------------------------------------------------------------------------------
    Option("resources", Use.READ, kinds.names, None, "names, separated by commas, or a JSON array of names"),
    Option(
        "resourcePattern",
        Use.READ,
        kinds.pattern,
        None,
        "a regular expression (RE2's) that matches whole names; what comes later is read from its beginning",
    ),
    Option(
        "includeProperties", Use.READ, kinds.boolean, False, "adds the column properties map<string,string>"
    ),
    Option(
        "failOnDataLoss",
        Use.ALL,
        kinds.boolean,
        True,
        "contents that retention removed, or a resource deleted or made again, end the query, as does a batch that was "
        "published with other counts (a checkpoint rolled back or copied); false: what is lost is logged and skipped",
    ),
    # --- where reading starts and ends ----------------------------------------------------------------------
    Option(
        "group",
        Use.READ,
        kinds.name,
        None,
        "a durable cursor in the broker that a stream's progress is confirmed to; it can be started from",
    ),
    Option(
        "startingOffsets",
        Use.READ,
        kinds.starting,
        "group where one is named, else latest for streams, earliest for batches",
        "earliest, latest, group, or JSON of resource to one of these or a sequence; new queries only",
    ),
    Option(
        "startingOffsetsByTimestamp",
        Use.READ,
        kinds.instants,
        None,
        "JSON of resource to starting time; wins over startingOffsets",
    ),
    Option(
        "startingTimestamp",
        Use.READ,
        kinds.instant,
        None,
        "start at the first content at or after this time; wins over the other starts",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        Use.READ,
        kinds.one_of("error", "latest"),
        "error",
        "what a starting time after all contents means",
    ),
    Option(
        "endingOffsets",
        Use.READ,
        kinds.ending,
        "latest for batches, no end for streams",
        "JSON of resource to the sequence to end before, or to latest; or latest for all; latest in batches only",
    ),
    Option(
        "endingOffsetsByTimestamp",
        Use.READ,
        kinds.instants,
        None,
        "JSON of resource to ending time; wins over endingOffsets",
    ),
    Option(
        "endingTimestamp",
        Use.READ,
        kinds.instant,
        None,
        "end before the first content at or after this time; wins over the other ends",
    ),
    # --- how much at a time ---------------------------------------------------------------------------------
    Option(
        "maxOffsetsPerTrigger", Use.STREAM_READ, kinds.count, None, "at most so many contents in one batch"
    ),
    Option(
        "maxBytesPerTrigger",
        Use.STREAM_READ,
        kinds.size,
        None,
        "at most so many stored octets in one batch, such as 64m, but at least one chunk",
    ),
    Option(
        "minOffsetsPerTrigger",
        Use.STREAM_READ,
        kinds.count,
        None,
        "wait until so many contents are there, at most for maxTriggerDelay",
    ),
    Option(
        "maxTriggerDelay",
        Use.STREAM_READ,
        kinds.duration,
        float(MAX_TRIGGER_DELAY_S),
        "longest time between two batches because of minOffsetsPerTrigger",
    ),
    Option("minPartitions", Use.READ, kinds.count, None, "split what is read into at least so many tasks"),
    Option(
        "maxRecordsPerPartition", Use.READ, kinds.count, None, "split what is read so that no task has more"
    ),
    Option(
        "confirmOn",
        Use.STREAM_READ,
        kinds.one_of("commit", "start"),
        "commit",
        "when progress is confirmed: on Spark's commit, or one trigger earlier (never with async progress tracking)",
    ),
    # --- what a body is -------------------------------------------------------------------------------------
    Option(
        "bodyFormat",
        Use.ALL,
        kinds.one_of("raw", "text", "json", "msgpack", "arrow"),
        "raw",
        "raw: octets; else the columns of a schema, as text, a JSON object, a MessagePack map or an Arrow IPC stream",
    ),
    Option(
        "includeMetadata",
        Use.ALL,
        kinds.boolean,
        False,
        "with a bodyFormat: columns resource, sequence, timestamp and properties are the content's, not the body's",
    ),
    Option(
        "mode",
        Use.READ,
        kinds.one_of("permissive", "dropmalformed", "failfast"),
        "permissive",
        "what a bad body becomes: a row of nulls, no row, or an error",
    ),
    Option(
        "columnNameOfCorruptRecord",
        Use.READ,
        kinds.text,
        "_corrupt_record",
        "the string column of the schema, if it has one, that bad bodies are put in",
    ),
    Option(
        "deadLetter",
        Use.READ,
        kinds.name,
        None,
        "a resource that every bad body is written to once, with where it came from; made if it does not exist",
    ),
    # --- what is written ------------------------------------------------------------------------------------
    Option(
        "resource", Use.WRITE, kinds.name, None, "where all rows go; without it, the column resource says"
    ),
    Option("createResource", Use.WRITE, kinds.boolean, False, "create a resource that does not exist"),
    Option(
        "createDurability",
        Use.WRITE,
        kinds.one_of("sync", "os"),
        "sync",
        "of a created resource: sync, on the disk before it is confirmed; os, with the operating system",
    ),
    Option(
        "createRetainBytes",
        Use.WRITE,
        kinds.size,
        None,
        "of a created resource: keep at most so much, such as 10g",
    ),
    Option(
        "createRetainAge",
        Use.WRITE,
        kinds.age,
        None,
        "of a created resource: keep contents for so long, such as 7d",
    ),
    Option(
        "createRetainContents",
        Use.WRITE,
        kinds.count,
        None,
        "of a created resource: keep at most so many contents",
    ),
    Option(
        "createRetainFor",
        Use.WRITE,
        kinds.names,
        None,
        "of a created resource: groups, separated by commas or a JSON array, whose unconfirmed contents are kept",
    ),
    Option(
        "createHardBytes",
        Use.WRITE,
        kinds.size,
        None,
        "of a created resource: the size at which contents go although a group needs them",
    ),
    Option(
        "overwriteMode",
        Use.WRITE,
        kinds.one_of("truncate"),
        None,
        "truncate: mode overwrite and output mode complete take the place of all that the resource held (with a column "
        "resource: each that rows go to), in one step; without it they are errors",
    ),
    Option(
        "deliveryGuarantee",
        Use.WRITE,
        kinds.one_of("exactly-once", "at-least-once"),
        "exactly-once",
        "exactly-once: a batch becomes visible as a whole, once; at-least-once: rows are appended as they come",
    ),
    Option(
        "txnAppId",
        Use.WRITE,
        kinds.name,
        "the query's id, behind `user` and a dot for a user; a fresh one for each batch write",
        "whose batches the broker remembers; a batch write with it needs txnVersion",
    ),
    Option("txnVersion", Use.BATCH_WRITE, kinds.version, None, "the number of this write of txnAppId"),
)

BY_KEY = {option.name.lower(): option for option in OPTIONS}

SPARKS_OWN = frozenset({
    # Spark adds these to the options of a source or sink, or takes them out of what the user gave for the query.
    "path",
    "paths",
    "checkpointlocation",
    "queryname",
    "outputmode",
    "asyncprogresstrackingenabled",
    "asyncprogresstrackingcheckpointintervalms",
    "asyncprogresstrackingoverridesinksupportcheck",
})  # fmt: skip
