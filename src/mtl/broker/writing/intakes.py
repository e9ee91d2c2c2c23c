"""Creates the intakes of logs, and keeps those with contents that wait for the disk."""

from __future__ import annotations

from collections.abc import Sequence

from mtl.broker.events import Event
from mtl.broker.outbox import Outbox
from mtl.broker.writing.intake import AcceptedContents, InboundBudget, Intake
from mtl.broker.writing.turns import Turns
from mtl.storage.api import LogKey, LogView


class Intakes:
    """The intakes of all logs, including those of stages."""

    def __init__(self, outbox: Outbox, inbound: InboundBudget, turns: Turns) -> None:
        self._outbox = outbox
        self._inbound = inbound
        self._turns = turns
        self._waiting: dict[LogKey, Intake] = {}
        self._closed = False
        self.durable: Event[[Intake, Sequence[AcceptedContents]]] = Event()
        """A group of contents is on disk."""
        self.lost: Event[[Sequence[AcceptedContents]]] = Event()
        """Contents were not stored."""

    def create(self, key: LogKey, reader: LogView | None, last: dict[int, int], share: str = "") -> Intake:
        """A new intake for one log; `share` is the user who owns it (`Quotas.owner`)."""
        return Intake(
            self._outbox, key, reader, last, self._inbound, self._turns, self.durable, self.lost, share
        )

    def wait(self, intake: Intake) -> None:
        """Contents were accepted; `start` begins to write them."""
        if not self._closed:
            self._waiting[intake.key] = intake

    @property
    def any_waits(self) -> bool:
        """Whether `start` would begin a group."""
        return bool(self._waiting)

    def start(self) -> None:
        """Begin to write the waiting contents, as far as the disk is free."""
        waiting, self._waiting = self._waiting, {}
        for intake in waiting.values():
            intake.start()

    def close(self) -> None:
        """Stop writing."""
        self._closed = True
