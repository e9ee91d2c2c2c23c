"""Every option of `format("mtl")`, in one table, and the settings that a read or a write has by them. Pure.

Spark hands options over as text under lower-cased names. They are taken strictly: an unknown name is an error that
suggests the right one, so is a value that does not fit, an option that has no meaning where it is given, and two that
contradict each other. Only names are ever shown of an unknown option, never its value: it may be a misspelt secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any

from mtl.errors import OptionError
from mtl.limits import MAX_TRIGGER_DELAY_S, REQUEST_TIMEOUT_S, RETRY_DEADLINE_S
from pyspark_mtl import kinds
from pyspark_mtl.kinds import EARLIEST, GROUP, LATEST, Places


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
    Option("resourcePattern", Use.READ, kinds.pattern, None, "a regular expression that matches whole names"),
    Option(
        "includeProperties", Use.READ, kinds.boolean, False, "adds the column properties map<string,string>"
    ),
    Option(
        "failOnDataLoss",
        Use.READ,
        kinds.boolean,
        True,
        "contents that retention removed, or a resource deleted or made again, end the query; "
        "false: what is lost is logged and skipped",
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
    # --- what is written ------------------------------------------------------------------------------------
    Option(
        "resource", Use.WRITE, kinds.name, None, "where all rows go; without it, the column resource says"
    ),
    Option("createResource", Use.WRITE, kinds.boolean, False, "create a resource that does not exist"),
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
        "the query's id; a fresh one for each batch write",
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


@dataclass(frozen=True)
class Connect:
    """How to reach the broker, and what to show there. Times in seconds. Files and variables are read where a
    connection is made: on the driver and on executors.
    """

    endpoint: str
    virtual_host: str
    request_timeout: float
    retry_deadline: float
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    password_file: str | None = None
    password_env: str | None = None
    sasl_mechanism: str | None = None
    curve_server_key: str | None = None
    curve_key_file: str | None = None


@dataclass(frozen=True)
class Limits:
    """Bounds of one batch: contents, stored octets, contents to wait for, and the longest wait in seconds."""

    max_contents: int | None = None
    max_bytes: int | None = None
    min_contents: int | None = None
    max_delay: float = float(MAX_TRIGGER_DELAY_S)

    @property
    def any(self) -> bool:
        """Whether a batch is limited at all."""
        return not (self.max_contents is None and self.max_bytes is None and self.min_contents is None)


@dataclass(frozen=True)
class ReadSettings:
    """What a read does. Exactly one of `resources` and `pattern` is set. `ending` latest means no end in a stream."""

    connect: Connect
    resources: tuple[str, ...] | None
    pattern: str | None
    group: str | None
    starting: Places
    ending: Places
    late_start_is_latest: bool
    fail_on_data_loss: bool
    limits: Limits
    min_partitions: int | None
    max_records: int | None
    include_properties: bool
    confirm_on_start: bool


@dataclass(frozen=True)
class WriteSettings:
    """What a write does. `resource` None means: the column names it."""

    connect: Connect
    resource: str | None
    create: bool
    exactly_once: bool
    application: str | None
    version: int | None


@dataclass(frozen=True)
class Given:
    """The options that were given, parsed, under their proper names."""

    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        """The value given for `name`, else its default."""
        return self.values.get(name, BY_KEY[name.lower()].default)

    def __contains__(self, name: str) -> bool:
        """Whether it was given."""
        return name in self.values


def parse(options: Mapping[str, str]) -> Given:
    """Names and values, each by itself. OptionError for an unknown name or a value that does not fit."""
    values = {}
    for key, text in options.items():
        option = BY_KEY.get(key.lower())
        if option is not None:
            values[option.name] = _value(option, text)
        elif key.lower() not in SPARKS_OWN and not key.startswith("__"):
            raise OptionError(f"unknown option {key!r}; {_suggestion(key)}")
    return Given(values)


def _value(option: Option, text: str) -> Any:
    try:
        return option.parse(text)
    except ValueError as error:
        raise OptionError(f"option {option.name}: {error}") from error


def _suggestion(key: str) -> str:
    close = difflib.get_close_matches(key.lower(), BY_KEY, n=1, cutoff=0.6)
    if close:
        return f"did you mean {BY_KEY[close[0]].name!r}?"
    return f"there are {', '.join(sorted(option.name for option in OPTIONS))}"


def read_settings(given: Given, *, streaming: bool) -> ReadSettings:
    """The settings of a read. OptionError for what has no meaning there, is missing, or contradicts."""
    use = Use.STREAM_READ if streaming else Use.BATCH_READ
    _meaningful(given, use)
    resources, pattern = given["resources"], given["resourcePattern"]
    if (resources is None) == (pattern is None):
        trouble = "both are given" if resources else "neither is given"
        raise OptionError(f"a read needs one of the options resources and resourcePattern; {trouble}")
    starting = _starting(given, streaming=streaming)
    ending = _ending(given, streaming=streaming)
    for what, places in (("start", starting), ("end", ending)):
        _names_fit(what, places, resources)
    return ReadSettings(
        connect=_connect(given),
        resources=resources,
        pattern=pattern,
        group=given["group"],
        starting=starting,
        ending=ending,
        late_start_is_latest=given["startingOffsetsByTimestampStrategy"] == "latest",
        fail_on_data_loss=given["failOnDataLoss"],
        limits=_limits(given),
        min_partitions=given["minPartitions"],
        max_records=given["maxRecordsPerPartition"],
        include_properties=given["includeProperties"],
        confirm_on_start=given["confirmOn"] == "start",
    )


def write_settings(given: Given, *, streaming: bool) -> WriteSettings:
    """The settings of a write. OptionError for what has no meaning there or contradicts."""
    _meaningful(given, Use.STREAM_WRITE if streaming else Use.BATCH_WRITE)
    exactly_once = given["deliveryGuarantee"] == "exactly-once"
    application = given.values.get("txnAppId")
    if not exactly_once and application is not None:
        raise OptionError(
            "txnAppId has no meaning with deliveryGuarantee=at-least-once: nothing is remembered"
        )
    if not streaming and ("txnAppId" in given) != ("txnVersion" in given):
        raise OptionError("a batch write is repeatable with both txnAppId and txnVersion; only one is given")
    return WriteSettings(
        connect=_connect(given),
        resource=given["resource"],
        create=given["createResource"],
        exactly_once=exactly_once,
        application=application,
        version=given["txnVersion"],
    )


def _meaningful(given: Given, use: Use) -> None:
    for name in given.values:
        option = BY_KEY[name.lower()]
        if not option.use & use:
            places = " or ".join(one.words for one in Use.ALL if one & option.use)
            hint = "; did you mean 'resources'?" if name == "resource" else ""
            raise OptionError(f"option {name} has no meaning in {use.words}, only in {places}{hint}")


def _connect(given: Given) -> Connect:
    timeout, deadline = given["requestTimeout"], given["retryDeadline"]
    if timeout > deadline:
        raise OptionError(f"requestTimeout ({timeout:g} s) is longer than retryDeadline ({deadline:g} s)")
    return Connect(
        given["endpoint"],
        given["virtualHost"],
        timeout,
        deadline,
        given["user"],
        given["password"],
        given["passwordFile"],
        given["passwordEnv"],
        given["saslMechanism"],
        given["curveServerKey"],
        given["curveKeyFile"],
    )


def _limits(given: Given) -> Limits:
    least, most = given["minOffsetsPerTrigger"], given["maxOffsetsPerTrigger"]
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger ({least}) is above maxOffsetsPerTrigger ({most})")
    if "maxTriggerDelay" in given and least is None:
        raise OptionError("maxTriggerDelay has no meaning without minOffsetsPerTrigger")
    return Limits(most, given["maxBytesPerTrigger"], least, given["maxTriggerDelay"])


def _starting(given: Given, *, streaming: bool) -> Places:
    places = _foremost(given, "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
    if "startingOffsetsByTimestampStrategy" in given and not (places and places.uses("time")):
        raise OptionError("startingOffsetsByTimestampStrategy has no meaning without a starting time")
    if places is None:
        return Places(GROUP if "group" in given else LATEST if streaming else EARLIEST)
    if places.uses("group") and "group" not in given:
        raise OptionError("startingOffsets=group needs the option group")
    if places.uses("latest") and not streaming:
        raise OptionError("a batch read that starts at latest reads nothing; choose another startingOffsets")
    return places


def _ending(given: Given, *, streaming: bool) -> Places:
    places = _foremost(given, "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
    if places and places.uses("latest") and streaming:
        raise OptionError(
            "endingOffsets=latest has no meaning in a streaming read: a restart would find another end; "
            "name sequences or a time, or use Trigger.AvailableNow"
        )
    return places or Places(LATEST)


def _foremost(given: Given, *names: str) -> Places | None:
    """The value of the first that is given. Kafka's order, so that its users' settings mean the same here."""
    return next((given[name] for name in names if name in given), None)


def _names_fit(what: str, places: Places, resources: tuple[str, ...] | None) -> None:
    """With listed resources every one has its place and no other is named, as Kafka's users know it."""
    if resources is None or not places.named:
        return
    for name in places.named:
        if name not in resources:
            raise OptionError(f"a place to {what} is given for {name!r}, which resources does not name")
    for name in resources:
        if name not in places.named:
            raise OptionError(f"no place to {what} is given for the resource {name!r}")
