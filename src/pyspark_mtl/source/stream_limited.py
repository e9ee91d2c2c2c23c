"""The stream reader for Spark 4.2 and newer, which passes the limits and the start of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from mtl.wire.control import Description
from pyspark_mtl.options.kinds import LARGEST
from pyspark_mtl.options.settings import ReadSettings
from pyspark_mtl.source import offsets
from pyspark_mtl.source.source import StreamReader


class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):
    """Adds batches with limits, and Trigger.AvailableNow."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """With limits, any ReadMaxRows as a marker; Trigger.Once passes ReadAllAvailable instead: no limits."""
        if isinstance(self._settings_or_error, ReadSettings) and self._settings_or_error.limits.any:
            return ReadMaxRows(self._settings_or_error.limits.max_contents or LARGEST)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the run at the current end of each resource."""
        _, progress = self._query()
        progress.fix_the_end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch. With AvailableNow this confirms `start`, which is in the commit log: Spark does
        not call `commit` for the last batch of a run.
        """
        if self._is_idle(start):
            return start
        driver, progress = self._query()
        begin = offsets.parse(start)
        if progress.is_fixed or self._settings.confirm_on_start:
            self._confirm(driver, begin)
        end = self._next_batch(begin, unlimited=isinstance(limit, ReadAllAvailable))
        if progress.is_fixed and end == begin:
            driver.close()  # the run has ended; Spark ends the process without a further call
        return self._end_json

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The resources that latestOffset found, for the query's progress (lag.py). Requests only unread contents."""
        if self._progress is None or not self._progress.has_polled:
            return None
        if self._report is None:
            latest = self._progress.latest
            self._report = {"resources": self._reports([latest[name] for name in sorted(latest)])}
            self._report["version"] = offsets.VERSION
        return self._report

    def _reports(self, descriptions: Sequence[Description]) -> dict[str, dict[str, Any]]:
        driver, progress = self._query()
        reports: dict[str, dict[str, Any]] = {}
        behind = []
        for description in descriptions:
            name, end = description.resource, progress.last_to_read(description)
            reports[name] = {"i": description.incarnation, "n": end}
            reached = self._end.resources.get(name)
            if reached is not None and reached.incarnation == description.incarnation and reached.next < end:
                behind.append((description, reached.next, end))
        for (description, _, _), unread in zip(behind, driver.unread(behind), strict=True):
            if unread is not None:
                reports[description.resource] |= {"bytes": unread.bytes, "since": unread.timestamp}
        return reports
