"""The opening of existing logs: the requests that wait for them, their order, and the retries after a failure.

A broker serves as soon as its records are read, and then opens its logs: first those that requests wait for (one log
of each request in turn, so that a request for all logs does not delay others), then the rest one after the other.

    waiting ──► opening ──► open, and forgotten here
       ▲           ├──────► failed: the disk was full or failed; tried again by a timer, or for a request
       └───────────┼──────────┘
                   └──────► damaged: its files have to be repaired, and the broker started again
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum

from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.broker.outbox import Outbox
from mtl.broker.steps import Outcome, run
from mtl.broker.writing.intake import Intake
from mtl.errors import Damaged, StorageError, StorageFailed, UnknownFormat
from mtl.storage.api import LogKey, LogOptions, OpenLog

log = logging.getLogger("mtl.broker")

_FOR_GOOD = (Damaged, UnknownFormat)
"""Errors for which another attempt is useless."""


class _State(Enum):
    WAITING = "waiting"
    OPENING = "opening"
    FAILED = "failed"
    DAMAGED = "damaged"
    DONE = "done"


class _Wait:
    """A wait for several logs to be open or have failed. `patient`: temporary failures do not count."""

    def __init__(self, unopened: Iterable[Unopened], over: Outcome[None], *, patient: bool) -> None:
        self.todo = deque(unopened)
        self.patient = patient
        self._remaining = len(self.todo)
        self._over = over

    def count_down(self) -> None:
        """One of the logs is open or has failed."""
        self._remaining -= 1
        if not self._remaining:
            self._over.set(None)


class Unopened:
    """One log that is not open, and the arguments for opening it. `is_wanted` is False while it is being deleted.
    `opened` is called when it is open, or was found never to have been created.
    """

    def __init__(
        self,
        intake: Intake,
        options: LogOptions,
        *,
        earliest: int | None = None,
        base: int | None = None,
        owner: bytes | None = None,
        is_wanted: Callable[[], bool],
        opened: Callable[[], None],
    ) -> None:
        self.intake = intake
        self.options = options
        self.earliest = earliest
        self.base = base
        self.owner = owner
        self.is_wanted = is_wanted
        self.opened = opened
        self.state = _State.WAITING
        self.failed_at: float | None = None
        self.waits: list[_Wait] = []


class LogOpening:
    """Opens the logs, as the module describes."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._unopened: dict[LogKey, Unopened] = {}
        self._waits: deque[_Wait] = deque()
        """The requests with logs that are not being opened yet."""
        self._unrequested: deque[Unopened] = deque()
        """The logs that are opened while no request waits."""
        self._failed: dict[LogKey, Unopened] = {}
        """The failed logs, the one that failed longest ago first."""
        self._under_way = 0
        self._probe: Unopened | None = None
        self._timer = False
        self._retry_s = broker_limits.OPEN_RETRY_S
        self._opens_all = False

    # --- which logs there are -------------------------------------------------------------------------------

    def expect(self, unopened: Unopened) -> None:
        """Register the log of a record. Its intake accepts nothing until the log is open."""
        unopened.intake.shut(StorageFailed("its log is being opened"))
        self._unopened[unopened.intake.key] = unopened
        self._unrequested.append(unopened)

    def forget(self, intake: Intake) -> None:
        """Forget a deleted log; no action of it is with the disk."""
        gone = self._unopened.pop(intake.key, None)
        self._failed.pop(intake.key, None)
        if gone is not None:
            gone.state = _State.DONE
            self._notify_waits(gone, final=True)

    def expects(self, intake: Intake) -> bool:
        """Whether this log is not open yet and will be, at once or after a retry."""
        unopened = self._unopened.get(intake.key)
        return unopened is not None and unopened.state is not _State.DAMAGED

    @property
    def unopened(self) -> int:
        """The number of logs that are not open."""
        return len(self._unopened)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to open."""
        return all(x.state is _State.DAMAGED for x in self._unopened.values())

    # --- waiting --------------------------------------------------------------------------------------------

    def opened(self, intakes: Iterable[Intake], *, patient: bool = False) -> Outcome[None]:
        """Wait until each of these logs is open or failed to open. The caller has to check which it is
        (`Intake.stopped`). `patient`: until none of them is to be tried again.
        """
        over: Outcome[None] = Outcome()
        to_open = [x for i in dict.fromkeys(intakes) if (x := self._unopened.get(i.key)) is not None]
        wanted = [x for x in to_open if self._is_awaited(x, patient=patient)]
        if not wanted:
            over.set(None)
            return over
        wait = _Wait(wanted, over, patient=patient)
        for unopened in wanted:
            unopened.waits.append(wait)
        self._waits.append(wait)
        self._open_next()
        return over

    def request(self, intake: Intake) -> bool:
        """Have a log opened before others; returns whether it is being opened or will be next."""
        unopened = self._unopened.get(intake.key)
        if unopened is not None and not unopened.waits:
            self.opened([intake])
        return unopened is not None and unopened.state in {_State.WAITING, _State.OPENING}

    def _is_awaited(self, unopened: Unopened, *, patient: bool) -> bool:
        """Whether to wait for this log: not if an attempt failed a moment ago."""
        if unopened.state is _State.FAILED and self._may_retry(unopened) and unopened.is_wanted():
            self._try_again(unopened)
        if patient:
            return unopened.state is not _State.DAMAGED
        return unopened.state in {_State.WAITING, _State.OPENING}

    def _may_retry(self, unopened: Unopened) -> bool:
        return (
            unopened.failed_at is None
            or self._outbox.now.mono >= unopened.failed_at + broker_limits.OPEN_RETRY_S
        )

    # --- opening --------------------------------------------------------------------------------------------

    def open_all(self) -> None:
        """Begin to open also the logs that no request waits for."""
        self._opens_all = True
        self._open_next()

    def stop(self) -> None:
        """Stop opening logs: the broker is about to stop."""
        self._waits.clear()
        self._unrequested.clear()
        self._failed.clear()

    def _open_next(self) -> None:
        while (unopened := self._next()) is not None:
            run(self._open(unopened))

    def _next(self) -> Unopened | None:
        """The next log of the waiting requests, in turn; else one of the rest, if no log is being opened."""
        while self._waits and self._under_way < limits.OPENINGS:
            wait = self._waits.popleft()
            unopened = wait.todo.popleft()
            if wait.todo:
                self._waits.append(wait)
            if unopened.state is _State.WAITING:
                return unopened
        while self._unrequested and self._opens_all and not self._under_way:
            unopened = self._unrequested.popleft()
            if unopened.state is _State.WAITING:
                return unopened
        return None

    async def _open(self, unopened: Unopened) -> None:
        if not unopened.is_wanted():
            self._fail(unopened, StorageFailed("it is being deleted"))
            return
        unopened.state = _State.OPENING
        self._under_way += 1
        now, intake = self._outbox.now.wall_us, unopened.intake
        opening = intake.submit(
            lambda number: OpenLog(
                number, intake.key, unopened.options, unopened.earliest, unopened.base, unopened.owner, now
            )
        )
        try:
            opened = await opening
        except StorageError as error:
            self._under_way -= 1
            if unopened.failed_at is None:
                log.error("%s is stopped: %s", intake.key, error)
            self._fail(unopened, error)
        else:
            self._under_way -= 1
            self._unopened.pop(intake.key, None)
            unopened.state = _State.DONE
            if unopened.failed_at is not None:
                log.info("%s is open", intake.key)
            if opened is not None:
                intake.opened(*opened)
            unopened.opened()
            self._notify_waits(unopened, final=True)
        if unopened is self._probe:
            self._probed(opened=intake.reader is not None)
        self._open_next()

    def _fail(self, unopened: Unopened, error: StorageError) -> None:
        for_good = isinstance(error, _FOR_GOOD)
        unopened.state = _State.DAMAGED if for_good else _State.FAILED
        unopened.failed_at = self._outbox.now.mono
        unopened.intake.shut(error)
        if not for_good:
            self._failed[unopened.intake.key] = unopened
            self._set_timer()
        self._notify_waits(unopened, final=for_good)

    def _notify_waits(self, unopened: Unopened, *, final: bool) -> None:
        """Notify the requests that wait for a log: all of them, or all except the patient ones."""
        waits, unopened.waits = unopened.waits, [] if final else [x for x in unopened.waits if x.patient]
        for wait in waits:
            if final or not wait.patient:
                wait.count_down()

    # --- trying again ---------------------------------------------------------------------------------------

    def _try_again(self, unopened: Unopened) -> None:
        self._failed.pop(unopened.intake.key, None)
        unopened.state = _State.WAITING

    def _set_timer(self) -> None:
        if not self._timer:
            self._timer = True
            self._outbox.later(self._retry_s, self._retry_oldest)
            self._retry_s = min(2 * self._retry_s, broker_limits.OPEN_RETRY_TOP_S)

    def _retry_oldest(self) -> None:
        """Try the log that failed longest ago again; the other failed ones wait for the outcome."""
        self._timer = False
        unopened = next(iter(self._failed.values()), None)
        if unopened is None:
            self._retry_s = broker_limits.OPEN_RETRY_S
            return
        self._try_again(unopened)
        self._probe = unopened
        self._unrequested.appendleft(unopened)
        self._open_next()

    def _probed(self, *, opened: bool) -> None:
        self._probe = None
        if opened:
            self._retry_s = broker_limits.OPEN_RETRY_S
            for unopened in list(self._failed.values()):
                self._try_again(unopened)
                self._unrequested.append(unopened)
        elif self._failed:
            self._set_timer()
