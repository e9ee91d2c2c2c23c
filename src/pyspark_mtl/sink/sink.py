"""The sink: Spark's stream writer and batch writer into MTL resources, exactly once.

Tasks write into stages, which readers do not see. Spark's commit names them in one Stage.Commit, under
(application, version). The broker publishes their contents atomically and remembers the version, so a commit that
Spark repeats after a failure has no effect. A batch without rows is committed as well, without stages, to keep the
order of versions.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from mtl.errors import MtlError, OptionError, Refused
from mtl.wire.control import OTHER_CONTENTS, UNKNOWN_RESOURCE
from pyspark_mtl.connections import connection
from pyspark_mtl.options.settings import WriteSettings
from pyspark_mtl.rows.digest import Digest
from pyspark_mtl.sink.writing import Written, create, write

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0
    from pyspark.sql.datasource import DataSourceStreamWriter

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[no-redef,misc]
        """Spark 4.0 passes record batches to every DataSourceArrowWriter, also in a stream."""


if TYPE_CHECKING:
    from mtl.wire.control import Committed
    from pyspark_mtl.rows.bodies.shape import Shape

log = logging.getLogger(__name__)

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


@dataclass
class StageMessage(WriterCommitMessage):
    """A task's report to the driver; public values only. `query` is None in a batch write, and in a report without
    stages.
    """

    written: Written = field(default_factory=Written)
    query: str | None = None


@dataclass(frozen=True)
class Batch:
    """The identity of a commit in the broker; `query` is None in a batch write."""

    application: str
    query: str | None
    version: int

    def __str__(self) -> str:
        return f"application={self.application} query={self.query} batch={self.version}"


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. Spark makes one for every batch, and another for its commit, so it holds only settings."""

    def __init__(self, settings: WriteSettings, shape: Shape | None = None) -> None:
        self._settings = settings
        self._shape = shape

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Stage the rows of a task. Sends no request if there are none."""
        query, batch = _property(QUERY_ID), int(_property(BATCH_ID))
        frames = _with_rows(iterator)
        if frames is None:
            return StageMessage(query=query)
        written = write(self._settings, frames, _application(self._settings, query), batch, self._shape)
        return StageMessage(written, query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        """Publish the batch, once. If Spark repeats the call, the broker recognizes the batch."""
        done = _messages(messages)
        _create_target(self._settings, done)
        if not self._settings.exactly_once:
            return  # the tasks have appended their rows already
        stages, replaced = _stages(done), _replaced(self._settings, done)
        query = next((message.query for message in done if message.query is not None), None)
        if query is None:
            if replaced:
                raise OptionError(
                    "no task ran, so the id of the query is unknown; write with foreachBatch instead"
                )
            return  # an empty batch
        batch = Batch(_application(self._settings, query), query, batchId)
        _commit(self._settings, batch, stages, replaced, done)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Discard the stages of the batch; the broker keeps published ones."""
        _abort(self._settings, messages)


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame, all or nothing. Without txnAppId each write is an application of its own."""

    def __init__(self, settings: WriteSettings, shape: Shape | None = None) -> None:
        self._settings = settings
        self._shape = shape
        self._id = uuid.uuid4().hex
        self._version = settings.version or 0

    @property
    def _application(self) -> str:
        return _application(self._settings, f"write-{self._id}")

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Stage the rows of a task. Sends no request if there are none."""
        frames = _with_rows(iterator)
        if frames is None:
            return StageMessage()
        return StageMessage(write(self._settings, frames, self._application, self._version, self._shape))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish all stages, once per (txnAppId, txnVersion)."""
        done = _messages(messages)
        _create_target(self._settings, done)
        stages, replaced = _stages(done), _replaced(self._settings, done)
        repeatable = self._settings.exactly_once and self._settings.application is not None
        if not (stages or replaced or repeatable):
            return
        _commit(self._settings, Batch(self._application, None, self._version), stages, replaced, done)
        if self._settings.application is None:  # a write without txnAppId is never repeated
            connection(self._settings.connect).stage_forget(self._application)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Discard the stages of the write."""
        _abort(self._settings, messages)


def _create_target(settings: WriteSettings, messages: Iterable[StageMessage]) -> None:
    """Create the resource of a write with createResource that has no rows: no task has created it."""
    resource = settings.resource
    if settings.create is None or resource is None or any(message.written.contents for message in messages):
        return
    if not connection(settings.connect).describe([resource], missing_ok=True):  # creating needs another right
        create(settings, resource)


def _with_rows(frames: Iterator[Any]) -> Iterator[Any] | None:
    """The frames, from the first one with rows on; None if no frame has rows."""
    for frame in frames:
        if frame.num_rows:
            return _chain(frame, frames)
    return None


def _chain(first: Any, rest: Iterable[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _property(name: str) -> str:
    context = TaskContext.get()
    value = context.getLocalProperty(name) if context is not None else None
    if value is None:
        raise OptionError(
            f"Spark did not set the property {name!r} of this task; write with foreachBatch and txnAppId instead"
        )
    return value


def _application(settings: WriteSettings, name: str) -> str:
    """The application of batches in the broker: txnAppId, else a name that this user may use without a grant."""
    return settings.application or connection(settings.connect).own_name(name)


def _messages(messages: Sequence[WriterCommitMessage | None]) -> list[StageMessage]:
    """The reports of tasks, in partition order; failed tasks have none."""
    return [message for message in messages if isinstance(message, StageMessage)]


def _stages(messages: Iterable[StageMessage]) -> list[str]:
    """The stages to publish, in partition order, which becomes the order of the contents."""
    return [stage for message in messages for stage in message.written.stages]


def _replaced(settings: WriteSettings, messages: Sequence[StageMessage]) -> list[str]:
    """The resources whose former contents the commit removes."""
    if not settings.truncate:
        return []
    if settings.resource is not None:
        return [settings.resource]
    return sorted({resource for message in messages for resource, _ in message.written.contents})


def _commit(
    settings: WriteSettings,
    batch: Batch,
    stages: Sequence[str],
    replaced: Sequence[str],
    messages: Sequence[StageMessage],
) -> None:
    """Publish a batch. Logs that the broker had published it before, and published no content now."""
    digest = sum((message.written.digest for message in messages), Digest())

    def commit() -> Committed:
        return connection(settings.connect).stage_commit(
            batch.application,
            batch.version,
            stages,
            query=batch.query,
            truncate=replaced,
            digest=digest.values,
        )

    try:
        done = _created_if_missing(settings, commit, () if stages else replaced)
    except Refused as refused:
        if refused.reason != OTHER_CONTENTS:
            raise
        _report_replay(settings, batch, refused, digest, messages)
    else:
        if done.already:
            log.info("batch already published: %s", batch)


def _created_if_missing(
    settings: WriteSettings, commit: Callable[[], Committed], resources: Sequence[str]
) -> Committed:
    """Commit; if `resources` do not exist, because no task had rows for them, create them first."""
    try:
        return commit()
    except Refused as refused:
        if not resources or refused.reason != UNKNOWN_RESOURCE:
            raise
    for resource in resources:
        create(settings, resource)
    return commit()


def _abort(settings: WriteSettings, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Abort stages, best effort: errors are only logged, because the batch fails anyway and stages expire."""
    stages = _stages(_messages(messages))
    if not stages:
        return
    try:
        connection(settings.connect).stage_abort(stages)
    except MtlError as error:
        log.warning("%d stages of a failed batch stay until they expire: %s", len(stages), error)


def _report_replay(
    settings: WriteSettings, batch: Batch, refused: Refused, now: Digest, messages: Sequence[StageMessage]
) -> None:
    """Refused 409 "other-contents": the batch was published with other rows. With failOnDataLoss=false it is logged,
    and the stages of the repetition are discarded.
    """
    then = refused.members.get("digest", {})
    if then.get("rows") != str(now.rows):
        rows = f"{then.get('rows')} rows and is repeated with {now.rows}"
    elif then.get("targets") != now.values["targets"]:
        rows = f"{now.rows} rows and is repeated with as many for other resources"
    else:
        rows = f"{now.rows} rows and is repeated with as many other rows"
    text = (
        f"batch {batch.version} of {batch.application} was published with {rows}: the checkpoint was rolled back or "
        "copied, or the query gives other rows when it is repeated. The first contents stay, and nothing was published "
        "now"
    )
    if settings.fail_on_data_loss:
        raise Refused(
            409,
            OTHER_CONTENTS,
            f"{text}. If there is a newer state of the checkpoint, restore it. `mtl stages forget {batch.application}` "
            "lets the query publish this batch, too. If the query is not repeatable (rand, uuid, sums of doubles), "
            "replayCheck=counts compares only the number of rows. With failOnDataLoss=false this is logged, and the "
            "rows of the repetition are dropped",
            **refused.members,
        )
    log.warning("%s", text)
    _abort(settings, messages)
