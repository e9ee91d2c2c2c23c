"""The settings of a read or a write, made from its options (pyspark_mtl.options.table). Pure.

Spark passes options as text under lower-cased names. The check is strict. Errors are: an unknown name (the message
suggests the right one), an invalid value, an option that does not apply to this read or write, and two options that
contradict each other. An error shows the name of an unknown option, never its value: it may be a misspelt secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mtl.client.settings import Settings
from mtl.errors import OptionError
from pyspark_mtl.limits import MAX_TRIGGER_DELAY_S
from pyspark_mtl.options.kinds import EARLIEST, GROUP, LATEST, ReadPositions, matches
from pyspark_mtl.options.table import BY_KEY, OPTIONS, SPARKS_OWN, Option, Use


@dataclass(frozen=True)
class Limits:
    """Bounds of one batch: the most contents, the most stored octets, the contents to wait for, and the longest
    wait in seconds.
    """

    max_contents: int | None = None
    max_bytes: int | None = None
    min_contents: int | None = None
    max_delay: float = float(MAX_TRIGGER_DELAY_S)

    @property
    def any(self) -> bool:
        """Whether a batch has any limit."""
        return not (self.max_contents is None and self.max_bytes is None and self.min_contents is None)


@dataclass(frozen=True)
class Bodies:
    """Typed bodies: their `format`, and whether metadata columns belong to the content (`metadata`). For a read also
    the treatment of bad bodies: `mode`, the name of their column, and the dead-letter resource.
    """

    format: str
    metadata: bool = False
    mode: str = "permissive"
    corrupt: str = "_corrupt_record"
    dead_letter: str | None = None


@dataclass(frozen=True)
class ReadSettings:
    """The settings of a read. Exactly one of `resources` and `pattern` is set. In a stream, `ending` latest means that
    it has no end. `former` matches resources that a checkpoint may have although the query reads them no more.
    """

    connect: Settings
    resources: tuple[str, ...] | None
    pattern: str | None
    group: str | None
    starting: ReadPositions
    ending: ReadPositions
    late_start_is_latest: bool
    fail_on_data_loss: bool
    limits: Limits
    min_partitions: int | None
    max_records: int | None
    include_properties: bool
    confirm_on_start: bool
    former: str | None = None
    bodies: Bodies | None = None

    @property
    def excluded(self) -> str | None:
        """The resource that is not read although the pattern may match it: that of the read's own dead letters."""
        return None if self.bodies is None else self.bodies.dead_letter

    def unselected(self, names: Iterable[str]) -> list[str]:
        """Those of the names that the query does not read, sorted."""
        if self.resources is not None:
            return sorted(set(names).difference(self.resources))
        return [name for name in sorted(names) if not matches(self.pattern or "", name)]


@dataclass(frozen=True)
class Creation:
    """The configuration of a resource that a write creates: durability "sync" or "os", and retention in octets,
    seconds, contents and groups; None and no group mean no bound.
    """

    durability: str
    bytes: int | None = None
    age: float | None = None
    contents: int | None = None
    groups: tuple[str, ...] = ()
    hard_bytes: int | None = None


@dataclass(frozen=True)
class WriteSettings:
    """The settings of a write. `resource` None: the column `resource` names it. `create` None: a missing resource is an
    error. `truncate`: the write replaces the contents of the resources. `hash_rows`: the digest of a batch has a hash
    of its rows, with which a repetition is compared.
    """

    connect: Settings
    resource: str | None
    create: Creation | None
    exactly_once: bool
    application: str | None
    version: int | None
    truncate: bool = False
    hash_rows: bool = True
    fail_on_data_loss: bool = True
    bodies: Bodies | None = None


@dataclass(frozen=True)
class Given:
    """The given options, parsed, under their proper names. repr does not show them, because one may be a
    password.
    """

    values: Mapping[str, Any] = field(repr=False)

    def __getitem__(self, name: str) -> Any:
        """The given value of `name`, else its default."""
        return self.values.get(name, BY_KEY[name.lower()].default)

    def __contains__(self, name: str) -> bool:
        """Whether the option was given."""
        return name in self.values


def parse(options: Mapping[str, str]) -> Given:
    """Check and parse each option by itself. OptionError for an unknown name or an invalid value."""
    values = {}
    for key, text in options.items():
        option = BY_KEY.get(key.lower())
        if option is not None:
            values[option.name] = _value(option, text)
        elif key.lower() not in SPARKS_OWN and not key.startswith("__"):  # Spark's internal options
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
    return f"the options are {', '.join(sorted(option.name for option in OPTIONS))}"


def read_settings(given: Given, *, streaming: bool) -> ReadSettings:
    """The settings of a read. OptionError if an option does not apply, is missing, or contradicts another."""
    use = Use.STREAM_READ if streaming else Use.BATCH_READ
    _meaningful(given, use)
    resources, pattern = given["resources"], given["resourcePattern"]
    if (resources is None) == (pattern is None):
        trouble = "both are given" if resources else "neither is given"
        raise OptionError(f"a read needs one of the options resources and resourcePattern; {trouble}")
    starting = _starting(given, streaming=streaming)
    ending = _ending(given, streaming=streaming)
    for end, positions in (("start", starting), ("end", ending)):
        _check_named(end, positions, resources)
    typed = bodies(given)
    if typed is not None and typed.dead_letter in (resources or ()):
        raise OptionError(
            f"deadLetter names {typed.dead_letter!r}, which is read: its bad bodies would be written to it again, "
            "without end; name another resource"
        )
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
        former=given["formerPattern"],
        bodies=typed,
    )


def write_settings(given: Given, *, streaming: bool, overwrite: bool = False) -> WriteSettings:
    """The settings of a write; `overwrite` as Spark passes it. OptionError if an option does not apply or contradicts
    another.
    """
    _meaningful(given, Use.STREAM_WRITE if streaming else Use.BATCH_WRITE)
    exactly_once = given["deliveryGuarantee"] == "exactly-once"
    application = given.values.get("txnAppId")
    if not exactly_once and application is not None:
        raise OptionError(
            "txnAppId has no meaning with deliveryGuarantee=at-least-once: the broker remembers no batches then"
        )
    if not streaming and ("txnAppId" in given) != ("txnVersion" in given):
        raise OptionError("a batch write needs both txnAppId and txnVersion, or neither; only one is given")
    repeatable = exactly_once and (streaming or application is not None)
    if "replayCheck" in given and not repeatable:
        raise OptionError(
            "replayCheck has no meaning with deliveryGuarantee=at-least-once, and in a batch write without txnAppId: "
            "the broker remembers no batch that could be repeated"
        )
    if overwrite:
        _check_overwrite(given, "outputMode" if streaming else "mode", exactly_once=exactly_once)
    return WriteSettings(
        connect=_connect(given),
        resource=given["resource"],
        create=_creation(given),
        exactly_once=exactly_once,
        application=application,
        version=given["txnVersion"],
        truncate=overwrite,
        hash_rows=repeatable and given["replayCheck"] == "contents",
        fail_on_data_loss=given["failOnDataLoss"],
        bodies=bodies(given),
    )


def _creation(given: Given) -> Creation | None:
    if given["createResource"]:
        return Creation(
            given["createDurability"],
            given["createRetainBytes"],
            given["createRetainAge"],
            given["createRetainContents"],
            given["createRetainFor"] or (),
            given["createHardBytes"],
        )
    for name in given.values:
        if name.startswith("create") and name != "createResource":
            raise OptionError(f"option {name} has no meaning without createResource=true")
    return None


def _check_overwrite(given: Given, mode: str, *, exactly_once: bool) -> None:
    if given["overwriteMode"] is None:
        raise OptionError(
            f"format mtl appends: resources are logs. Use .{mode}('append'), or overwriteMode=truncate, with which "
            "the rows replace all contents of the resource"
        )
    if not exactly_once:
        raise OptionError(
            "overwriteMode=truncate is part of the commit: it needs deliveryGuarantee=exactly-once"
        )


def bodies(given: Given) -> Bodies | None:
    """The types of bodies; None for raw bodies. OptionError for an option that does not apply to the bodyFormat."""
    if given["bodyFormat"] == "raw":
        for name in ("includeMetadata", "mode", "columnNameOfCorruptRecord", "deadLetter"):
            if name in given:
                raise OptionError(f"option {name} has no meaning with raw bodies; give a bodyFormat")
        return None
    if "includeProperties" in given:
        raise OptionError(
            f"includeProperties has no meaning with bodyFormat={given['bodyFormat']}; "
            "give includeMetadata, and a column properties map<string,string> in the schema"
        )
    mode, dead_letter = given["mode"], given["deadLetter"]
    if mode == "failfast" and dead_letter is not None:
        raise OptionError("deadLetter has no meaning with mode=FAILFAST: the first bad body ends the query")
    return Bodies(
        given["bodyFormat"], given["includeMetadata"], mode, given["columnNameOfCorruptRecord"], dead_letter
    )


def _meaningful(given: Given, use: Use) -> None:
    for name in given.values:
        option = BY_KEY[name.lower()]
        if not option.use & use:
            places = " or ".join(place.words for place in Use.ALL if place & option.use)
            hint = "; did you mean 'resources'?" if name == "resource" else ""
            raise OptionError(f"option {name} has no meaning in {use.words}, only in {places}{hint}")


def _connect(given: Given) -> Settings:
    timeout, deadline = given["requestTimeout"], given["retryDeadline"]
    if timeout > deadline:
        raise OptionError(f"requestTimeout ({timeout:g} s) is longer than retryDeadline ({deadline:g} s)")
    return Settings(
        given["endpoint"],
        virtual_host=given["virtualHost"],
        request_timeout=timeout,
        retry_deadline=deadline,
        user=given["user"],
        password=given["password"],
        password_file=given["passwordFile"],
        password_env=given["passwordEnv"],
        sasl_mechanism=given["saslMechanism"],
        curve_server_key=given["curveServerKey"],
        curve_key_file=given["curveKeyFile"],
    )


def _limits(given: Given) -> Limits:
    least, most = given["minOffsetsPerTrigger"], given["maxOffsetsPerTrigger"]
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger ({least}) is above maxOffsetsPerTrigger ({most})")
    if "maxTriggerDelay" in given and least is None:
        raise OptionError("maxTriggerDelay has no meaning without minOffsetsPerTrigger")
    return Limits(most, given["maxBytesPerTrigger"], least, given["maxTriggerDelay"])


def _starting(given: Given, *, streaming: bool) -> ReadPositions:
    positions = _first_given(given, "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
    if "startingOffsetsByTimestampStrategy" in given and not (positions and positions.uses("time")):
        raise OptionError("startingOffsetsByTimestampStrategy has no meaning without a starting time")
    if positions is None:
        return ReadPositions(GROUP if "group" in given else LATEST if streaming else EARLIEST)
    if positions.uses("group") and "group" not in given:
        raise OptionError("startingOffsets=group needs the option group")
    if positions.uses("latest") and not streaming:
        raise OptionError("a batch read that starts at latest reads nothing; choose another startingOffsets")
    return positions


def _ending(given: Given, *, streaming: bool) -> ReadPositions:
    positions = _first_given(given, "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
    if positions and positions.uses("latest") and streaming:
        raise OptionError(
            "endingOffsets=latest has no meaning in a streaming read: a restart would find another end; "
            "name sequences or a time, or use Trigger.AvailableNow"
        )
    return positions or ReadPositions(LATEST)


def _first_given(given: Given, *names: str) -> ReadPositions | None:
    """The value of the first option that is given. The order is that of Kafka's source, so that the same settings
    have the same meaning.
    """
    return next((given[name] for name in names if name in given), None)


def _check_named(end: str, positions: ReadPositions, resources: tuple[str, ...] | None) -> None:
    """Check that a JSON object of positions names all listed resources and no others, as with Kafka."""
    if resources is None or not positions.named:
        return
    for name in positions.named:
        if name not in resources:
            raise OptionError(f"a place to {end} is given for {name!r}, which resources does not name")
    for name in resources:
        if name not in positions.named:
            raise OptionError(f"no place to {end} is given for the resource {name!r}")
