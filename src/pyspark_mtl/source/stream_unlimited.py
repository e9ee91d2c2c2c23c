"""The stream reader for Spark 4.0 and 4.1, which always request all contents and do not pass the start of a batch.

The start follows from the calls before. A batch starts at the end of the previous one, and a restarted query first
plans the empty range at the last offset in its log (PythonMicroBatchStream.setLatestSeenOffset; seen on 4.0.5 and
4.1.4).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

import pyspark
from pyspark.sql.datasource import InputPartition

from pyspark_mtl import versions
from pyspark_mtl.source import offsets
from pyspark_mtl.source.source import StreamReader

log = logging.getLogger(__name__)


class UnlimitedStreamReader(StreamReader):
    """Every batch has all available contents. The missing features are logged once."""

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 as 4.0 and 4.1 call it
        """The end of the next batch."""
        if self._is_idle(self._end_json):
            return self._end_json
        driver, _ = self._query()
        _log_once()
        if self._settings.confirm_on_start:
            self._confirm(driver, self._end)
        self._next_batch(self._end, unlimited=True)
        return self._end_json

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch. The end of the batch is the start of the next one."""
        planned = super().partitions(start, end)
        self._reached(offsets.parse(end))
        return planned


@cache
def _log_once() -> None:
    log.warning(versions.missing(pyspark.__version__))
