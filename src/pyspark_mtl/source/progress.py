"""Moves a streaming query's offset: finds new contents and losses, and decides the size of the next batch.

The broker is behind a small interface and time is an argument, so that tests need neither a broker nor a clock.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from mtl.errors import DataLoss, Refused
from mtl.wire.control import UNKNOWN_RESOURCE, Description
from mtl.wire.history import History
from pyspark_mtl.limits import LATEST_OFFSET_WAIT_MS, PACED_S
from pyspark_mtl.options.kinds import EARLIEST, GROUP, LARGEST, ReadPosition, matches
from pyspark_mtl.options.settings import Limits, ReadSettings
from pyspark_mtl.source.admission import Allowance, Waiting, allow, capped, is_held_back
from pyspark_mtl.source.ends import Ends, ResourcePosition, ends_too_early
from pyspark_mtl.source.offsets import Offset, Position
from pyspark_mtl.source.planning import OR_ANOTHER_BROKER, diverged

log = logging.getLogger(__name__)

WAIT_S = LATEST_OFFSET_WAIT_MS / 1000


class Changes(Protocol):
    """The query's resources, and whether they change (pyspark_mtl.source.resource_watch.ResourceWatch)."""

    def find(self, known: Mapping[str, Position] | None = None, wait: float = 0.0) -> dict[str, Description]:
        """The query's resources that exist; waits until they differ from `known`."""

    def is_silent(self, wait: float) -> bool:
        """Whether the resources have not changed since the last `find` with `known`, and do not change within
        `wait` seconds.
        """


class BrokerRequests(Protocol):
    """The requests to the broker that this module needs (pyspark_mtl.source.driver.Driver)."""

    @property
    def watch(self) -> Changes:
        """The query's resources."""

    def histories(self, descriptions: Iterable[Description]) -> dict[str, History]:
        """The epochs of their logs."""

    def locate(self, wanted: Sequence[ResourcePosition], *, create_cursors: bool = False) -> list[int]:
        """The sequence of each position."""

    def locate_ends(self, wanted: Sequence[ResourcePosition]) -> list[int]:
        """The end (exclusive) of reading for each position; for a time after all contents the end of the resource."""

    def ends_within(self, wanted: Sequence[tuple[str, int, int]]) -> list[int]:
        """For each resource, first sequence and number of octets: the end of the contents within so many stored octets
        from there on.
        """


class Progress:
    """The progress of one query run. `now` is monotonic, in seconds."""

    def __init__(self, settings: ReadSettings, broker: BrokerRequests, now: float) -> None:
        self._settings = settings
        self._broker = broker
        self._watch = broker.watch
        self._last_batch = now
        self._held_back = False
        self._idle: Offset | None = None
        self._histories: dict[str, History] = {}
        self._caps: dict[str, Description] | None = None
        self._known_next: dict[str, int] = {}
        self._reported_losses: set[tuple[str, str]] = set()
        self._deleted: list[str] = []  # found by the pattern earlier: only the offset has their names
        self._ends = Ends(settings.ending, broker.locate_ends)
        self.answered_at = -math.inf
        """When the caller got its last answer, which it notes here."""
        self.has_polled = False
        self.latest: dict[str, Description] = {}
        """The resources that the last `find` returned; valid if `has_polled` (there may be none)."""

    def fix_the_end(self) -> None:
        """Trigger.AvailableNow: read only the contents that exist now, per incarnation.

        A resource that is deleted before its end was read is a loss in this run; a resource that is deleted later
        is a loss in the next run.
        """
        self._caps = dict(self._watch.find())

    @property
    def is_fixed(self) -> bool:
        """Whether the end is fixed. Then minOffsetsPerTrigger and maxTriggerDelay are ignored."""
        return self._caps is not None

    def advance(self, start: Offset, now: float, *, unlimited: bool) -> Offset:
        """The end of the next batch after `start`, or `start` itself if there are no contents to read.

        Without new contents it waits, WAIT_S at most. DataLoss for lost contents, unless failOnDataLoss is
        false. Refused 404 for a named resource that never existed. A deleted resource that a pattern had found is
        removed from the offset with the loss, since no option names it.
        """
        descriptions = self._present(start, self._patience(now))
        self._histories = self._broker.histories(self._of_other_epochs(start, descriptions))
        beginnings = self._beginnings(start, descriptions)
        positions = {
            name: beginnings[name] if name in beginnings else self._position(start, name, description)
            for name, description in descriptions.items()
        }
        self._ends.look_up(
            [descriptions[name] for name, at in positions.items() if at.next < descriptions[name].next]
        )
        waiting = [
            self._waiting(positions[name].next, description) for name, description in descriptions.items()
        ]
        limits = Limits() if unlimited else self._settings.limits
        total = sum(resource.count for resource in waiting)
        held_back = not self.is_fixed and is_held_back(
            total, limits.min_contents, limits.max_delay, now - self._last_batch
        )
        allowed = [] if held_back else allow(waiting, limits.max_contents, limits.max_bytes)
        if allowed:
            self._last_batch = now
        self._held_back = held_back and total > 0
        admitted = {allowance.resource for allowance in allowed}
        for allowance, until in zip(allowed, self._batch_ends(allowed), strict=True):
            before = positions[allowance.resource]
            began = None if before == start.resources.get(allowance.resource) else before.began
            epoch = self._epoch(descriptions[allowance.resource], until)
            positions[allowance.resource] = Position(before.incarnation, until, began, epoch)
        self._known_next = {
            name: LARGEST if self._is_complete(name, positions[name]) else description.next
            for name, description in descriptions.items()
            if name not in admitted
        }
        end = start.without(self._deleted).with_positions(positions)
        self._idle = end if end is start and not total and not self.is_fixed else None
        return end

    def is_idle(self, start: Offset, now: float) -> bool:
        """Whether `advance` from `start` would find no contents, as in its last call with the same object. Waits
        like `advance`. Requests no resource, so the cost for an idle query does not grow with the number of
        resources.
        """
        return start is self._idle and self._watch.is_silent(self._patience(now))

    # --- finding contents and losses ------------------------------------------------------------------------

    def _present(self, start: Offset, patience: float) -> dict[str, Description]:
        """The resources that this batch may read."""
        known = None if self.is_fixed else self._known_positions(start)
        descriptions = self.latest = self._watch.find(known, patience)
        self.has_polled = True
        missing = [name for name in self._missing(start, descriptions) if not self._is_finished(start, name)]
        for name in missing:
            self._report_missing(start, name)
        self._deleted = missing if self._settings.pattern is not None else []
        if self._caps is None:
            return descriptions
        return {
            name: description
            for name, description in descriptions.items()
            if self._is_of_this_run(start, description)
        }

    def _known_positions(self, start: Offset) -> dict[str, Position]:
        """The state that the query knows: the resources that were found last, up to the known sequence. A resource
        that was not found is left out, so that only its return is a change.
        """
        if not self.has_polled:
            return dict(start.resources)
        return {
            name: Position(self.latest[name].incarnation, max(position.next, self._known_next.get(name, 0)))
            for name, position in start.resources.items()
            if name in self.latest
        }

    def _missing(self, start: Offset, present: Mapping[str, Description]) -> list[str]:
        """Missing resources: named ones, and those that the pattern has found before."""
        pattern = self._settings.pattern
        if pattern is None:
            return [name for name in self._settings.resources or () if name not in present]
        known = {**start.resources, **(self._caps or {})}  # in order, each once
        gone = [name for name in known if name not in present and name != self._settings.excluded]
        return [name for name in gone if matches(pattern, name)]

    def _is_finished(self, start: Offset, name: str) -> bool:
        """Whether an AvailableNow run has read a resource up to the end of the run."""
        reached, cap = self._reached(start, name), self._cap(name)
        if reached is None or cap is None:
            return False
        return reached.incarnation == cap.incarnation and reached.next >= cap.next

    def _is_of_this_run(self, start: Offset, description: Description) -> bool:
        """Whether an AvailableNow run reads a resource. It ignores resources that were created after its start, and a
        resource with the name of one that the run has finished.
        """
        name, cap = description.resource, self._cap(description.resource)
        if cap is None:
            return name in start.resources
        return description.incarnation == cap.incarnation or not self._is_finished(start, name)

    def _cap(self, name: str) -> Description | None:
        """The resource as it was when an AvailableNow run began."""
        return None if self._caps is None else self._caps.get(name)

    def _reached(self, start: Offset, name: str) -> Position | None:
        """The sequence up to which a resource was read. For a resource that only `fix_the_end` has seen, its
        earliest content; else None.
        """
        before, cap = start.resources.get(name), self._cap(name)
        if before is None and cap is not None:
            return Position(cap.incarnation, cap.earliest, cap.earliest)
        return before

    def _patience(self, now: float) -> float:
        """Seconds to wait for contents: none for a caller that paces itself (PACED_S), and at most until
        maxTriggerDelay admits the contents that are held back.
        """
        if self.is_fixed or now - self.answered_at >= PACED_S:
            return 0.0
        left = self._last_batch + self._settings.limits.max_delay - now
        return max(0.0, min(WAIT_S, left)) if self._held_back else WAIT_S

    def _report_missing(self, start: Offset, name: str) -> None:
        before = self._reached(start, name)
        if before is None:
            raise absent(name)
        if self._is_complete(name, before):
            return
        self._lost(
            DataLoss(
                name,
                before.next,
                before.next,
                f"resource {name!r} was deleted: its contents from {before.next} on, if any, are gone"
                f"{OR_ANOTHER_BROKER}",
            ),
            before.incarnation,
        )

    def _beginnings(self, start: Offset, descriptions: Mapping[str, Description]) -> dict[str, Position]:
        """The positions at which reading begins, in the resources that are new to the query."""
        wanted = []
        for name, description in descriptions.items():
            before = self._reached(start, name)
            if before is None or (
                name not in start.resources and before.incarnation == description.incarnation
            ):
                wanted.append((description, self._read_position(start, name)))
        located = self._broker.locate(wanted, create_cursors=True)
        beginnings = {}
        for (description, position), sequence in zip(wanted, located, strict=True):
            began = self._first_sequence(description, position, sequence)
            epoch = description.log_epoch if began == description.next else None
            beginnings[description.resource] = Position(description.incarnation, began, began, epoch)
        return beginnings

    def _position(self, start: Offset, name: str, description: Description) -> Position:
        """The position at which reading continues in a resource."""
        before = self._reached(start, name)
        assert before is not None, "else it begins"
        if self._is_complete(name, before):
            return before
        if before.incarnation != description.incarnation:
            self._lost(
                DataLoss(
                    name,
                    before.next,
                    before.next,
                    f"resource {name!r} was deleted and created again: the contents of its incarnation "
                    f"{before.incarnation} from {before.next} on, if any, are gone{OR_ANOTHER_BROKER}",
                ),
                before.incarnation,
            )
            return Position(description.incarnation, description.earliest, description.earliest)
        history = self._histories.get(name) or _history(description)
        diverges_at = history.diverges_at(before.next, before.epoch)
        if diverges_at is not None:
            message = diverged(name, diverges_at, diverges_at, before.next, before.epoch)
            self._lost(
                DataLoss(name, diverges_at, before.next, message, resume=diverges_at),
                f"{before.epoch} {before.next}",
            )
            at = min(max(diverges_at, description.earliest), description.next)
            return Position(description.incarnation, at, at, history.epoch_of(at))
        if before.next < description.earliest:
            end = self._ends.end_if_known(name, description.incarnation) or description.next
            # otherwise the next batch reports the loss
            if self._settings.fail_on_data_loss or end <= description.earliest:
                self._lost(DataLoss(name, before.next, min(description.earliest, end)), before.incarnation)
        return before

    def _of_other_epochs(self, start: Offset, descriptions: Mapping[str, Description]) -> list[Description]:
        """Resources whose last epoch differs from that of the last content that the query has read."""
        known = ((description, start.resources.get(name)) for name, description in descriptions.items())
        return [
            description
            for description, before in known
            if before and before.epoch not in {None, description.log_epoch}
        ]

    def _epoch(self, description: Description, position: int) -> str | None:
        """The epoch of the content before a position."""
        if position == description.next:
            return description.log_epoch
        return self._broker.histories([description])[description.resource].epoch_of(position)

    def last_to_read(self, description: Description) -> int:
        """The end of the resource for this query: its current end, or the end that the options give."""
        end = self._ends.end_if_known(description.resource, description.incarnation)
        return description.next if end is None else min(end, description.next)

    def _is_complete(self, name: str, position: Position) -> bool:
        """Whether a resource was read to the end of the query: a deletion after that is not a loss."""
        end = self._ends.end_if_known(name, position.incarnation)
        return end is not None and position.next >= end

    def _read_position(self, start: Offset, name: str) -> ReadPosition:
        """The position at which reading begins: in a new query by its options; in resources that are found later at
        their first content.

        A query is new if `start` is offsets.INITIAL; an old query may have no resources yet.
        """
        starting = self._settings.starting
        if start.new:
            return starting.of(name, EARLIEST)
        return starting.named.get(name, GROUP if starting.default == GROUP else EARLIEST)

    def _first_sequence(self, description: Description, position: ReadPosition, began: int) -> int:
        end = self._ends.end_if_known(description.resource, description.incarnation) or LARGEST
        if began > end and position.kind not in {"time", "group"}:
            raise ends_too_early(description.resource, began, end)
        if began > description.next:
            self._lost(_behind(description.resource, began, description), description.incarnation)
        elif began < min(description.earliest, end):
            self._lost(
                DataLoss(description.resource, began, min(description.earliest, end)), description.incarnation
            )
        return min(max(began, description.earliest), description.next)

    def _lost(self, loss: DataLoss, of: str) -> None:
        """Raise the loss, or log it. It is logged once for each `of`: an incarnation, or a position in another copy
        of the log.
        """
        if self._settings.fail_on_data_loss:
            raise loss
        if (loss.resource, of) not in self._reported_losses:
            self._reported_losses.add((loss.resource, of))
            log.warning("skipped, since failOnDataLoss is false: %s", loss)

    # --- the size of a batch --------------------------------------------------------------------------------

    def _waiting(self, first: int, description: Description) -> Waiting:
        kept = max(first, description.earliest)
        count = max(0, description.next - kept)
        stored = description.bytes or 0
        octets = stored * count // max(1, description.next - description.earliest)
        waiting = Waiting(description.resource, kept, kept + count, octets, stored)
        if self._caps is not None:
            cap = self._cap(description.resource)
            known = cap is not None and cap.incarnation == description.incarnation
            waiting = capped(waiting, cap.next if cap and known else kept)
        end = self._ends.bound(description) if waiting.count else None
        return waiting if end is None else capped(waiting, end)

    def _batch_ends(self, allowed: Sequence[Allowance]) -> list[int]:
        """The end of the batch in each resource."""
        limited = [(entry, entry.max_bytes) for entry in allowed if entry.max_bytes is not None]
        within = self._broker.ends_within([(entry.resource, entry.first, most) for entry, most in limited])
        ends = {entry.resource: end for (entry, _), end in zip(limited, within, strict=True)}
        return [
            max(entry.first + 1, min(entry.end, ends.get(entry.resource, entry.end))) for entry in allowed
        ]


def _history(description: Description) -> History:
    """The epochs of a log as its description has them: only the last one."""
    return History(() if description.log_epoch is None else ((1, description.log_epoch),), description.next)


def absent(name: str) -> Refused:
    """The error for a resource that is named in the options and does not exist."""
    return Refused(
        404,
        UNKNOWN_RESOURCE,
        f"the resource {name!r} to read does not exist; create it first",
        missing=[name],
    )


def _behind(name: str, wanted: int, description: Description) -> DataLoss:
    return DataLoss(
        name,
        description.next,
        wanted,
        f"resource {name!r} ends at {description.next} and should be read from {wanted}: "
        f"contents {description.next} to {wanted - 1} are gone, or the broker's data is an older copy",
    )
