"""The source: Spark's stream reader and batch reader over MTL resources.

Spark calls methods of one reader in several processes. So constructors have no side effects. An error in a
constructor is kept and raised by the first method that may raise it. The readers that are pickled for executors
have only their settings.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from mtl.errors import DataLoss, MtlError
from mtl.wire.control import Description
from pyspark_mtl.options.kinds import EARLIEST, LATEST
from pyspark_mtl.options.settings import ReadSettings
from pyspark_mtl.source import offsets, reading
from pyspark_mtl.source.driver import Driver
from pyspark_mtl.source.ends import ends_too_early
from pyspark_mtl.source.offsets import INITIAL, OffsetRange, Position
from pyspark_mtl.source.planning import ResourceExtent, Split, bundled, dated, lost, plan, without
from pyspark_mtl.source.progress import Progress, absent
from pyspark_mtl.source.reading import Task
from pyspark_mtl.source.selection import parked

if TYPE_CHECKING:
    from pyspark_mtl.rows.bodies.shape import Shape

log = logging.getLogger(__name__)


class TaskPartition(InputPartition):
    """Tasks that an executor performs one after the other, as Spark sends them to it."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        super().__init__(tasks)
        self.tasks = tasks


class StreamReader(DataSourceStreamReader):
    """Reads resources in micro-batches. `settings` is an error instead if the options are invalid.

    Has the methods that all versions of Spark call; `latestOffset` is in stream_limited.py and stream_unlimited.py.
    """

    def __init__(self, settings: ReadSettings | MtlError, shape: Shape | None = None) -> None:
        self._settings_or_error = settings
        self._shape = shape
        self._driver: Driver | None = None
        self._progress: Progress | None = None
        self._report: dict[str, Any] | None = None
        """The report (reportLatestOffset) of the resources that the last `find` returned."""
        self._parked: frozenset[str] | None = None
        """The resources of the checkpoint that the options do not select; None before the checkpoint is known."""
        self._reached(INITIAL)

    # --- called on the driver -------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 Spark's names, here and below
        """A constant. The first offset that names a resource fixes the position at which reading begins."""
        self._query()
        return INITIAL.json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch. DataLoss if contents are lost; with failOnDataLoss=false the loss is logged
        here.
        """
        driver, _ = self._query()
        planned = offsets.parse(end)
        self._check_selection(planned)
        ranges = offsets.between(offsets.parse(start), planned)
        if not ranges:
            return []
        descriptions = driver.find_named([offset_range.resource for offset_range in ranges])
        kept = _readable_parts(
            driver, ranges, descriptions, fail_on_data_loss=self._settings.fail_on_data_loss
        )
        epochs = driver.hold({offset_range.resource: _start(offset_range) for offset_range in kept})
        split = Split(self._settings.min_partitions, self._settings.max_records)
        return [
            TaskPartition([Task(part, self._settings.group, epochs[part.resource]) for part in parts])
            for parts in bundled(plan(kept, split), split)
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Confirm all contents before `end`, which Spark has processed."""
        driver, _ = self._query()
        self._confirm(driver, offsets.parse(end))

    def stop(self) -> None:
        """Release the holdings; called when the process ends by itself, or on SIGTERM (see _stop_on_sigterm)."""
        if self._driver is not None:
            self._driver.close()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """On an executor: the rows of a partition, as record batches."""
        return _rows(self._settings, self._shape, partition)

    def _next_batch(self, begin: offsets.Offset, *, unlimited: bool) -> offsets.Offset:
        """The end of the batch that begins at `begin`. From here on retention keeps the batch's contents."""
        driver, progress = self._query()
        self._check_selection(begin)
        self._report = None
        end = progress.advance(begin, time.monotonic(), unlimited=unlimited)
        starts = {}
        for offset_range in offsets.between(begin, end):
            earliest = progress.latest[offset_range.resource].earliest
            starts[offset_range.resource] = (
                Position(offset_range.incarnation, earliest)
                if earliest > offset_range.first
                else _start(offset_range)
            )
        driver.try_to_hold(starts)
        self._reached(end)
        progress.answered_at = time.monotonic()
        return end

    def _is_idle(self, start: dict[str, Any]) -> bool:
        """Whether the next batch would begin at the end of the last one, and be empty. Such a trigger does no other
        work, so that an idle query costs little.
        """
        progress = self._progress
        if progress is None or start != self._end_json or not progress.is_idle(self._end, time.monotonic()):
            return False
        progress.answered_at = time.monotonic()
        return True

    def _reached(self, end: offsets.Offset) -> None:
        """Set the end of the planned batches, also as JSON, for comparison with Spark's `start` of a trigger."""
        self._end, self._end_json = end, end.json()

    def _check_selection(self, offset: offsets.Offset) -> None:
        """Check the first offset: later ones follow from it."""
        if self._parked is None:
            self._parked = parked(self._settings, offset)

    def _confirm(self, driver: Driver, offset: offsets.Offset) -> None:
        """Confirm the contents before an offset; not those of parked resources, which another query may read now."""
        self._check_selection(offset)
        positions = offset.resources
        if self._parked:
            positions = {name: position for name, position in positions.items() if name not in self._parked}
        driver.confirm(positions)

    @property
    def _settings(self) -> ReadSettings:
        if isinstance(self._settings_or_error, MtlError):
            raise self._settings_or_error
        return self._settings_or_error

    def _query(self) -> tuple[Driver, Progress]:
        if self._driver is None or self._progress is None:
            self._driver = Driver(self._settings)
            self._progress = Progress(self._settings, self._driver, time.monotonic())
            _stop_on_sigterm()
        return self._driver, self._progress


class BatchReader(DataSourceReader):
    """Reads resources once, up to their ends at the time of planning."""

    def __init__(self, settings: ReadSettings, shape: Shape | None = None) -> None:
        self._settings = settings
        self._shape = shape

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of the read, planned from one request for all resources."""
        driver = Driver(self._settings)
        descriptions = driver.watch.find()
        for name in self._settings.resources or ():
            if name not in descriptions:
                raise absent(name)
        ranges = [
            part
            for part in self._ranges(driver, [descriptions[name] for name in sorted(descriptions)])
            if part.count
        ]
        kept = _readable_parts(
            driver, ranges, descriptions, fail_on_data_loss=self._settings.fail_on_data_loss
        )
        split = Split(self._settings.min_partitions, self._settings.max_records)
        return [TaskPartition([Task(part) for part in parts]) for parts in bundled(plan(kept, split), split)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """On an executor: the rows of a partition, as record batches."""
        return _rows(self._settings, self._shape, partition)

    def _ranges(self, driver: Driver, descriptions: Sequence[Description]) -> Iterator[OffsetRange]:
        starts = [(each, self._settings.starting.of(each.resource, EARLIEST)) for each in descriptions]
        ends = [(each, self._settings.ending.of(each.resource, LATEST)) for each in descriptions]
        places = zip(starts, driver.locate(starts), ends, driver.locate_ends(ends), strict=True)
        for (each, starting), first, (_, ending), until in places:
            if until >= first:
                yield OffsetRange(each.resource, each.incarnation, first, until)
            elif "time" not in {starting.kind, ending.kind}:  # else no content lies between the two times
                raise ends_too_early(each.resource, first, until)


def _rows(settings: ReadSettings, shape: Shape | None, partition: InputPartition) -> Iterator[Any]:
    if not isinstance(partition, TaskPartition):
        return iter(())  # Spark's partition of a batch read without tasks
    return chain.from_iterable(_rows_of(settings, shape, task) for task in partition.tasks)


def _rows_of(settings: ReadSettings, shape: Shape | None, task: Task) -> Iterator[Any]:
    if shape is not None:
        from pyspark_mtl.source.typed_reading import read  # noqa: PLC0415 not needed for raw bodies

        return read(settings.connect, task, shape, fail_on_data_loss=settings.fail_on_data_loss)
    return reading.read(
        settings.connect,
        task,
        include_properties=settings.include_properties,
        fail_on_data_loss=settings.fail_on_data_loss,
    )


def _start(offset_range: OffsetRange) -> Position:
    return Position(offset_range.incarnation, offset_range.first, epoch=offset_range.before)


def _readable_parts(
    driver: Driver,
    ranges: Sequence[OffsetRange],
    descriptions: dict[str, Description],
    *,
    fail_on_data_loss: bool,
) -> list[OffsetRange]:
    """The parts of `ranges` that can still be read. Losses are raised, or logged once, on the driver."""
    histories = driver.histories(descriptions.values())
    extents = {
        name: ResourceExtent(description.incarnation, description.earliest, histories[name])
        for name, description in descriptions.items()
    }
    losses = lost(ranges, extents)
    if losses and fail_on_data_loss:
        raise _merge(losses)
    for loss in losses:
        log.warning("skipped, since failOnDataLoss is false: %s", loss)
    return dated(without(ranges, losses), extents)


def _merge(losses: Sequence[DataLoss]) -> DataLoss:
    """The first loss, with the messages of all."""
    first = losses[0]
    text = "; ".join(loss.message for loss in losses)
    return DataLoss(
        first.resource,
        first.first,
        first.end,
        f"{text}. With failOnDataLoss=false this is logged and skipped",
    )


def _stop_on_sigterm() -> None:
    """Raise SystemExit on SIGTERM, so that `stop` is called. Spark ends this process by two SIGTERMs, without `stop`;
    the next run of the query would then have to wait until the holdings of this one expire.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _exit_on_signal)


def _exit_on_signal(_signal: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(0)
