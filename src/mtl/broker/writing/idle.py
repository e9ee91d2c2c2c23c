"""Logs that got contents and are idle: their end is recorded, so that later damage is told from an unfinished write."""

from __future__ import annotations

from mtl import limits
from mtl.broker.outbox import Outbox, Result
from mtl.broker.writing.intake import Intake
from mtl.broker.writing.resource import Resource
from mtl.storage.api import Mark


class Idle:
    """Waits until a log has got nothing for MARK_IDLE_S. Those that got contents last come last."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._grew: dict[Intake, float] = {}

    @property
    def any(self) -> bool:
        """Whether the end of a log is not recorded."""
        return bool(self._grew)

    def grew(self, resource: Resource) -> None:
        """A log has new contents, durable as its resource wants it."""
        self._wait(resource.intake)

    def _wait(self, intake: Intake) -> None:
        self._grew.pop(intake, None)
        self._grew[intake] = self._outbox.now.mono

    def run(self) -> None:
        """Record the ends of some of those that were idle for long enough."""
        due = self._outbox.now.mono - limits.MARK_IDLE_S
        idle = [intake for intake, since in self._grew.items() if since <= due]
        for intake in idle[: limits.MARKS_AT_ONCE]:
            if intake.busy or intake.held:
                self._wait(intake)
                continue
            del self._grew[intake]
            if intake.stopped is None:
                self._mark(intake)

    def _mark(self, intake: Intake) -> None:
        def marked(result: Result) -> None:
            if result is False and intake not in self._grew:  # the disk did not take it
                self._wait(intake)

        intake.submit(lambda number: Mark(number, intake.key), marked)
