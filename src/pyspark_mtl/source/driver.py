"""The requests of the reader process on Spark's driver: find, locate, hold and confirm.

Spark runs one such process per source and query. It reads no contents: the tasks do, on leases of their own. For each
resource it has a reader lease that is never summoned, the holder. A Confirm on it passes Spark's commit to the broker,
and retention keeps contents that are not confirmed (PROTOCOL.md 5.3).
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mtl.errors import OptionError, Refused
from mtl.wire.control import DATA_LOSS, INCARNATION, UNKNOWN_RESOURCE, Description, Epochs, Located
from mtl.wire.history import History
from pyspark_mtl.connections import connection
from pyspark_mtl.limits import RELEASE_S
from pyspark_mtl.options.kinds import ReadPlace
from pyspark_mtl.options.settings import ReadSettings
from pyspark_mtl.source.offsets import Position
from pyspark_mtl.source.resource_watch import Known, ResourceWatch, describe

if TYPE_CHECKING:
    from mtl.client.connection import Connection
    from mtl.client.reader import Reader

_GONE = {DATA_LOSS, INCARNATION, UNKNOWN_RESOURCE}
"""The reasons of refusals to hold a resource that was read earlier: there is no content left to confirm."""


class Driver:
    """The broker's interface for the driver of one query. Connects with the first call."""

    def __init__(self, settings: ReadSettings) -> None:
        self._settings = settings
        self._holders: dict[str, _Holder] = {}
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

    def hold(self, resource: str, position: Position) -> int | None:
        """Hold a resource from `position` on, if it is not held yet. Returns the epoch of the group for its
        members, or None without a group.
        """
        holder = self._holders.get(resource)
        if holder is None or holder.incarnation != position.incarnation or holder.is_lost:
            self._release(resource)
            holder = _Holder(self._open_reader(resource, position), position.incarnation)
            self._holders[resource] = holder
        return holder.reader.epoch if self._settings.group is not None else None

    def try_to_hold(self, resource: str, position: Position) -> bool:
        """Like `hold`, but returns False if the position or the resource does not exist any more."""
        try:
            self.hold(resource, position)
        except Refused as refused:
            if refused.reason not in _GONE:
                raise
            return False
        return True

    def confirm(self, positions: Mapping[str, Position]) -> None:
        """Confirm all contents before these positions. Fenced if another driver took over.

        On return the broker has processed them: a Ping follows each Confirm, and its Pong has arrived. Positions that
        are confirmed already cost no request. Without a group, resources that are not held are skipped.
        """
        moved = {}
        for resource, position in positions.items():
            done = self._confirmed.get(resource) == position.settled
            if not done and position.next > 1 and self._is_held(resource, position):
                self._confirm(resource, position)
                moved[resource] = position.settled
        for resource, position in moved.items():
            self._await_pong(resource, position)
        self._confirmed.update(moved)

    def _confirm(self, resource: str, position: Position) -> None:
        self._holders[resource].reader.confirm(position.next - 1, log_epoch=position.epoch)

    def _is_held(self, resource: str, position: Position) -> bool:
        """Whether there is a holder for Confirms. With a durable group a missing holder is opened: after a restart,
        the first commit is for a batch of the previous run.
        """
        holder = self._holders.get(resource)
        if holder is not None:
            return holder.incarnation == position.incarnation
        return self._settings.group is not None and self.try_to_hold(resource, position)

    def _await_pong(self, resource: str, position: Position) -> None:
        """Wait for the Pong; hold the resource again if its lease did not survive a restart of the broker.

        The lease is lost if retention has removed (confirmed) contents from its first position on.
        """
        try:
            self._holders[resource].reader.ping_holder()
        except Refused as refused:
            if refused.reason not in _GONE:
                raise
            self._release(resource)
            if self.try_to_hold(resource, position):
                self._confirm(resource, position)
                self._holders[resource].reader.ping_holder()

    def _release(self, resource: str) -> None:
        holder = self._holders.pop(resource, None)
        if holder is not None:
            holder.reader.close()

    def _open_reader(self, resource: str, position: Position) -> Reader:
        return self._broker.reader(
            resource,
            start=position.next,
            group=self._settings.group,
            holder=driver_id(),
            incarnation=position.incarnation,
            log_epoch=position.epoch,
        )

    def close(self) -> None:
        """Release the holdings, waiting RELEASE_S at most. Best effort: holdings that are not released expire."""
        releasing = threading.Thread(target=self._release_all, daemon=True)
        releasing.start()
        releasing.join(RELEASE_S)

    def _release_all(self) -> None:
        for resource in list(self._holders):
            self._release(resource)


@dataclass(frozen=True)
class _Holder:
    reader: Reader
    incarnation: str

    @property
    def is_lost(self) -> bool:
        """Whether the lease was lost in a restart of the broker because its position does not exist any more."""
        return isinstance(self.reader.error, Refused) and self.reader.error.reason in _GONE


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
