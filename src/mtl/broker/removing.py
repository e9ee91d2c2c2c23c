"""Forgetting things for good, in one transaction: all of what belongs together goes, or all of it stays.

Whatever has records (a resource, its cursors, queues and stages) prepares its `Leaving`: what is to go, and what is to
be done when it is gone or had to stay. From then on nothing else may be done to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mtl.broker.outbox import Outbox, Result, refusal
from mtl.errors import Refused, StorageError
from mtl.storage.records import AnyRecord
from mtl.wire import control as w


@dataclass(frozen=True, slots=True)
class Leaving:
    """Records that are about to be forgotten, as they are now.

    `change` are others that name them, each before and after; `damaged` have the keys of records that cannot be read.
    `over` is called once, with whether they are gone.
    """

    records: Sequence[AnyRecord]
    over: Callable[[bool], None]
    change: Sequence[tuple[AnyRecord, AnyRecord]] = ()
    damaged: Sequence[AnyRecord] = ()


def remove(outbox: Outbox, leavings: Sequence[Leaving], then: Callable[[Refused | None], None]) -> None:
    """Forget all of these or nothing. `then` is called once, with the refusal if they are not gone: within `ANSWER_S`
    (`outbox`) also when it is not known yet whether they are.
    """
    records = [record for leaving in leavings for record in leaving.records]
    damaged = [record for leaving in leavings for record in leaving.damaged]
    changes = [change for leaving in leavings for change in leaving.change]
    answered = False

    def unsure(error: StorageError) -> None:
        nonlocal answered
        answered = True
        message = (
            f"{error}; whether that was written is not known, and nothing else is done to it until it is"
        )
        then(Refused(503, w.STORAGE, message))

    def saved(result: Result) -> None:
        for leaving in leavings:
            leaving.over(not isinstance(result, StorageError))
        if not answered:
            then(refusal(result))

    if not (records or damaged):
        saved(None)
        return
    before = [*records, *(former for former, _ in changes)]
    outbox.save_surely([after for _, after in changes], [*records, *damaged], before, saved, unsure)
