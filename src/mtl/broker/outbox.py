"""What the core has decided and nobody has carried out yet; and who waits for the answers."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from mtl import limits
from mtl.broker import actions as a
from mtl.broker.access.audit import Audit
from mtl.errors import Refused, StorageError
from mtl.storage.api import NewChunk, Prepare, Save
from mtl.storage.records import AnyRecord
from mtl.wire import commands as c
from mtl.wire import control as w

Result = Any
"""What a completed action yields: a log's change, a `LogView`, None, or the `StorageError` that it failed with."""

Then = Callable[[Result], None]

ANSWER_S = 1.0
"""How long a request waits for a failed transaction to be taken back before it is answered that nobody knows. It is
below the client's own limit for a request (`limits.REQUEST_TIMEOUT_S`), else the client would hear nothing at all."""


class Outbox:
    """Actions in the order they were decided, and the continuations of those that will be answered.

    `now` is the time of the input being handled; the core's one way to know it. `audit` writes lines about it.
    """

    def __init__(self) -> None:
        self.actions: list[a.Action] = []
        self.now = a.Now(0.0, 0)
        self.audit = Audit(lambda: self.now.mono)
        self._waiting: dict[int, Then] = {}
        self._last_id = 0
        self._timers: list[tuple[float, int, Callable[[], None]]] = []

    # --- time -----------------------------------------------------------------------------------------------

    def later(self, delay_s: float, then: Callable[[], None]) -> None:
        """Call `then` once `delay_s` seconds from now, of monotonic time."""
        self._last_id += 1
        heapq.heappush(self._timers, (self.now.mono + delay_s, self._last_id, then))

    def run_due(self) -> None:
        """Call whatever is due; what that asks for anew is for the next time."""
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

    def command(self, peer: a.Peer, command: c.Command) -> None:
        """Send a data command that is not a reader's content."""
        self.actions.append(a.Send(peer, *c.encode(command)))

    def reply(self, envelope: tuple[bytes, ...], reply: w.Reply | Refused) -> None:
        """Answer a control request."""
        frames = w.encode_refusal(reply) if isinstance(reply, Refused) else w.encode_reply(reply.code, reply)
        self.actions.append(a.Reply(envelope, tuple(frames)))

    # --- requests to the disk -------------------------------------------------------------------------------

    def submit(self, make: Callable[[int], a.Action], then: Then) -> None:
        """Ask for an action that is answered; `then` gets its result, or the `StorageError` it failed with."""
        self._last_id += 1
        self._waiting[self._last_id] = then
        self.actions.append(make(self._last_id))

    def prepare(self, chunk: NewChunk) -> None:
        """Say that a chunk is going to be appended; nobody waits for what is made of that."""
        self.actions.append(Prepare(chunk))

    def save(self, put: Sequence[AnyRecord], forget: Sequence[AnyRecord], then: Then) -> None:
        """One durable transaction of records."""
        self.submit(lambda number: Save(number, tuple(put), tuple(forget)), then)

    def save_surely(
        self,
        put: Sequence[AnyRecord],
        forget: Sequence[AnyRecord],
        before: Sequence[AnyRecord],
        then: Then,
        unsure: Callable[[StorageError], None],
    ) -> None:
        """One durable transaction that, when it fails, did not happen: `then` hears of the failure only when another
        one has put the records back to what they were (`before`). `unsure` is called, once at most, when that takes
        longer than `ANSWER_S`; nothing may be done to what the records say until `then` is called.

        A transaction whose sync failed may be on the disk all the same, and a crash would bring it up; a later one that
        succeeds replaces it for good. Whoever goes on appending after a failure needs to know which it is.
        """
        known = {(r.kind, r.key) for r in before}
        new = [r for r in put if (r.kind, r.key) not in known]

        def saved(result: Result) -> None:
            if isinstance(result, StorageError):
                self._take_back(before, new, lambda: then(result), unsure, self.now.mono + ANSWER_S)
            else:
                then(result)

        self.save(put, forget, saved)

    def _take_back(
        self,
        before: Sequence[AnyRecord],
        new: Sequence[AnyRecord],
        then: Callable[[], None],
        unsure: Callable[[StorageError], None] | None,
        answer_at: float,
    ) -> None:
        def taken_back(result: Result) -> None:
            if not isinstance(result, StorageError):
                then()
                return
            left = unsure
            if unsure is not None and self.now.mono + limits.SAVE_RETRY_S > answer_at:
                unsure(result)
                left = None
            self.later(limits.SAVE_RETRY_S, lambda: self._take_back(before, new, then, left, answer_at))

        self.save(before, new, taken_back)

    def completed(self, number: int, result: Result) -> None:
        """The answer to an action; an unknown number is a programming error."""
        self._waiting.pop(number)(result)

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._waiting

    def take(self) -> list[a.Action]:
        """Everything decided since the last call."""
        taken = self.actions
        self.actions = []
        return taken


def refusal(result: Result) -> Refused | None:
    """The answer to a request whose action failed on the disk; None when it did not."""
    return Refused(503, w.STORAGE, str(result)) if isinstance(result, StorageError) else None
