"""Records the ends of idle logs, so that later damage can be distinguished from an unfinished write."""

from __future__ import annotations

from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.broker.outbox import Outbox, Result
from mtl.broker.writing.intake import Intake
from mtl.broker.writing.resource import Resource
from mtl.storage.api import Mark


class Idle:
    """Waits until a log was idle for MARK_IDLE_S. The logs are sorted by their last content."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._grew: dict[Intake, float] = {}

    @property
    def has_logs(self) -> bool:
        """Whether there is a log with an unrecorded end."""
        return bool(self._grew)

    def grew(self, resource: Resource) -> None:
        """A log has new contents, with the durability that its resource asks for."""
        self._wait(resource.intake)

    def _wait(self, intake: Intake) -> None:
        self._grew.pop(intake, None)
        self._grew[intake] = self._outbox.now.mono

    def run(self) -> None:
        """Record the ends of logs that were idle for long enough, MARKS_AT_ONCE at most."""
        due = self._outbox.now.mono - limits.MARK_IDLE_S
        idle = [intake for intake, since in self._grew.items() if since <= due]
        for intake in idle[: broker_limits.MARKS_AT_ONCE]:
            if intake.busy or intake.held:
                self._wait(intake)
                continue
            del self._grew[intake]
            if intake.stopped is None:
                self._mark(intake)

    def _mark(self, intake: Intake) -> None:
        def marked(result: Result) -> None:
            if result is False and intake not in self._grew:  # the end was not recorded
                self._wait(intake)

        intake.submit(lambda number: Mark(number, intake.key), marked)
