"""Makes the ways into logs, and knows which of them have contents that wait for the disk."""

from __future__ import annotations

from collections.abc import Sequence

from mtl.broker.events import Event
from mtl.broker.outbox import Outbox
from mtl.broker.writing.intake import Arrival, Inbound, Intake
from mtl.broker.writing.turns import Turns
from mtl.storage.api import LogKey, LogView


class Intakes:
    """One for all logs, those of stages too."""

    def __init__(self, outbox: Outbox, inbound: Inbound, turns: Turns) -> None:
        self._outbox = outbox
        self._inbound = inbound
        self._turns = turns
        self._waiting: dict[LogKey, Intake] = {}
        self._closed = False
        self.durable: Event[[Intake, Sequence[Arrival]]] = Event()
        """A group of contents is on disk."""
        self.lost: Event[[Sequence[Arrival]]] = Event()
        """These contents were not kept."""

    def make(self, key: LogKey, reader: LogView | None, last: dict[int, int]) -> Intake:
        """The way into one log (`Intake`)."""
        return Intake(self._outbox, key, reader, last, self._inbound, self._turns, self.durable, self.lost)

    def wait(self, intake: Intake) -> None:
        """Contents were taken in; `start` begins to write them."""
        if not self._closed:
            self._waiting[intake.key] = intake

    @property
    def any_waits(self) -> bool:
        """Whether `start` would do something."""
        return bool(self._waiting)

    def start(self) -> None:
        """Begin to write what waits, as far as the disk is free."""
        waiting, self._waiting = self._waiting, {}
        for intake in waiting.values():
            intake.start()

    def close(self) -> None:
        """From now on nothing more is written."""
        self._closed = True
