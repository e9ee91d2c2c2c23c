"""Deletion in one transaction: all records that belong together are deleted, or all of them stay.

Each part with records (resources, cursors, queues, stages) prepares a `Leaving`: the records to be deleted, and the
reaction to the outcome. From then on nothing else may be done to them.
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
    """Records that are about to be deleted, as they are now.

    `change` are other records that refer to them, each before and after; `damaged` have the keys of records that cannot
    be read. `over` is called once, with whether the records are deleted.
    """

    records: Sequence[AnyRecord]
    over: Callable[[bool], None]
    change: Sequence[tuple[AnyRecord, AnyRecord]] = ()
    damaged: Sequence[AnyRecord] = ()


def remove(outbox: Outbox, leavings: Sequence[Leaving], then: Callable[[Refused | None], None]) -> None:
    """Delete all of these records or none. `then` is called once, with the refusal if they are not deleted: after
    `ANSWER_S` (`outbox`) also when the outcome is still unknown.
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
