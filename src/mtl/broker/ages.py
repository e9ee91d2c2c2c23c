"""How old things are, by a clock that a jump of the wall clock does not move.

Contents and records carry stamps: microseconds since 1970, as the wall clock was. That clock may be set forward or
back by hours. So an age is not the difference of two readings of it:

- while the broker runs, the time that has passed is what the machine counts since its boot, sleep included;
- across a restart under the same boot it is the same count, from the last one that the broker noted (`ClockRecord`);
- across a boot nobody has counted. A long downtime and a clock that was set forward look alike. Up to DOWNTIME_S of
  the difference count as time that has passed, the rest as a jump.

A difference between the wall clock and the count above CLOCK_JUMP_S is a jump. It is reported, and kept in the note.
What was stamped before a jump forward counts as younger by its size, from then on. A jump back takes such jumps back,
as far as it reaches: a wrong clock was put right. What was stamped ahead of the clock then has the age 0 until the
clock is there again. So an age is never above the true one by more than those two limits, and a jump removes nothing.
It may keep things longer, by its own size.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from mtl.broker import actions as a
from mtl.broker.outbox import Outbox
from mtl.storage.records import ClockRecord

log = logging.getLogger("mtl.broker")

CLOCK_JUMP_S = 5.0
"""How far the wall clock may be from what has passed before that counts as a jump. A leap second and a pause of a
virtual machine stay below. Ages may be wrong by so much, as they are by limits.RETENTION_CHECK_S."""

CLOCK_JUMPS = 100
"""Jumps of the wall clock that are remembered, 16 octets each. When there are more the two oldest become one of
the size of both at the place of the second, which makes what was stamped between them younger by the first."""

CLOCK_NOTE_S = 60.0
"""How often the broker notes where its clocks are: one small transaction. After a power failure ages go on from the
last note, so they may be too low by so much."""

DOWNTIME_S = 600.0
"""How much of the time between two boots of the machine counts towards ages. A reboot takes some minutes. What the wall
clock says beyond that may be a wrong clock, and is not counted: contents are kept longer by it."""


class Jump(NamedTuple):
    """The wall clock read `start` and then, at once, `end`; in microseconds since 1970."""

    start: int
    end: int

    def younger(self, stamp: int) -> int:
        """The stamp that an age is counted from, now that the clock has jumped.

        What was stamped before `start` was so old then, and is no older now. A stamp in between is from an earlier jump
        forward and back: how old it was is not known.
        """
        return stamp if stamp >= self.end else min(stamp, self.start) + self.end - self.start

    def earlier(self, stamp: int) -> int:
        """The reverse: stamps below the result are those that count as below `stamp`."""
        return stamp if stamp > self.end else stamp - (self.end - self.start)


class Ages:
    """See the module. `look` is called with every reading of the clocks before an age is asked for.

    `noted` is what the last run left. Without it (an older version, a damaged record, a kill before the first note)
    nobody knows of the jumps before, and what was stamped before this start counts as stamped now. `boot` tells this
    boot of the machine from others; empty where nothing tells.
    """

    def __init__(self, outbox: Outbox, noted: ClockRecord | None, boot: str) -> None:
        now = outbox.now
        self._outbox = outbox
        self._boot = boot
        self._since_us = noted.since_us if noted is not None else now.wall_us
        self._jumps = [Jump(*jump) for jump in noted.jumps] if noted is not None else []
        """One after the other: each begins where the one before it ends, or above."""
        self._offset_us = now.wall_us - _counted_us(now)
        """What the wall clock reads beyond the count, as far as that is no jump."""
        if noted is not None:
            self._offset_us = self._expected(noted, now) - _counted_us(now)
            self.look()

    def _expected(self, noted: ClockRecord, now: a.Now) -> int:
        """What the wall clock would read had it not jumped since the note."""
        passed = _counted_us(now) - noted.counted_us
        if not self._boot or noted.boot != self._boot or passed < 0:
            passed = min(max(0, now.wall_us - noted.wall_us), int(DOWNTIME_S * 1e6))
        return noted.wall_us + passed

    # --- the clocks -----------------------------------------------------------------------------------------

    def look(self) -> Jump | None:
        """Take a reading: the time of the outbox. The jump that it shows, if any."""
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
            self._take_back(-by)
        log.warning(
            "the wall clock jumped %s by %.0f s. Nothing is removed because of that: what was stamped before counts "
            "as younger by so much",
            "forward" if by > 0 else "back",
            abs(by) / 1e6,
        )
        self.note()
        return jump

    def _remember(self, jump: Jump) -> None:
        self._jumps.append(jump)
        if len(self._jumps) > CLOCK_JUMPS:
            (start, end), second, *rest = self._jumps
            self._jumps = [Jump(second.start - (end - start), second.end), *rest]

    def _take_back(self, by: int) -> None:
        """What a jump added to stamps, a jump back may take off again: ages only become lower by the two together."""
        while self._jumps and by > 0:
            last = self._jumps.pop()
            taken = min(by, last.end - last.start)
            by -= taken
            if last.end - taken > last.start:
                self._jumps.append(Jump(last.start, last.end - taken))
        self._since_us -= by

    def note(self) -> None:
        """Write down where the clocks are, for the next start. Should it fail, the note before is still a true one."""
        jumps = [(jump.start, jump.end) for jump in self._jumps]
        counted = _counted_us(self._outbox.now)
        record = ClockRecord(self._boot, counted, counted + self._offset_us, jumps, self._since_us)
        self._outbox.save((record,), (), lambda _: None)

    # --- ages -----------------------------------------------------------------------------------------------

    def of(self, stamp_us: int) -> float:
        """The age in seconds of what carries a stamp; 0 for one that lies ahead of the clock."""
        stamp_us = max(stamp_us, self._since_us)
        for jump in self._jumps:
            stamp_us = jump.younger(stamp_us)
        return max(0, self._now_us - stamp_us) / 1e6

    def stamp(self, age_s: float) -> int:
        """The stamp of an age in seconds: what carries a lower one is older."""
        stamp_us = self._now_us - int(age_s * 1e6)
        for jump in reversed(self._jumps):
            stamp_us = jump.earlier(stamp_us)
        return stamp_us if stamp_us > self._since_us else 0

    @property
    def _now_us(self) -> int:
        return _counted_us(self._outbox.now) + self._offset_us


def _counted_us(now: a.Now) -> int:
    return int(now.since_boot * 1e6)
