"""A holder of several resources, for an application that confirms contents that others read (PROTOCOL.md 5.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mtl.client.control import Done
from mtl.client.holder_part import HeldPosition, HolderPart
from mtl.client.lease_handle import BlockingLease
from mtl.client.loop import Loop
from mtl.client.settings import Settings
from mtl.client.waiter import Waiter
from mtl.errors import Refused, Unreachable


class Holder(BlockingLease):
    """One lease that holds up to MAX_RESOURCES_PER_LEASE resources, made by `Connection.hold`; a context manager.

    Retention keeps the contents of a held resource from its position on. A resource is not held any more after it was
    deleted.
    """

    kind = "holder"

    _part: HolderPart

    def __init__(self, loop: Loop, settings: Settings, part: HolderPart, closed: Callable[[], None]) -> None:
        super().__init__(loop, settings, part, closed)

    @property
    def held(self) -> Mapping[str, int]:
        """The resources that were held with the last lease, each with the epoch of the group's holding for its members
        (0 without a group).
        """
        return self._part.held

    @property
    def unheld(self) -> Mapping[str, Refused]:
        """The resources that were refused, each with the refusal: `DataLoss` if the position is gone, `Refused` 404 or
        409 if the resource is, or has another incarnation. After a restart of the broker this may concern resources
        that were held before.
        """
        return self._part.unheld

    def add(self, positions: Mapping[str, HeldPosition]) -> None:
        """Hold more resources, or the same ones from other positions. Raises the errors of `Connection.hold`."""
        self._check()
        waiter = Waiter(self._loop)
        waiter.start(lambda: self._part.add(positions, waiter.done))
        waiter.wait()

    def forget(self, resource: str) -> None:
        """Do not hold a resource again with a later lease: it was deleted."""
        self._check()
        self._loop.post(lambda: self._part.forget(resource))

    def confirm(self, resource: str, sequence: int, *, log_epoch: str | None = None) -> None:
        """Confirm all contents of a resource up to `sequence`, without waiting; `ping` waits. `log_epoch` is the epoch
        of this content.
        """
        self._check()
        self._loop.post(lambda: self._part.confirm(resource, sequence, log_epoch))

    def ping(self) -> None:
        """Wait until the broker has processed every `confirm` so far, and answers that this is still the holder.

        Raises `Fenced` if another holder took over, `Unreachable` without an answer for `retry_deadline` seconds.
        """
        self._check()
        waiter = Waiter(self._loop)
        done: Done = waiter.done
        waiter.start(lambda: self._part.ping(done))
        if waiter.within(self._settings.retry_deadline) is None:
            patience = self._settings.retry_deadline
            raise Unreachable(self._settings.endpoint, patience, "waiting for the Pong of a holder")
