"""How a streaming query's offset moves: what is new, what was lost, how much of it the next batch takes.

It asks the broker through a small interface and is told the time, so that it runs in a test without either.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from mtl.errors import DataLoss, Refused
from mtl.wire.control import UNKNOWN_RESOURCE, Description
from pyspark_mtl.admission import Allowance, Waiting, allow, capped, is_held_back
from pyspark_mtl.ends import Ends, ends_too_early
from pyspark_mtl.kinds import EARLIEST, GROUP, LARGEST, Place, matches
from pyspark_mtl.limits import LATEST_OFFSET_WAIT_MS
from pyspark_mtl.offsets import INITIAL, Offset, Position
from pyspark_mtl.options import Limits, ReadSettings

log = logging.getLogger(__name__)

WAIT_S = LATEST_OFFSET_WAIT_MS / 1000


class Broker(Protocol):
    """What of the broker is asked here (pyspark_mtl.driver.Driver)."""

    def look(self, after: Mapping[str, int] | None = None, wait: float = 0.0) -> dict[str, Description]:
        """The query's resources that exist."""

    def is_silent(self, wait: float) -> bool:
        """Whether nothing came since the last look with `after`, nor comes within `wait` seconds."""

    def locate(self, found: Description, place: Place, *, create_cursor: bool = False) -> int:
        """The sequence that `place` means."""

    def locate_end(self, found: Description, place: Place) -> int:
        """The sequence to end before; a time after all contents means the end."""

    def within(self, resource: str, first: int, octets: int) -> int:
        """The end of what lies within so many stored octets of `first`."""


class Progress:
    """One query run's view of what there is to read. `now` is monotonic, in seconds."""

    def __init__(self, settings: ReadSettings, broker: Broker, now: float) -> None:
        self._settings = settings
        self._broker = broker
        self._last_batch = now
        self._looked = False
        self._held_back = False
        self._idle: Offset | None = None
        self._caps: dict[tuple[str, str], int] | None = None
        self._seen: dict[str, int] = {}
        self._told: set[tuple[str, str]] = set()
        self._deleted: list[str] = []  # nothing but the offset knows their names any more
        self._ends = Ends(settings.ending, broker.locate_end)
        self.latest: dict[str, Description] = {}
        """The resources as they were found last."""

    def fix_the_end(self) -> None:
        """Trigger.AvailableNow: read up to what is there now, per incarnation, and nothing that comes later."""
        found = self._broker.look()
        self._caps = {(name, one.incarnation): one.next for name, one in found.items()}

    @property
    def is_fixed(self) -> bool:
        """Whether the end is fixed: minimum and delay are ignored then."""
        return self._caps is not None

    def advance(self, start: Offset, now: float, *, unlimited: bool, wait: float = WAIT_S) -> Offset:
        """The end of the next batch after `start`, or `start` itself when there is nothing to do.

        Waits for contents when there are none, `wait` seconds at most. DataLoss for what is gone, unless failOnDataLoss
        is false; Refused 404 for a resource that is named and never was there. One that a pattern found and that is
        gone leaves the offset with the loss: nobody could take it out of the options.
        """
        found = self._found(start, self._patience(now, wait))
        positions = {name: self._position(start, name, one) for name, one in found.items()}
        self._looked = True
        waiting = [self._waiting(positions[name].next, one) for name, one in found.items()]
        limits = Limits() if unlimited else self._settings.limits
        total = sum(one.count for one in waiting)
        held_back = not self.is_fixed and is_held_back(
            total, limits.min_contents, limits.max_delay, now - self._last_batch
        )
        allowed = [] if held_back else allow(waiting, limits.max_contents, limits.max_bytes)
        if allowed:
            self._last_batch = now
        self._held_back = held_back and total > 0
        admitted = {one.resource for one in allowed}
        for one in allowed:
            before = positions[one.resource]
            positions[one.resource] = Position(before.incarnation, self._end(one), before.began)
        self._seen = {
            name: LARGEST if self._is_done(name, positions[name]) else one.next
            for name, one in found.items()
            if name not in admitted
        }
        end = start.without(self._deleted).with_positions(positions)
        self._idle = end if end is start and not total and not self.is_fixed else None
        return end

    def is_idle(self, start: Offset, now: float, wait: float = WAIT_S) -> bool:
        """Whether `advance` from `start` would find nothing, as it did with the same object the last time; waits as
        that does. It looks at no resource, so that an idle query of thousands costs no more than one of a single one.
        """
        return start is self._idle and self._broker.is_silent(self._patience(now, wait))

    # --- what there is --------------------------------------------------------------------------------------

    def _found(self, start: Offset, patience: float) -> dict[str, Description]:
        """The resources that this batch may read."""
        known = {name: max(one.next, self._seen.get(name, 0)) for name, one in start.resources.items()}
        found = self.latest = self._broker.look(None if self.is_fixed else known, patience)
        at_the_beginning = {name for name, _ in self._caps or ()}
        missing = [name for name in self._expected(start, found) if name not in at_the_beginning]
        for name in missing:
            self._missing(name, start.resources.get(name))
        self._deleted = missing if self._settings.pattern is not None else []
        if self._caps is None:
            return found
        # What vanishes or comes while an AvailableNow run goes on counts as finished.
        return {name: one for name, one in found.items() if (name, one.incarnation) in self._caps}

    def _expected(self, start: Offset, found: Mapping[str, Description]) -> list[str]:
        """What should be there and is not: what is named, or what the pattern has found before."""
        pattern = self._settings.pattern
        if pattern is None:
            return [name for name in self._settings.resources or () if name not in found]
        return [name for name in start.resources if name not in found and matches(pattern, name)]

    def _patience(self, now: float, wait: float) -> float:
        """How long to wait for contents: not past the moment at which what waits already is let through."""
        if self.is_fixed:
            return 0.0
        left = self._last_batch + self._settings.limits.max_delay - now
        return max(0.0, min(wait, left)) if self._held_back else wait

    def _missing(self, name: str, before: Position | None) -> None:
        if before is None:
            raise absent(name)
        if self._is_done(name, before):
            return
        self._lost(
            DataLoss(
                name,
                before.next,
                before.next,
                f"resource {name!r} was deleted: whatever came in it from {before.next} on is gone",
            ),
            before.incarnation,
        )

    def _position(self, start: Offset, name: str, found: Description) -> Position:
        """Where reading goes on in a resource; where it begins in one that is new."""
        before = start.resources.get(name)
        if before is None:
            began = self._begin(found, self._place(start, name))
            return Position(found.incarnation, began, began)
        if self._is_done(name, before):
            return before
        if before.incarnation != found.incarnation:
            self._lost(
                DataLoss(
                    name,
                    before.next,
                    before.next,
                    f"resource {name!r} was deleted and made again: whatever came in it from {before.next} on, "
                    f"in its incarnation {before.incarnation}, is gone",
                ),
                before.incarnation,
            )
            return Position(found.incarnation, found.earliest, found.earliest)
        if before.next > found.next:
            self._lost(_behind(name, before.next, found), before.incarnation)
        elif before.next < found.earliest:
            end = self._ends.known(name, found.incarnation) or found.next
            if self._settings.fail_on_data_loss or end <= found.earliest:  # or no batch comes that would tell
                self._lost(DataLoss(name, before.next, min(found.earliest, end)), before.incarnation)
        return before

    def last_to_read(self, found: Description) -> int:
        """Where the resource ends for this query: at what is there, or at the end that the options give."""
        end = self._ends.known(found.resource, found.incarnation)
        return found.next if end is None else min(end, found.next)

    def _is_done(self, name: str, position: Position) -> bool:
        """Whether a resource was read to its end: what becomes of it then is no loss."""
        end = self._ends.known(name, position.incarnation)
        return end is not None and position.next >= end

    def _place(self, start: Offset, name: str) -> Place:
        """A new query begins where its options say; what is found later, where no content of it is missed."""
        starting = self._settings.starting
        if start == INITIAL and not self._looked:
            return starting.of(name, EARLIEST)
        return starting.named.get(name, GROUP if starting.default == GROUP else EARLIEST)

    def _begin(self, found: Description, place: Place) -> int:
        began = self._broker.locate(found, place, create_cursor=True)
        end = self._ends.known(found.resource, found.incarnation) or LARGEST
        if began > end and place.kind not in {"time", "group"}:
            raise ends_too_early(found.resource, began, end)
        if began > found.next:
            self._lost(_behind(found.resource, began, found), found.incarnation)
        elif began < min(found.earliest, end):
            self._lost(DataLoss(found.resource, began, min(found.earliest, end)), found.incarnation)
        return min(max(began, found.earliest), found.next)

    def _lost(self, loss: DataLoss, incarnation: str) -> None:
        """Ends the query, or is said once."""
        if self._settings.fail_on_data_loss:
            raise loss
        if (loss.resource, incarnation) not in self._told:
            self._told.add((loss.resource, incarnation))
            log.warning("skipped, since failOnDataLoss is false: %s", loss)

    # --- how much of it -------------------------------------------------------------------------------------

    def _waiting(self, first: int, found: Description) -> Waiting:
        kept = max(first, found.earliest)
        count = max(0, found.next - kept)
        octets = found.bytes * count // max(1, found.next - found.earliest)
        waiting = Waiting(found.resource, kept, kept + count, octets, found.bytes)
        if self._caps is not None:
            waiting = capped(waiting, self._caps.get((found.resource, found.incarnation), kept))
        end = self._ends.bound(found) if waiting.count else None
        return waiting if end is None else capped(waiting, end)

    def _end(self, allowed: Allowance) -> int:
        if allowed.max_bytes is None:
            return allowed.end
        within = self._broker.within(allowed.resource, allowed.first, allowed.max_bytes)
        return max(allowed.first + 1, min(allowed.end, within))


def absent(name: str) -> Refused:
    """The error for a resource that is named in the options and does not exist."""
    return Refused(
        404,
        UNKNOWN_RESOURCE,
        f"the resource {name!r} to read does not exist; create it first",
        missing=[name],
    )


def _behind(name: str, wanted: int, found: Description) -> DataLoss:
    return DataLoss(
        name,
        found.next,
        wanted,
        f"resource {name!r} ends at {found.next} and should be read from {wanted}: "
        f"contents {found.next} to {wanted - 1} are gone, or the broker's data is an older copy",
    )
