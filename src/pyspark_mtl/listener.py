"""LagListener: the lag of every query, in the log and as a dict.

spark.streams.addListener(pyspark_mtl.LagListener())
"""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_mtl.lag import Lag, lags
from pyspark_mtl.limits import LAST_QUERIES

log = logging.getLogger(__name__)


class LagListener(StreamingQueryListener):
    """Logs (at INFO) and keeps the lag of each query, by resource, after its last trigger."""

    def __init__(self) -> None:
        self._last: dict[str, dict[str, Lag]] = {}

    @property
    def lag(self) -> dict[str, dict[str, dict[str, float]]]:
        """{query: {resource: {"contents", "bytes", "seconds"}}} after each query's last trigger.

        The key of a query is its name, or its id if it has none. Ended queries are kept.
        """
        return {
            query: {name: asdict(lag) for name, lag in last.items()}
            for query, last in dict(self._last).items()
        }

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 Spark's names, here and below
        """No effect: the lag is not known yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Called after a trigger, and from time to time by an idle query."""
        progress = event.progress
        last = lags(progress.sources, progress.timestamp)
        query = progress.name or str(progress.id)
        self._last.pop(query, None)  # keeps the order of the last reports: the oldest is removed first
        if not last:  # no source of format mtl, or all its resources are deleted
            return
        self._last[query] = last
        if len(self._last) > LAST_QUERIES:
            del self._last[next(iter(self._last))]
        for name, lag in last.items():
            log.info(
                "query %s is behind in %s: %d contents, %d bytes, %.1f s",
                query,
                name,
                lag.contents,
                lag.bytes,
                lag.seconds,
            )

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """No effect: the lag has not changed."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """No effect: the last lag is kept."""
