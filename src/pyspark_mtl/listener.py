"""`spark.streams.addListener(pyspark_mtl.LagListener())`: every query's lag, in the log and as a dict."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_mtl.lag import Lag, lags
from pyspark_mtl.limits import LAST_QUERIES

log = logging.getLogger(__name__)


class LagListener(StreamingQueryListener):
    """Logs (at INFO) and keeps what each query's last trigger left unread in each resource."""

    def __init__(self) -> None:
        self._last: dict[str, dict[str, Lag]] = {}

    @property
    def lag(self) -> dict[str, dict[str, dict[str, float]]]:
        """{query: {resource: {"contents", "bytes", "seconds"}}} after each query's last trigger.

        A query goes by its name, by its id where it has none. One that has ended is still there.
        """
        return {
            query: {name: asdict(lag) for name, lag in found.items()}
            for query, found in dict(self._last).items()
        }

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 Spark's names, here and below
        """Nothing is known yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """A trigger is over, or an idle query says that it lives."""
        progress = event.progress
        found = lags(progress.sources, progress.timestamp)
        query = progress.name or str(progress.id)
        self._last.pop(query, None)  # the one heard of last is the last to go
        if not found:  # of other formats; or its resources are gone, and what it was behind in them is over
            return
        self._last[query] = found
        if len(self._last) > LAST_QUERIES:
            del self._last[next(iter(self._last))]
        for name, lag in found.items():
            log.info(
                "query %s is behind in %s: %d contents, %d bytes, %.1f s",
                query,
                name,
                lag.contents,
                lag.bytes,
                lag.seconds,
            )

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing has changed."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Its last lag stays."""
