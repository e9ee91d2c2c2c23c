"""The sink: Spark's stream writer and batch writer into MTL resources, exactly once.

Tasks write into stages, which readers do not see. Spark's commit names them in one Stage.Commit, under
(application, version). The broker publishes their contents atomically and remembers the version, so a commit that
Spark repeats after a failure has no effect. A batch without rows is committed as well, without stages, to keep the
order of versions.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from mtl.errors import MtlError, OptionError, Refused
from mtl.wire.control import ROLLED_BACK, UNKNOWN_RESOURCE
from pyspark_mtl.connections import connection
from pyspark_mtl.options.settings import WriteSettings
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
        frames = _with_rows(iterator, self._shape)
        if frames is None:
            return StageMessage(query=query)
        written = write(self._settings, frames, _application(self._settings, query), batch)
        return StageMessage(written, query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        """Publish the batch, once. If Spark repeats the call, the broker recognizes the batch."""
        done = _messages(messages)
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
        application = _application(self._settings, query)
        result = _commit(self._settings, application, batchId, stages, replaced, query)
        if result.already:
            _check_replay(self._settings, Batch(application, query, batchId), result, done)

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
        frames = _with_rows(iterator, self._shape)
        if frames is None:
            return StageMessage()
        return StageMessage(write(self._settings, frames, self._application, self._version))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish all stages, once per (txnAppId, txnVersion)."""
        done = _messages(messages)
        stages, replaced = _stages(done), _replaced(self._settings, done)
        repeatable = self._settings.exactly_once and self._settings.application is not None
        if not (stages or replaced or repeatable):
            return
        result = _commit(self._settings, self._application, self._version, stages, replaced)
        if result.already:
            _check_replay(self._settings, Batch(self._application, None, self._version), result, done)
        if self._settings.application is None:  # a write without txnAppId is never repeated
            connection(self._settings.connect).stage_forget(self._application)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Discard the stages of the write."""
        _abort(self._settings, messages)


def _with_rows(frames: Iterator[Any], shape: Shape | None) -> Iterator[Any] | None:
    """The frames, from the first one with rows on, as raw frames; None if no frame has rows."""
    for frame in frames:
        if frame.num_rows:
            found = _chain(frame, frames)
            return found if shape is None else _raw(shape, found)
    return None


def _raw(shape: Shape, frames: Iterator[Any]) -> Iterator[Any]:
    from pyspark_mtl.rows.typed import raw  # noqa: PLC0415 not needed for raw bodies

    return raw(shape, frames)


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
    application: str,
    version: int,
    stages: Sequence[str],
    replaced: Sequence[str],
    query: str | None = None,
) -> Committed:
    broker = connection(settings.connect)
    try:
        return broker.stage_commit(application, version, stages, query=query, truncate=replaced)
    except Refused as refused:
        if stages or refused.reason != UNKNOWN_RESOURCE:
            raise
    for resource in replaced:  # no task had rows for it, so no task has created it
        create(settings, resource)
    return broker.stage_commit(application, version, stages, query=query, truncate=replaced)


def _abort(settings: WriteSettings, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Abort stages, best effort: errors are only logged, because the batch fails anyway and stages expire."""
    stages = _stages(_messages(messages))
    if not stages:
        return
    try:
        connection(settings.connect).stage_abort(stages)
    except MtlError as error:
        log.warning("%d stages of a failed batch stay until they expire: %s", len(stages), error)


def _check_replay(
    settings: WriteSettings, batch: Batch, result: Committed, messages: Sequence[StageMessage]
) -> None:
    """Log that the broker had published this batch before, and published no content now.

    Refused 409 if the batch now has other counts. A checkpoint that was rolled back or copied plans another batch under
    the same number; its rows would be lost, or published again by the next batch. For Arrow bodies only the resources
    are compared: the number of bodies depends on how the rows are spread over tasks and record batches.
    """
    log.info("batch already published: %s", batch)
    now: Counter[str] = Counter()
    for message in messages:
        now.update(dict(message.written.contents))
    then = {name: published.contents for name, published in result.resources.items() if published.contents}
    many_rows = settings.bodies is not None and settings.bodies.format == "arrow"
    if now == then or (many_rows and now.keys() == then.keys()):
        return
    text = (
        f"batch {batch.version} of {batch.application} was published with {then} contents and is repeated with "
        f"{dict(now)}: the checkpoint was rolled back or copied, or the query is not repeatable. The first contents "
        "stay, and nothing was published now"
    )
    if settings.fail_on_data_loss:
        raise Refused(
            409, ROLLED_BACK, f"{text}. With failOnDataLoss=false this is logged, and the query continues"
        )
    log.warning("%s", text)
