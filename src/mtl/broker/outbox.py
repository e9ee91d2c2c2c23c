"""The core's decided actions that are not carried out yet, and the continuations that wait for their results."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mtl.broker import actions as a
from mtl.broker import limits as broker_limits
from mtl.broker.access.audit import Audit
from mtl.broker.steps import Outcome
from mtl.errors import Refused, StorageError
from mtl.storage.api import Answered, NewChunk, Prepare, Read, Save
from mtl.storage.records import AnyRecord
from mtl.wire import commands as c
from mtl.wire import control as w

T = TypeVar("T")

Result = Any
"""The result of an action: a log's change, a `LogView`, None, or the `StorageError` with which it failed."""

Then = Callable[[Result], None]

ANSWER_S = 1.0
"""Seconds that a request waits for the undoing of a failed transaction, before the answer is that the outcome is
unknown. It is below the client's request timeout (`limits.REQUEST_TIMEOUT_S`), else the client would get no answer."""


class Outbox:
    """Actions in the order of their decisions, and the continuations of those with an id.

    `now` is the time of the input that is being handled; the core has no other clock. `audit` is the audit log.
    """

    def __init__(self) -> None:
        self.actions: list[a.Action] = []
        self.now = a.Now(0.0, 0)
        self.audit = Audit(lambda: self.now.mono)
        self._waiting: dict[int, Outcome[Any]] = {}
        self._reads: set[int] = set()
        self._last_id = 0
        self._timers: list[tuple[float, int, Callable[[], None]]] = []

    # --- time -----------------------------------------------------------------------------------------------

    def later(self, delay_s: float, then: Callable[[], None]) -> None:
        """Call `then` in `delay_s` seconds of monotonic time, once."""
        self._last_id += 1
        heapq.heappush(self._timers, (self.now.mono + delay_s, self._last_id, then))

    def pause(self, delay_s: float) -> Outcome[None]:
        """A step that ends after `delay_s` seconds."""
        over: Outcome[None] = Outcome()
        self.later(delay_s, lambda: over.set(None))
        return over

    def run_due(self) -> None:
        """Call the timers that are due; timers that these set have to wait for the next call."""
        due = []
        while self._timers and self._timers[0][0] <= self.now.mono:
            due.append(heapq.heappop(self._timers))
        for _, _, then in due:
            then()

    @property
    def next_due(self) -> float | None:
        """When the next timer is due, in monotonic seconds."""
        return self._timers[0][0] if self._timers else None

    # --- sends ----------------------------------------------------------------------------------------------

    def command(self, peer: a.Peer, command: c.Command, owner: str) -> None:
        """Send a data command that is not a reader's content."""
        self.actions.append(a.Send(peer, *c.encode(command), owner))

    def reply(self, envelope: tuple[bytes, ...], reply: w.Reply | Refused, owner: str) -> None:
        """Answer a control request."""
        frames = w.encode_refusal(reply) if isinstance(reply, Refused) else w.encode_reply(reply.code, reply)
        self.actions.append(a.SendReply(envelope, tuple(frames), owner))

    # --- requests to the disk -------------------------------------------------------------------------------

    def submit(self, make: Callable[[int], Answered[T]], then: Then | None = None) -> Outcome[T]:
        """Request an action with a result."""
        self._last_id += 1
        outcome: Outcome[T] = Outcome()
        if then is not None:
            outcome.when_known(lambda: then(outcome.value if outcome.error is None else outcome.error))
        self._waiting[self._last_id] = outcome
        self.actions.append(make(self._last_id))  # type: ignore[arg-type]  # every `Answered` is an action
        return outcome

    def read(self, make: Callable[[int], Read], then: Then | None = None) -> Outcome[Any]:
        """The same for a read; a clean stop does not wait for its result."""
        outcome = self.submit(make, then)
        self._reads.add(self._last_id)
        return outcome

    def prepare(self, chunk: NewChunk) -> None:
        """Announce a chunk that is going to be appended, so that its checksum is computed ahead; no result."""
        self.actions.append(Prepare(chunk))

    def save(
        self, put: Sequence[AnyRecord], forget: Sequence[AnyRecord] = (), then: Then | None = None
    ) -> Outcome[None]:
        """Save and delete records in one durable transaction."""
        return self.submit(lambda number: Save(number, tuple(put), tuple(forget)), then)

    def save_surely(
        self,
        put: Sequence[AnyRecord],
        forget: Sequence[AnyRecord],
        before: Sequence[AnyRecord],
        then: Then,
        unsure: Callable[[StorageError], None],
    ) -> None:
        """A durable transaction whose failure is certain: `then` gets an error only when a second transaction has
        restored the records (`before`). `unsure` is called, at most once, when that takes longer than `ANSWER_S`.
        Until `then` is called, the objects that the records describe must not be changed.

        A transaction whose sync failed may still be on the disk, and a crash would bring it back; a later one that
        succeeds replaces it for good. A caller that continues to append after a failure has to know which of the
        two is on the disk.
        """
        known = {(r.kind, r.key) for r in before}
        new = [r for r in put if (r.kind, r.key) not in known]

        def saved(result: Result) -> None:
            if isinstance(result, StorageError):
                self._restore(before, new, lambda: then(result), unsure, self.now.mono + ANSWER_S)
            else:
                then(result)

        self.save(put, forget, saved)

    def _restore(
        self,
        before: Sequence[AnyRecord],
        new: Sequence[AnyRecord],
        then: Callable[[], None],
        unsure: Callable[[StorageError], None] | None,
        answer_at: float,
    ) -> None:
        def restored(result: Result) -> None:
            if not isinstance(result, StorageError):
                then()
                return
            left = unsure
            if unsure is not None and self.now.mono + broker_limits.SAVE_RETRY_S > answer_at:
                unsure(result)
                left = None
            self.later(broker_limits.SAVE_RETRY_S, lambda: self._restore(before, new, then, left, answer_at))

        self.save(before, new, restored)

    def completed(self, number: int, result: object) -> None:
        """An action has ended with its result, or with a `StorageError`. An unknown number is a programming error."""
        self._reads.discard(number)
        outcome = self._waiting.pop(number)
        if isinstance(result, StorageError):
            outcome.fail(result)
        else:
            outcome.set(result)

    @property
    def idle(self) -> bool:
        """Whether no action except reads is waiting for its result."""
        return len(self._waiting) == len(self._reads)

    def pop_actions(self) -> list[a.Action]:
        """All actions since the last call."""
        actions = self.actions
        self.actions = []
        return actions


def refusal(result: Result) -> Refused | None:
    """The refusal of a request whose action failed on the disk; None when it did not fail."""
    return Refused(503, w.STORAGE, str(result)) if isinstance(result, StorageError) else None


# --- deletion -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deletion:
    """Records that are about to be deleted, as they are now, with the reaction to the outcome. Until then they must
    not be changed.

    `change` are other records that refer to them, each before and after; `damaged` have the keys of records that cannot
    be read. `over` is called once, with whether the records are deleted.
    """

    records: Sequence[AnyRecord]
    over: Callable[[bool], None]
    change: Sequence[tuple[AnyRecord, AnyRecord]] = ()
    damaged: Sequence[AnyRecord] = ()


def remove(outbox: Outbox, deletions: Sequence[Deletion], then: Callable[[Refused | None], None]) -> None:
    """Delete all of these records or none. `then` is called once, with the refusal if they are not deleted: after
    `ANSWER_S` (`outbox`) also when the outcome is still unknown.
    """
    records = [record for deletion in deletions for record in deletion.records]
    damaged = [record for deletion in deletions for record in deletion.damaged]
    changes = [change for deletion in deletions for change in deletion.change]
    answered = False

    def unsure(error: StorageError) -> None:
        nonlocal answered
        answered = True
        message = f"{error}; it is not known whether this was written; further changes wait until it is known"
        then(Refused(503, w.STORAGE, message))

    def saved(result: Result) -> None:
        for deletion in deletions:
            deletion.over(not isinstance(result, StorageError))
        if not answered:
            then(refusal(result))

    if not (records or damaged):
        saved(None)
        return
    before = [*records, *(former for former, _ in changes)]
    outbox.save_surely([after for _, after in changes], [*records, *damaged], before, saved, unsure)
