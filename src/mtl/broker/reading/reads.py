"""Questions about logs: answered from memory at once, or by a read of the storage engine.

The core never waits for a disk: a read is an action, and its result comes later. A slow read delays only the request or
the reader that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from mtl.broker.outbox import Outbox, Result, refusal
from mtl.broker.reading.stored import stored_pack
from mtl.broker.writing.resource import Resource
from mtl.errors import Refused, StorageError
from mtl.storage.api import ByTime, Contents, NotInMemory, Question, Read
from mtl.wire import control as w

Then = Callable[[Result], None]
"""Called with the answer to a question, or with a `StorageError`."""


class Reads:
    """Asks the logs of resources."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def ask(self, resource: Resource, question: Question, then: Then, share: str = "") -> None:
        """Ask the log of a resource; `then` is called at once if the answer is in memory. Raises `Refused` 503 for a
        log that is not open. Users (`share`) take turns with reads.
        """
        try:
            answer = resource.readable().answer_from_memory(question)
        except NotInMemory:
            self.read(resource, question, then, share)
        except StorageError as e:
            then(e)
        else:
            then(answer)

    def request(
        self, resource: Resource, question: Question, refused: Callable[[Refused], None], then: Then
    ) -> None:
        """Ask for a control request. `then` gets the answer. `refused` gets the 503 for contents that cannot be
        read, or a `Refused` that `then` raises. Raises the errors of `ask`.
        """

        def answered(result: Result) -> None:
            no = refusal(result)
            try:
                if no is None:
                    then(result)
            except Refused as e:
                no = e
            if no is not None:
                refused(no)

        self.ask(resource, question, answered)

    def at_time(self, resource: Resource, us: int, refused: Callable[[Refused], None], then: Then) -> None:
        """As `request`, for the first chunk appended at or after `us` (µs since 1970)."""
        self.request(resource, ByTime(us, self._outbox.now.wall_us), refused, then)

    def read(self, resource: Resource, question: Question, then: Then, share: str = "") -> None:
        """Read the answer to a question from the disk, because it is not in memory. Raises the errors of `ask`."""
        log = resource.readable()
        snapshot = log.snapshot()

        def answered(result: Result) -> None:
            removed = resource.log is log and log.earliest > snapshot.earliest
            if isinstance(result, StorageError) and removed:  # retention was faster than the read
                self.read(resource, question, then, share)
            else:
                then(result)

        self._outbox.read(
            lambda number: Read(number, resource.intake.key, snapshot, question, share), answered
        )

    def ask_all(
        self,
        questions: Sequence[tuple[Resource, Question]],
        then: Callable[[list[Result]], None],
        share: str = "",
    ) -> None:
        """Ask several questions; `then` gets all answers, in the order of the questions. Raises the errors of
        `ask`.
        """
        answers: list[Result] = [None] * len(questions)
        open_ones = set(range(len(questions)))

        def answered(at: int, answer: Result) -> None:
            answers[at] = answer
            open_ones.discard(at)
            if not open_ones:
                then(answers)

        for at, (resource, question) in enumerate(questions):
            self.ask(resource, question, partial(answered, at), share)
        if not questions:
            then(answers)

    def check(self, resource: Resource, start: int, then: Callable[[Refused | None], None]) -> None:
        """Check whether the log can be read from `start` on. Contents that could not be read before are read again;
        if this fails, `then` gets the refusal (503).
        """
        if not resource.unread.covers(start):
            then(None)
            return

        def answered(result: Result) -> None:
            error = result if isinstance(result, StorageError) else None
            try:
                for chunk in result if error is None else ():
                    stored_pack(chunk.ref, chunk.body)
            except StorageError as e:
                error = e
            if error is None:
                resource.unread.forget(start)
                then(None)
            else:
                resource.add_unread(start, start + 1, error)
                message = f"resource {resource.name!r} cannot be read from {start}: {error}"
                then(Refused(503, w.STORAGE, message))

        self.ask(resource, Contents(start, start + 1, octets=0, most=1), answered)
