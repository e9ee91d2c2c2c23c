"""The core's decided actions that are not carried out yet, and the outcomes of those that have a result."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from mtl.broker import actions
from mtl.broker import limits as broker_limits
from mtl.broker.access.audit import Audit
from mtl.broker.steps import Outcome, run
from mtl.errors import Refused, StorageError
from mtl.storage.api import Answered, NewChunk, Prepare, Read, Save
from mtl.storage.records import AnyRecord
from mtl.wire import commands, control

T = TypeVar("T")

ANSWER_S = 1.0
"""Seconds that a request waits for the undoing of a failed transaction, before the answer is that the outcome is
unknown. It is below the client's request timeout (`limits.REQUEST_TIMEOUT_S`), else the client would get no answer."""


class Outbox:
    """Actions in the order of their decisions, and the outcomes of those with an id.

    `now` is the time of the input that is being handled; the core has no other clock. `audit` is the audit log.
    """

    def __init__(self) -> None:
        self.actions: list[actions.Action] = []
        self.now = actions.Now(0.0, 0)
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
        self.later(delay_s, partial(over.set, None))
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

    def command(self, peer: actions.Peer, command: commands.Command, owner: str) -> None:
        """Send a data command that is not a reader's content."""
        self.actions.append(actions.Send(peer, *commands.encode(command), owner))

    def reply(self, envelope: tuple[bytes, ...], reply: control.Reply | Refused, owner: str) -> None:
        """Answer a control request."""
        frames = (
            control.encode_refusal(reply)
            if isinstance(reply, Refused)
            else control.encode_reply(reply.code, reply)
        )
        self.actions.append(actions.SendReply(envelope, tuple(frames), owner))

    # --- requests to the disk -------------------------------------------------------------------------------

    def submit(self, make: Callable[[int], Answered[T]]) -> Outcome[T]:
        """Request an action with a result."""
        self._last_id += 1
        outcome: Outcome[T] = Outcome()
        self._waiting[self._last_id] = outcome
        self.actions.append(make(self._last_id))  # type: ignore[arg-type]  # every `Answered` is an action
        return outcome

    def read(self, make: Callable[[int], Read]) -> Outcome[Any]:
        """The same for a read; a clean stop does not wait for its result."""
        outcome = self.submit(make)
        self._reads.add(self._last_id)
        return outcome

    def prepare(self, chunk: NewChunk) -> None:
        """Announce a chunk that is going to be appended, so that its checksum is computed ahead; no result."""
        self.actions.append(Prepare(chunk))

    def save(self, put: Sequence[AnyRecord], forget: Sequence[AnyRecord] = ()) -> Outcome[None]:
        """Save and delete records in one durable transaction."""
        return self.submit(lambda number: Save(number, tuple(put), tuple(forget)))

    async def save_surely(
        self,
        put: Sequence[AnyRecord],
        forget: Sequence[AnyRecord],
        before: Sequence[AnyRecord],
        unsure: Callable[[StorageError], None],
    ) -> None:
        """Save, and on failure restore: the caller gets an error only after the old records (`before`) are durable
        again. `unsure` is called, at most once, when that takes longer than `ANSWER_S`. Until the step ends, the
        objects that the records describe must not be changed.

        A transaction whose sync failed may still be on the disk, and a crash would bring it back; a later one that
        succeeds replaces it for good. A caller that continues to append after a failure has to know which of the
        two is on the disk.
        """
        try:
            await self.save(put, forget)
        except StorageError:
            known = {(r.kind, r.key) for r in before}
            await self._restore(before, [r for r in put if (r.kind, r.key) not in known], unsure)
            raise

    async def _restore(
        self,
        before: Sequence[AnyRecord],
        new: Sequence[AnyRecord],
        unsure: Callable[[StorageError], None],
    ) -> None:
        answer_at, is_answered = self.now.mono + ANSWER_S, False
        while True:
            try:
                await self.save(before, new)
            except StorageError as error:
                if not is_answered and self.now.mono + broker_limits.SAVE_RETRY_S > answer_at:
                    unsure(error)
                    is_answered = True
            else:
                return
            await self.pause(broker_limits.SAVE_RETRY_S)

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

    def pop_actions(self) -> list[actions.Action]:
        """All actions since the last call."""
        popped, self.actions = self.actions, []
        return popped


def unstored(error: StorageError) -> Refused:
    """The answer to a request whose action failed on the disk."""
    return Refused(503, control.STORAGE, str(error))


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


def remove(outbox: Outbox, deletions: Sequence[Deletion]) -> Outcome[None]:
    """Delete all of these records or none. The step ends with the `StorageError` if they are not deleted, and after
    `ANSWER_S` with `Refused` 503 if that is still unknown.
    """
    removed: Outcome[None] = Outcome()
    run(_remove(outbox, deletions, removed))
    return removed


async def _remove(outbox: Outbox, deletions: Sequence[Deletion], removed: Outcome[None]) -> None:
    records = [record for deletion in deletions for record in deletion.records]
    damaged = [record for deletion in deletions for record in deletion.damaged]
    changes = [change for deletion in deletions for change in deletion.change]

    def unsure(error: StorageError) -> None:
        message = f"{error}; it is not known whether this was written; further changes wait until it is known"
        removed.fail(Refused(503, control.STORAGE, message))

    failed = None
    try:
        if records or damaged:
            before = [*records, *(former for former, _ in changes)]
            await outbox.save_surely([after for _, after in changes], [*records, *damaged], before, unsure)
    except StorageError as error:
        failed = error
    for deletion in deletions:
        deletion.over(failed is None)
    if removed.is_known:
        return
    if failed is not None:
        removed.fail(failed)
    else:
        removed.set(None)
