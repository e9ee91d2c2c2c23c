"""Records the ends of logs, so that a loss at the end can be distinguished from an unfinished write.

The end of a log is recorded when the log is idle. Under load it is recorded between two groups, by time and by octets:
two syncs in many groups, after the Confirms of the group before. A log of durability "os" would have to be synced for
that, so its end is recorded only when it is idle.
"""

from __future__ import annotations

from dataclasses import dataclass

from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.broker.outbox import Outbox
from mtl.broker.steps import run
from mtl.broker.writing.intake import Intake
from mtl.broker.writing.resource import Resource
from mtl.errors import StorageError
from mtl.storage.api import Mark


@dataclass(slots=True)
class _Unrecorded:
    """A log with an unrecorded end: the time of its first and its last group since, their number, and the octets of the
    log before them.
    """

    since: float
    last: float
    groups: int
    octets: int


class Ends:
    """The logs of resources with an unrecorded end, in the order of their first unrecorded contents."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._logs: dict[Intake, _Unrecorded] = {}
        self._left = broker_limits.MARKS_AT_ONCE
        """The logs whose end may be recorded until the next check."""

    @property
    def any_unrecorded(self) -> bool:
        """Whether there is a log with an unrecorded end."""
        return bool(self._logs)

    def grew(self, resource: Resource) -> None:
        """A log has new contents, with the durability that its resource asks for."""
        intake, now = resource.intake, self._outbox.now.mono
        log = self._logs.get(intake)
        if log is None:
            self._wait(intake)
            return
        log.last = now
        log.groups += 1
        grown = 0 if intake.reader is None else intake.reader.bytes - log.octets
        # Below 0 retention has removed contents, and the size says nothing.
        due = log.groups >= limits.MARK_GROUPS and now - log.since >= limits.MARK_BUSY_S
        if (due or not 0 <= grown < limits.MARK_OCTETS) and resource.record.durability == "sync":
            self._mark(intake)

    def run(self) -> None:
        """Record the ends of logs that were idle for long enough, MARKS_AT_ONCE at most."""
        self._left = broker_limits.MARKS_AT_ONCE
        due = self._outbox.now.mono - limits.MARK_IDLE_S
        for intake in [intake for intake, log in self._logs.items() if log.last <= due]:
            self._mark(intake)

    def _mark(self, intake: Intake) -> None:
        """Record the end, unless the log is busy or too many are recorded at once: a later group or check does it."""
        if intake.stopped is not None:
            del self._logs[intake]
            return
        if not self._left or intake.busy or intake.held:
            return
        self._left -= 1
        del self._logs[intake]
        run(self._record(intake))

    async def _record(self, intake: Intake) -> None:
        try:
            is_recorded = await intake.submit(lambda number: Mark(number, intake.key))
        except StorageError:
            return
        if not is_recorded and intake not in self._logs:
            self._wait(intake)

    def _wait(self, intake: Intake) -> None:
        now = self._outbox.now.mono
        self._logs[intake] = _Unrecorded(now, now, 1, 0 if intake.reader is None else intake.reader.bytes)
