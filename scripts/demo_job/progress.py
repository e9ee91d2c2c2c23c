"""The progress of a streaming query, from its checkpoint, which outlives all its processes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path


class Checkpoint:
    """A query's checkpoint directory, which need not exist yet. Batches count from 0; -1 is none."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def planned(self) -> int:
        """The newest batch in the offset log: its range is fixed, and Spark will run it, also after a crash."""
        return self._newest("offsets")

    @property
    def committed(self) -> int:
        """The newest batch in the commit log: Spark knows that it is done."""
        return self._newest("commits")

    @property
    def query(self) -> str | None:
        """The query's id, the same after every restart; None before its first start."""
        metadata = self.directory / "metadata"
        if not metadata.exists():
            return None
        return str(json.loads(metadata.read_text(encoding="utf-8"))["id"])

    def _newest(self, log: str) -> int:
        # Spark writes under a name with dots and renames: a number alone is complete.
        numbers = (int(path.name) for path in self.directory.glob(f"{log}/*") if path.name.isdigit())
        return max(numbers, default=-1)


class Standstill:
    """The time for which a query has not moved."""

    def __init__(self, checkpoint: Checkpoint, clock: Callable[[], float] = time.monotonic) -> None:
        self._checkpoint = checkpoint
        self._clock = clock
        self._last = (-1, -1)
        self._since = clock()

    @property
    def seconds(self) -> float:
        """Seconds since the last change found by a call of this method."""
        now = (self._checkpoint.planned, self._checkpoint.committed)
        if now != self._last:
            self._last, self._since = now, self._clock()
        return self._clock() - self._since
