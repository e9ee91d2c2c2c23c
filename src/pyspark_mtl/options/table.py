"""Every option of `format("mtl")` in one table: name, where it applies, parser, default, meaning. Pure.

docs/reference/options.md is generated from it (`scripts/docs`). pyspark_mtl.options.settings checks combinations of
options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any

from mtl.limits import DEFAULT_ENDPOINT, DEFAULT_VIRTUAL_HOST, REQUEST_TIMEOUT_S, RETRY_DEADLINE_S
from mtl.wire import quantities
from pyspark_mtl.limits import MAX_TRIGGER_DELAY_S
from pyspark_mtl.options import kinds


class Use(Flag):
    """The reads and writes that an option applies to."""

    STREAM_READ = auto()
    BATCH_READ = auto()
    STREAM_WRITE = auto()
    BATCH_WRITE = auto()
    READ = STREAM_READ | BATCH_READ
    WRITE = STREAM_WRITE | BATCH_WRITE
    ALL = READ | WRITE

    @property
    def words(self) -> str:
        """As in error messages: "a streaming read"."""
        return _USES[self]


_USES = {
    Use.STREAM_READ: "a streaming read",
    Use.BATCH_READ: "a batch read",
    Use.STREAM_WRITE: "a streaming write",
    Use.BATCH_WRITE: "a batch write",
}


@dataclass(frozen=True)
class Option:
    """A row of the table. `default` is the value of an absent option; a text if it depends on other options."""

    name: str
    use: Use
    parse: Callable[[str], Any] = field(repr=False)
    default: object
    meaning: str


# fmt: off
OPTIONS: tuple[Option, ...] = (
    # --- the broker -----------------------------------------------------------------------------------------
    Option("endpoint", Use.ALL, kinds.text, DEFAULT_ENDPOINT,
           "the broker's control endpoint"),
    Option("virtualHost", Use.ALL, kinds.name, DEFAULT_VIRTUAL_HOST,
           "the broker's namespace of resources"),
    Option("requestTimeout", Use.ALL, kinds.duration, REQUEST_TIMEOUT_S,
           "the time that one attempt of a request waits for its answer"),
    Option("retryDeadline", Use.ALL, kinds.duration, RETRY_DEADLINE_S,
           "the time for which a request, a read or a commit is retried, with reconnects, before it is an error"),
    # --- authentication and encryption ----------------------------------------------------------------------
    Option("user", Use.ALL, kinds.text, None,
           "log in as this user"),
    Option("password", Use.ALL, kinds.secret, None,
           "the user's password; passwordFile and passwordEnv are safer: they keep it out of plans and logs"),
    Option("passwordFile", Use.ALL, kinds.text, None,
           "a file, on the driver and every executor, whose first line is the password"),
    Option("passwordEnv", Use.ALL, kinds.text, None,
           "the name of an environment variable, on the driver and every executor, that holds the password"),
    Option("saslMechanism", Use.ALL, kinds.text, None,
           "the only mechanism to use: SCRAM-SHA-256, PLAIN, EXTERNAL or ANONYMOUS; else the broker's strongest"),
    Option("curveServerKey", Use.ALL, kinds.text, None,
           "the broker's public CURVE key, or a file with it on the driver and every executor; encrypts all traffic"),
    Option("curveKeyFile", Use.ALL, kinds.text, None,
           "a file with the user's private CURVE key, on the driver and every executor"),
    # --- what is read ---------------------------------------------------------------------------------------
    Option("resources", Use.READ, kinds.names, None,
           "names, separated by commas, or a JSON array of names"),
    Option("resourcePattern", Use.READ, kinds.pattern, None,
           "a regular expression (RE2) that matches whole names; later resources are read from their first content"),
    Option("formerPattern", Use.STREAM_READ, kinds.pattern, None,
           "a regular expression (RE2) that matches whole names of resources that the query has read and reads no more;"
           " without it, a checkpoint with resources that the options do not select is an error"),
    Option("includeProperties", Use.READ, kinds.boolean, False,
           "adds the column `properties map<string,string>`"),
    Option("failOnDataLoss", Use.ALL, kinds.boolean, True,
           "true: lost contents (removed by retention, or the resource was deleted or created again) end the query;"
           " so does a batch that was published with other rows (rolled back or copied checkpoint); false: losses"
           " are logged and skipped"),
    # --- where reading starts and ends ----------------------------------------------------------------------
    Option("group", Use.READ, kinds.name, None,
           "a durable cursor in the broker: a stream confirms its progress to it, and reads can start from it"),
    Option("startingOffsets", Use.READ, kinds.starting,
           "group if that option is given, else latest for streams, earliest for batches",
           "earliest, latest, group, or JSON from resource to one of these or to a sequence; for new queries only"),
    Option("startingOffsetsByTimestamp", Use.READ, kinds.instants, None,
           "JSON from resource to starting time; takes precedence over startingOffsets"),
    Option("startingTimestamp", Use.READ, kinds.instant, None,
           "start at the first content at or after this time; takes precedence over the other starts"),
    Option("startingOffsetsByTimestampStrategy", Use.READ, kinds.one_of("error", "latest"), "error",
           "for a starting time after all contents: error, or start at the end (latest)"),
    Option("endingOffsets", Use.READ, kinds.ending, "latest for batches, no end for streams",
           "JSON from resource to the first sequence that is not read, or to latest; or latest for all resources;"
           " latest is for batches only"),
    Option("endingOffsetsByTimestamp", Use.READ, kinds.instants, None,
           "JSON from resource to ending time; takes precedence over endingOffsets"),
    Option("endingTimestamp", Use.READ, kinds.instant, None,
           "end before the first content at or after this time; takes precedence over the other ends"),
    # --- how much at a time ---------------------------------------------------------------------------------
    Option("maxOffsetsPerTrigger", Use.STREAM_READ, kinds.count, None,
           "the most contents in one batch"),
    Option("maxBytesPerTrigger", Use.STREAM_READ, quantities.size, None,
           "the most stored octets in one batch, such as 64m; a batch has at least one chunk"),
    Option("minOffsetsPerTrigger", Use.STREAM_READ, kinds.count, None,
           "a batch waits until this number of contents is available, at most for maxTriggerDelay"),
    Option("maxTriggerDelay", Use.STREAM_READ, kinds.duration, float(MAX_TRIGGER_DELAY_S),
           "the longest time after a batch for which minOffsetsPerTrigger delays the next one"),
    Option("minPartitions", Use.READ, kinds.count, None,
           "the fewest tasks that a batch is split into"),
    Option("maxRecordsPerPartition", Use.READ, kinds.count, None,
           "the most contents of one task"),
    Option("confirmOn", Use.STREAM_READ, kinds.one_of("commit", "start"), "commit",
           "when progress is confirmed to the group: on Spark's commit, or (start) one trigger earlier, which is not"
           " possible with async progress tracking"),
    # --- bodies ---------------------------------------------------------------------------------------------
    Option("bodyFormat", Use.ALL, kinds.one_of("raw", "text", "json", "msgpack", "arrow"), "raw",
           "raw: octets; else columns of a schema, from text, a JSON object, a MessagePack map or an Arrow IPC stream"),
    Option("includeMetadata", Use.ALL, kinds.boolean, False,
           "with a bodyFormat: the columns resource, sequence, timestamp and properties are values of the content,"
           " not of the body"),
    Option("mode", Use.READ, kinds.one_of("permissive", "dropmalformed", "failfast"), "permissive",
           "the result of a bad body: a row of nulls, no row, or an error"),
    Option("columnNameOfCorruptRecord", Use.READ, kinds.text, "_corrupt_record",
           "name of the string column for bad bodies; used if the schema has it"),
    Option("deadLetter", Use.READ, kinds.name, None,
           "a resource to which every bad body is written once, with its origin; created if it does not exist;"
           " resourcePattern does not match it"),
    # --- what is written ------------------------------------------------------------------------------------
    Option("resource", Use.WRITE, kinds.name, None,
           "the target of all rows; without it the column resource names the target of each row"),
    Option("createResource", Use.WRITE, kinds.boolean, False,
           "true: create target resources that do not exist"),
    Option("createDurability", Use.WRITE, kinds.one_of("sync", "os"), "sync",
           "of a created resource: sync: a content is on the disk before it is confirmed; os: it is with the operating"
           " system"),
    Option("createRetainBytes", Use.WRITE, quantities.size, None,
           "of a created resource: the most octets to keep, such as 10g"),
    Option("createRetainAge", Use.WRITE, quantities.duration, None,
           "of a created resource: the longest time to keep contents, such as 7d"),
    Option("createRetainContents", Use.WRITE, kinds.count, None,
           "of a created resource: the most contents to keep"),
    Option("createRetainFor", Use.WRITE, kinds.names, None,
           "of a created resource: groups, separated by commas or a JSON array, whose unconfirmed contents are kept"),
    Option("createHardBytes", Use.WRITE, quantities.size, None,
           "of a created resource: the size above which contents are removed although a group has not confirmed them"),
    Option("overwriteMode", Use.WRITE, kinds.one_of("truncate"), None,
           "truncate: mode overwrite and output mode complete replace all contents of the resource atomically (with a"
           " column resource: of each resource that has rows); without the option these modes are errors"),
    Option("deliveryGuarantee", Use.WRITE, kinds.one_of("exactly-once", "at-least-once"), "exactly-once",
           "exactly-once: a batch becomes visible as a whole, once; at-least-once: rows are appended as they arrive"),
    Option("txnAppId", Use.WRITE, kinds.name,
           "the query's id (with a user: `user`, a dot and the id); a new one for each batch write",
           "the application for which the broker remembers batches; a batch write with it needs txnVersion"),
    Option("txnVersion", Use.BATCH_WRITE, kinds.version, None,
           "the number of this write of txnAppId"),
    Option("replayCheck", Use.WRITE, kinds.one_of("contents", "counts"), "contents",
           "the comparison of a repeated batch with the published one: number, target and hash of its rows, or (counts)"
           " only their number for each resource, for queries that give other rows when they are repeated"),
)
# fmt: on

BY_KEY = {option.name.lower(): option for option in OPTIONS}

SPARKS_OWN = frozenset({
    # Spark adds these to the options of a source or sink, or copies them from the options of the query.
    "path",
    "paths",
    "checkpointlocation",
    "queryname",
    "outputmode",
    "asyncprogresstrackingenabled",
    "asyncprogresstrackingcheckpointintervalms",
    "asyncprogresstrackingoverridesinksupportcheck",
})  # fmt: skip
