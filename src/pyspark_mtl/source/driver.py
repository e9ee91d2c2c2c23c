"""The requests of the reader process on Spark's driver: find, locate, hold and confirm.

Spark runs one such process per source and query. It reads no contents: the tasks do, on leases of their own. For each
thousand resources it has one lease, the holder (holdings.py). A Confirm on it passes Spark's commit to the broker, and
retention keeps contents that are not confirmed (PROTOCOL.md 5.3).
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mtl.errors import OptionError, Refused
from mtl.wire.control import DATA_LOSS, INCARNATION, UNKNOWN_RESOURCE, Description, Epochs, Located
from mtl.wire.history import History
from pyspark_mtl.connections import connection
from pyspark_mtl.limits import PARALLEL_REQUESTS, RELEASE_S
from pyspark_mtl.options.kinds import ReadPosition
from pyspark_mtl.options.settings import ReadSettings
from pyspark_mtl.source.ends import ResourcePosition
from pyspark_mtl.source.holdings import Holdings
from pyspark_mtl.source.offsets import Position
from pyspark_mtl.source.resource_watch import ResourceWatch, describe

if TYPE_CHECKING:
    from mtl.client.connection import Connection

T = TypeVar("T")
R = TypeVar("R")

_GONE = {DATA_LOSS, INCARNATION, UNKNOWN_RESOURCE}
"""The reasons of refusals to hold a resource that was read earlier: there is no content left to confirm."""


class Driver:
    """The broker's interface for the driver of one query. Connects with the first call."""

    def __init__(self, settings: ReadSettings) -> None:
        self._settings = settings
        self._holdings = Holdings(lambda: self._broker, settings.group, driver_id)
        self._confirmed: dict[str, Position] = {}
        self._histories: dict[str, tuple[str, Epochs]] = {}
        """Per resource: the last epoch of its log, and all epochs."""
        self.watch = ResourceWatch(
            lambda: self._broker, settings.resources, settings.pattern, settings.excluded
        )
        """Finds the query's resources."""

    @property
    def _broker(self) -> Connection:
        return connection(self._settings.connect)

    # --- finding --------------------------------------------------------------------------------------------

    def find_named(self, names: Sequence[str]) -> dict[str, Description]:
        """Those of `names` that exist."""
        return describe(self._broker, names)

    def histories(self, descriptions: Iterable[Description]) -> dict[str, History]:
        """The epochs of the logs of resources. Requested only if a log's last epoch has changed since the last request,
        which happens once per start of the broker.
        """
        names = list(descriptions)
        stale = [
            description.resource
            for description in names
            if description.log_epoch is not None
            and self._histories.get(description.resource, ("",))[0] != description.log_epoch
        ]
        if stale:
            described = describe(self._broker, stale, history=True)
            self._histories |= {
                name: (description.log_epoch or "", description.history or ())
                for name, description in described.items()
            }
        return {
            description.resource: History.of(
                self._histories.get(description.resource, ("", ()))[1]
                if description.log_epoch is not None
                else (),
                description.next,
            )
            for description in names
        }

    # --- locating -------------------------------------------------------------------------------------------

    def locate(self, wanted: Sequence[ResourcePosition], *, create_cursors: bool = False) -> list[int]:
        """The sequences of positions, in resources whose state is the one that `find` returned.

        A group without a cursor begins at the earliest content; `create_cursors` creates the cursors. A time after all
        contents is an OptionError, or the end with startingOffsetsByTimestampStrategy=latest.
        """
        if create_cursors:
            open_cursor = self._open_cursor
        else:
            positions = self._cursors() if any(position.kind == "group" for _, position in wanted) else {}

            def open_cursor(description: Description) -> int:
                return positions.get((description.resource, description.incarnation), description.earliest)

        def located(item: ResourcePosition) -> int:
            description, position = item
            return (
                open_cursor(description)
                if position.kind == "group"
                else self._locate_time(description, position)
            )

        known: dict[str, Callable[[ResourcePosition], int]] = {
            "earliest": lambda item: item[0].earliest,
            "latest": lambda item: item[0].next,
            "sequence": lambda item: item[1].value,
        }
        asked = [item for item in wanted if item[1].kind not in known]
        answers = iter(in_parallel(located, asked))
        return [known[item[1].kind](item) if item[1].kind in known else next(answers) for item in wanted]

    def _locate_time(self, description: Description, position: ReadPosition) -> int:
        sequence, matched = self._broker.locate_time(description.resource, position.value)
        if not matched and not self._settings.late_start_is_latest:
            raise OptionError(
                f"{description.resource!r} has no content at or after the starting time; "
                "to start at its end, give startingOffsetsByTimestampStrategy=latest"
            )
        return sequence if matched else description.next

    def _open_cursor(self, description: Description) -> int:
        return self._broker.cursor_open(
            self._group, description.resource, incarnation=description.incarnation
        ).position

    def _cursors(self) -> dict[tuple[str, str], int]:
        """The positions of the group, by resource and incarnation."""
        cursors = self._broker.cursors(group=self._group)
        return {(cursor.resource, cursor.incarnation): cursor.position for cursor in cursors}

    @property
    def _group(self) -> str:
        group = self._settings.group
        assert group is not None, "options check that startingOffsets=group comes with a group"
        return group

    def locate_ends(self, wanted: Sequence[ResourcePosition]) -> list[int]:
        """The ends (exclusive) of reading; for a time after all contents the end of the resource."""

        def end(item: ResourcePosition) -> int:
            description, position = item
            sequence, matched = self._broker.locate_time(description.resource, position.value)
            return min(sequence, description.next) if matched else description.next

        answers = iter(in_parallel(end, [item for item in wanted if item[1].kind == "time"]))
        ends = {"latest": lambda description, _: description.next, "time": lambda *_: next(answers)}
        return [
            ends.get(position.kind, lambda _, at: at.value)(description, position)
            for description, position in wanted
        ]

    def ends_within(self, wanted: Sequence[tuple[str, int, int]]) -> list[int]:
        """For each resource, first sequence and number of octets: the end of the contents within so many stored octets
        from there on, at least one chunk.
        """
        return in_parallel(
            lambda item: self._broker.locate_end(item[0], item[1], bytes=item[2]),
            wanted,
        )

    def unread(self, wanted: Sequence[tuple[Description, int, int]]) -> list[Located | None]:
        """Octets and age of the contents from a first sequence up to an end (exclusive) that retention has kept; None
        for a resource that does not exist any more.
        """
        return in_parallel(self._unread, wanted)

    def _unread(self, item: tuple[Description, int, int]) -> Located | None:
        description, first, end = item
        start = max(first, description.earliest)
        try:
            return self._broker.unread(
                description.resource, start, end - start, incarnation=description.incarnation
            )
        except Refused as refused:
            if refused.reason not in _GONE:
                raise
            return None

    # --- holding and confirming -----------------------------------------------------------------------------

    def hold(self, positions: Mapping[str, Position]) -> dict[str, int | None]:
        """Hold resources from these positions on, unless they are held. Returns the epoch of the group for the members
        of each, or None without a group. Raises the refusal of one that cannot be held.
        """
        for refused in self._holdings.hold(positions).values():
            raise refused
        return {name: self._holdings.holding_epoch(name) for name in positions}

    def try_to_hold(self, positions: Mapping[str, Position]) -> None:
        """Like `hold`, but resources and positions that do not exist any more are left out."""
        for refused in self._holdings.hold(positions).values():
            if refused.reason not in _GONE:
                raise refused

    def confirm(self, positions: Mapping[str, Position]) -> None:
        """Confirm all contents before these positions. Fenced if another driver took over.

        On return the broker has processed them: a Ping follows the Confirms, and its Pong has arrived. Positions that
        are confirmed already cost no request. With a durable group missing holdings are opened: after a restart, the
        first commit is for a batch of the previous run. Without a group, resources that are not held are skipped.
        """
        self._forget([name for name in self._confirmed if name not in positions])
        moved = {
            name: at
            for name, at in positions.items()
            if at.next > 1 and self._confirmed.get(name) != at.settled
        }
        if self._settings.group is not None:
            self.try_to_hold(moved)
        held = self._held(moved)
        self._holdings.confirm(held)
        still_held = self._held(held)
        lost = {name: at for name, at in held.items() if name not in still_held}
        if lost:  # in a restart of the broker: retention has removed contents from their first position on
            self.try_to_hold(lost)
            self._holdings.confirm(self._held(lost))
        self._confirmed.update({name: at.settled for name, at in held.items()})

    def _forget(self, deleted: Sequence[str]) -> None:
        self._holdings.forget(deleted)
        for name in deleted:
            del self._confirmed[name]

    def _held(self, positions: Mapping[str, Position]) -> dict[str, Position]:
        return {
            name: at for name, at in positions.items() if self._holdings.incarnation(name) == at.incarnation
        }

    def close(self) -> None:
        """Release the holdings, waiting RELEASE_S at most. Best effort: holdings that are not released expire."""
        releasing = threading.Thread(target=self._holdings.close, daemon=True)
        releasing.start()
        releasing.join(RELEASE_S)


def in_parallel(ask: Callable[[T], R], wanted: Sequence[T]) -> list[R]:
    """The answers for all of `wanted`, in order, from PARALLEL_REQUESTS requests at a time. Raises the first error."""
    if len(wanted) < 2:
        return [ask(item) for item in wanted]
    pool = ThreadPoolExecutor(min(PARALLEL_REQUESTS, len(wanted)))
    try:
        return list(pool.map(ask, wanted))
    finally:
        pool.shutdown(cancel_futures=True)


def driver_id() -> str:
    """The id of Spark's driver, the parent of this process: its host, process number and start time.

    Reader processes of one driver (a self-join, two loads, two queries) have the same id and so share a group's cursor;
    only another driver fences them. The start time distinguishes processes that reuse a number.
    """
    parent = os.getppid()
    return f"{socket.gethostname()}/{parent}/{_start_time(parent)}"


def _start_time(process: int) -> str:
    stat = Path(f"/proc/{process}/stat")
    if stat.exists():
        # field 22, after the name in brackets
        return stat.read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    listed = subprocess.run(
        ["/bin/ps", "-o", "lstart=", "-p", str(process)], capture_output=True, text=True, check=True
    )
    return "-".join(listed.stdout.split())
