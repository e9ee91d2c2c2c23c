"""Groups: drivers that hold a group's cursor, one after the other; the newer one fences the older."""

from __future__ import annotations

from dataclasses import replace

from mtl.client.control import Outcome
from mtl.client.reader_part import ReaderOptions
from mtl.errors import Fenced
from mtl.wire import control
from tests.simulator.model import Model, Violation
from tests.simulator.network import Routers
from tests.simulator.process import is_of_the_disk
from tests.simulator.readers import RangeApp, ReaderApp, options
from tests.simulator.world import World


class Driver(ReaderApp):
    """One driver: reads as the holder, confirms processed contents, and gets the position in a Pong."""

    def __init__(
        self, group: GroupApp, world: World, routers: Routers, model: Model, number: int, *, packed: bool
    ) -> None:
        self.group = group
        self.number = number
        self.epoch = 0
        """The epoch of its holding; 0 before the first grant."""
        self._confirmed = 0
        self._busy = False
        super().__init__(world, routers, model, f"{group.name}#{number}", group.resource, packed=packed)
        self.process.watch(self._check_lease)

    def asked(self) -> ReaderOptions:
        """The options of the next lease request: from the group's cursor on."""
        return options(self.resource, "group", packed=self._packed, group=self.group.name, holder=self.name)

    @property
    def replaced(self) -> bool:
        """Whether a newer driver certainly holds the group."""
        return any(other.epoch > self.epoch for other in self.group.drivers)

    @property
    def settled(self) -> bool:
        """Whether the group's cursor is durably behind all contents delivered to any reader."""
        end = self._model.end(self.resource)
        return self._model.cursors.get((self.group.name, self.resource), 1) >= end

    def _check_lease(self) -> None:
        lease = self.part.lease
        if lease is not None:
            assert lease.epoch is not None
            assert lease.position is not None
            if not self.epoch:
                self.position = lease.position
                self.group.check_start(lease.position)
            self.epoch = lease.epoch
        error = self.part.error
        if isinstance(error, Fenced):
            self.process.kill()
            self.group.fenced(self)
        elif error is not None and not is_of_the_disk(error):
            raise Violation(f"{self.name} failed: {error!r}")

    def kill(self) -> None:
        """Another driver takes over, unless one has."""
        if self.group.driver is self:
            self.group.kill()

    def check(self) -> None:
        """Confirm sometimes, and request the position."""
        if self.epoch and not self._busy and self._confirmed < self.position and self.world.chance(0.5):
            self._busy = True
            self._confirmed = self.position
            if not self.replaced:
                self._model.ask_cursor(self.group.name, self.resource, self.position)
            self.part.confirm(self.position - 1)
            self.part.flow.ping(self._ponged)
            self.process.wake()

    def done(self, end: int) -> None:
        """The Confirm of the group is the credit."""
        self.position = end

    def _ponged(self, position: int | None) -> None:
        self._busy = False
        if position is None or position < self._confirmed:
            # The holder has one lease, so no other one may hold the cursor back, such as a lease whose 202 was lost.
            raise Violation(
                f"{self.name} confirmed up to {self._confirmed} and the broker reports {position}"
            )
        request = control.CursorDescribe(group=self.group.name, resource=self.resource)
        self.process.ask(self.channel, request, self._described)

    def _described(self, outcome: Outcome) -> None:
        if isinstance(outcome, control.CursorList):
            for cursor in outcome.cursors:
                self._model.tell_cursor(cursor.group, cursor.resource, cursor.position)
                # A crash before the cursor was written: the client has confirmed again, and this asks again.
                self._confirmed = min(self._confirmed, cursor.position)
        elif is_of_the_disk(outcome):
            self._confirmed = 0  # the cursor was not written: this asks again
        else:
            raise Violation(f"{self.name} cannot see its cursor: {outcome!r}")


class GroupApp:
    """A group on one resource and its drivers so far."""

    def __init__(
        self, world: World, routers: Routers, model: Model, name: str, resource: str, *, packed: bool
    ) -> None:
        self.world = world
        self.name = name
        self.resource = resource
        self.drivers: list[Driver] = []
        self._routers = routers
        self._model = model
        self._packed = packed
        self.take_over()

    @property
    def driver(self) -> Driver:
        """The newest one."""
        return self.drivers[-1]

    @property
    def settled(self) -> bool:
        """Whether the newest driver is done."""
        return self.driver.settled

    def kill(self) -> None:
        """The driver dies; another one takes over."""
        self.driver.process.kill()
        self.take_over()

    def take_over(self) -> None:
        """Start another driver, whether the former one is alive or not."""
        number = len(self.drivers) + 1
        self.drivers.append(Driver(self, self.world, self._routers, self._model, number, packed=self._packed))

    def fenced(self, driver: Driver) -> None:
        """A driver was fenced by a newer one."""
        self.world.note("fenced", lambda: driver.name)
        others = [other for other in self.drivers if other is not driver]
        if all(0 < other.epoch < driver.epoch for other in others):
            raise Violation(f"{driver.name} was fenced without a newer driver: {[x.epoch for x in others]}")
        if driver is self.driver:
            self.take_over()  # by the first request of a driver that died over it, or was suspended

    def check_start(self, position: int) -> None:
        """A new driver starts at the group's position: not before the durable one, not after the confirmed one."""
        key = self.name, self.resource
        low, high = self._model.cursors.get(key, 1), self._model.allowed.get(key, 1)
        if not low <= position <= high:
            raise Violation(f"{self.name} begins at {position}, not within {low} to {high}")


class MemberApp(RangeApp):
    """Reads ranges as a task of a driver: with the group and the epoch of its holder, without moving the cursor."""

    def __init__(
        self, world: World, routers: Routers, model: Model, name: str, group: GroupApp, *, packed: bool
    ) -> None:
        self._group = group
        self._epoch = 0
        super().__init__(world, routers, model, name, group.resource, packed=packed)

    def asked(self) -> ReaderOptions:
        """The rest of the range, in the epoch of the present holder."""
        self._epoch = max(driver.epoch for driver in self._group.drivers)
        asked = super().asked()
        return replace(asked, group=self._group.name, holding_epoch=self._epoch) if self._epoch else asked

    def check(self) -> None:
        """After a takeover by another driver the task is repeated."""
        if isinstance(self.part.error, Fenced):
            self.world.note("fenced", lambda: f"{self.name} in {self._epoch}")
            if all(0 < driver.epoch <= self._epoch for driver in self._group.drivers):
                raise Violation(f"{self.name} was fenced in epoch {self._epoch}, which is the last one")
            self.kill()
            return
        super().check()
