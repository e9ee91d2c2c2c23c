"""Ages of contents and records, which a jump of the wall clock does not change.

Contents and records carry stamps: the reading of the wall clock in microseconds since 1970. That clock may be set
forward or back by hours. So an age is not the difference of two of its readings:

- while the broker runs, the elapsed time is the machine's count since its boot, sleep included;
- across a restart under the same boot it is the same count, from the broker's last note (`ClockRecord`) on;
- across a boot there is no count. A long downtime and a clock that was set forward look alike. Up to DOWNTIME_S of
  the difference count as elapsed time, the rest as a jump.

A difference between the wall clock and the count above CLOCK_JUMP_S is a jump. It is logged, and kept in the note.
After a jump forward all earlier stamps count as younger by the size of the jump. A jump back cancels earlier jumps
forward, up to its own size: a wrong clock was corrected. A stamp ahead of the corrected clock has the age 0 until the
clock has reached it; contents have no such stamps after the log's next setback (`mtl.log.stamps`). So an age exceeds
the true one by at most those two limits: no jump removes contents early. A jump may keep them longer, by its own size.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from mtl.broker import actions
from mtl.broker.outbox import Outbox
from mtl.storage.records import ClockRecord

log = logging.getLogger("mtl.broker")

CLOCK_JUMP_S = 5.0
"""Seconds between the wall clock and the count above which the difference is a jump. A leap second and a pause of a
virtual machine stay below. Ages may be wrong by this time, and are wrong by limits.RETENTION_CHECK_S anyway."""

CLOCK_JUMPS = 100
"""Jumps of the wall clock that are remembered, 16 octets each. Above that the two oldest become one jump with the size
of both, at the place of the second. Stamps between them then count as younger by the size of the first."""

CLOCK_NOTE_S = 60.0
"""Seconds between two notes of the clocks: one small transaction each. After a power failure ages continue from the
last note, so they may be too low by this time."""

DOWNTIME_S = 600.0
"""Most of the time between two boots that counts towards ages, in seconds. A reboot takes some minutes. More may be a
wrong wall clock, and is not counted: contents are kept longer by that time."""


class Jump(NamedTuple):
    """A jump: the wall clock read `start` and then, at once, `end`; in microseconds since 1970."""

    start: int
    end: int

    def younger(self, stamp: int) -> int:
        """The stamp that counts instead of `stamp` after this jump.

        A stamp before `start` keeps the age that it had at the jump. A stamp between `start` and `end` is from an
        earlier jump forward and back; its age is not known, so it counts as made at this jump.
        """
        return stamp if stamp >= self.end else min(stamp, self.start) + self.end - self.start

    def earlier(self, stamp: int) -> int:
        """Inverse of `younger`: the original stamp below which contents are older than `stamp`."""
        return stamp if stamp > self.end else stamp - (self.end - self.start)


class CorrectedClock:
    """The wall clock without its jumps, and ages by it. `compare_clocks` is called with every reading of the clocks,
    before an age is asked for.

    `noted` is the last note of the previous run. Without it (a damaged record, a kill before the first note) earlier
    jumps are unknown, and every stamp before this start counts as made now. `boot` identifies this boot of the machine;
    it is empty where the system has no such id.
    """

    def __init__(self, outbox: Outbox, noted: ClockRecord | None, boot: str) -> None:
        now = outbox.now
        self._outbox = outbox
        self._boot = boot
        self._since_us = noted.since_us if noted is not None else now.wall_us
        self._jumps = [Jump(*jump) for jump in noted.jumps] if noted is not None else []
        """In order of time: each begins at or above the end of the one before."""
        self._offset_us = now.wall_us - _counted_us(now)
        """The wall clock minus the count, in microseconds, as of the start or the last jump."""
        if noted is not None:
            self._offset_us = self._expected(noted, now) - _counted_us(now)
            self.compare_clocks()

    def _expected(self, noted: ClockRecord, now: actions.Now) -> int:
        """The reading that the wall clock would have now without a jump since the note."""
        passed = _counted_us(now) - noted.counted_us
        if not self._boot or noted.boot != self._boot or passed < 0:
            passed = min(max(0, now.wall_us - noted.wall_us), int(DOWNTIME_S * 1e6))
        return noted.wall_us + passed

    # --- the clocks -----------------------------------------------------------------------------------------

    def compare_clocks(self) -> Jump | None:
        """Compare the clocks, as read in the outbox's `now`. Returns the jump that they show, if any."""
        now = self._outbox.now
        offset = now.wall_us - _counted_us(now)
        by = offset - self._offset_us
        if abs(by) <= CLOCK_JUMP_S * 1e6:
            return None
        self._offset_us = offset
        jump = Jump(now.wall_us - by, now.wall_us)
        if by > 0:
            self._remember(jump)
        else:
            self._cancel_jumps(-by)
        log.warning(
            "the wall clock jumped %s by %.0f s. No contents are removed because of this: the ages of earlier "
            "contents are reduced by the jump",
            "forward" if by > 0 else "back",
            abs(by) / 1e6,
        )
        self.save_clocks()
        return jump

    def _remember(self, jump: Jump) -> None:
        self._jumps.append(jump)
        if len(self._jumps) > CLOCK_JUMPS:
            (start, end), second, *rest = self._jumps
            self._jumps = [Jump(second.start - (end - start), second.end), *rest]

    def _cancel_jumps(self, by: int) -> None:
        """Cancel earlier jumps forward by up to `by` µs, the latest first: both together only lower ages."""
        while self._jumps and by > 0:
            last = self._jumps.pop()
            cancelled = min(by, last.end - last.start)
            by -= cancelled
            if last.end - cancelled > last.start:
                self._jumps.append(Jump(last.start, last.end - cancelled))
        self._since_us -= by

    def save_clocks(self) -> None:
        """Save the clocks for the next start. If that fails the previous note is still valid."""
        jumps = [(jump.start, jump.end) for jump in self._jumps]
        counted = _counted_us(self._outbox.now)
        record = ClockRecord(self._boot, counted, counted + self._offset_us, jumps, self._since_us)
        self._outbox.save((record,))

    # --- ages -----------------------------------------------------------------------------------------------

    def age(self, stamp_us: int) -> float:
        """The age of a stamp in seconds; 0 for a stamp ahead of the clock."""
        stamp_us = max(stamp_us, self._since_us)
        for jump in self._jumps:
            stamp_us = jump.younger(stamp_us)
        return max(0, self._now_us - stamp_us) / 1e6

    def stamp(self, age_s: float) -> int:
        """The stamp that has this age in seconds; lower stamps are older."""
        stamp_us = self._now_us - int(age_s * 1e6)
        for jump in reversed(self._jumps):
            stamp_us = jump.earlier(stamp_us)
        return stamp_us if stamp_us > self._since_us else 0

    @property
    def _now_us(self) -> int:
        return _counted_us(self._outbox.now) + self._offset_us


def _counted_us(now: actions.Now) -> int:
    return int(now.since_boot * 1e6)
