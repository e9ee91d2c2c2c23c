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
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mtl.errors import OptionError, Refused
from mtl.wire.control import DATA_LOSS, INCARNATION, UNKNOWN_RESOURCE, Description, Epochs, Located
from mtl.wire.history import History
from pyspark_mtl.connections import connection
from pyspark_mtl.limits import RELEASE_S
from pyspark_mtl.options.kinds import ReadPlace
from pyspark_mtl.options.settings import ReadSettings
from pyspark_mtl.source.holdings import Holdings
from pyspark_mtl.source.offsets import Position
from pyspark_mtl.source.resource_watch import Known, ResourceWatch, describe

if TYPE_CHECKING:
    from mtl.client.connection import Connection

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
        self._watch = ResourceWatch(
            lambda: self._broker, settings.resources, settings.pattern, settings.excluded
        )

    @property
    def _broker(self) -> Connection:
        return connection(self._settings.connect)

    # --- finding --------------------------------------------------------------------------------------------

    def find(self, known: Known | None = None, wait: float = 0.0) -> dict[str, Description]:
        """The query's resources that exist. With `known` it waits, up to `wait` seconds, until they differ from it
        (`ResourceWatch.find`).
        """
        return self._watch.find(known, wait)

    def is_silent(self, wait: float) -> bool:
        """Whether `find` with the same arguments would find no change; waits up to `wait` seconds for one."""
        return self._watch.is_silent(wait)

    def find_named(self, names: Sequence[str]) -> dict[str, Description]:
        """Those of `names` that exist."""
        return describe(self._broker, names)

    def histories(self, found: Iterable[Description]) -> dict[str, History]:
        """The epochs of the logs of resources. Requested only if a log's last epoch has changed since the last request,
        which happens once per start of the broker.
        """
        names = list(found)
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

    def locate(self, found: Description, place: ReadPlace, *, create_cursor: bool = False) -> int:
        """The sequence of `place` in a resource, whose state is the one that `find` returned.

        A group without a cursor begins at the earliest content; `create_cursor` creates the cursor. A time after all
        contents is an OptionError, or the end with startingOffsetsByTimestampStrategy=latest.
        """
        if place.kind == "earliest":
            return found.earliest
        if place.kind == "latest":
            return found.next
        if place.kind == "sequence":
            return place.value
        if place.kind == "group":
            return self._locate_group(found, create=create_cursor)
        sequence, matched = self._broker.locate_time(found.resource, place.value)
        if not matched and not self._settings.late_start_is_latest:
            raise OptionError(
                f"{found.resource!r} has no content at or after the starting time; "
                "to start at its end, give startingOffsetsByTimestampStrategy=latest"
            )
        return sequence if matched else found.next

    def locate_end(self, found: Description, place: ReadPlace) -> int:
        """The end (exclusive) of reading; for a time after all contents the end of the resource."""
        if place.kind == "time":
            sequence, matched = self._broker.locate_time(found.resource, place.value)
            return min(sequence, found.next) if matched else found.next
        return found.next if place.kind == "latest" else place.value

    def end_within(self, resource: str, first: int, octets: int) -> int:
        """The end of the contents within `octets` stored octets from `first` on: at least one chunk."""
        return self._broker.locate_end(resource, first, bytes=octets)

    def unread(self, found: Description, first: int, end: int) -> Located | None:
        """Octets and age of the contents in [first, end) that retention has kept; None if the resource does not
        exist any more.
        """
        start = max(first, found.earliest)
        try:
            return self._broker.unread(found.resource, start, end - start, incarnation=found.incarnation)
        except Refused as refused:
            if refused.reason not in _GONE:
                raise
            return None

    def _locate_group(self, found: Description, *, create: bool) -> int:
        group = self._settings.group
        assert group is not None, "options check that startingOffsets=group comes with a group"
        if create:
            opened = self._broker.cursor_open(group, found.resource, incarnation=found.incarnation)
            return opened.position
        for cursor in self._broker.cursors(group=group, resource=found.resource):
            if cursor.incarnation == found.incarnation:
                return cursor.position
        return found.earliest

    # --- holding and confirming -----------------------------------------------------------------------------

    def hold(self, positions: Mapping[str, Position]) -> dict[str, int | None]:
        """Hold resources from these positions on, unless they are held. Returns the epoch of the group for the members
        of each, or None without a group. Raises the refusal of one that cannot be held.
        """
        for refused in self._holdings.hold(positions).values():
            raise refused
        return {name: self._holdings.epoch(name) for name in positions}

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
        lost = {name: at for name, at in held.items() if name not in self._held(held)}
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
