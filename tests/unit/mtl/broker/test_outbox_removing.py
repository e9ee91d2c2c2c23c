"""Records are removed in one transaction, all or none."""

from __future__ import annotations

from typing import Any

import pytest

from mtl import limits
from mtl.broker import actions as a
from mtl.broker import limits as broker_limits
from mtl.broker.outbox import Deletion, Outbox, remove
from mtl.errors import StorageFailed
from mtl.storage.api import Save
from mtl.storage.records import WriterRecord

FAILED = StorageFailed("no")
A, B, OLD, NEW = (WriterRecord("/", *x) for x in (("a", 1, 1), ("b", 1, 1), ("c", 1, 1), ("c", 1, 2)))


class Desk:
    def __init__(self) -> None:
        self.outbox = Outbox()
        self.over: list[bool] = []
        self.answers: list[Any] = []
        leavings = [Deletion((A,), self.over.append), Deletion((B,), self.over.append, ((OLD, NEW),))]
        remove(self.outbox, leavings, self.answers.append)

    def save(self) -> Save:
        (save,) = self.outbox.pop_actions()
        assert isinstance(save, Save)
        return save


def test_all_records_are_removed_in_one_transaction() -> None:
    desk = Desk()
    save = desk.save()
    assert (list(save.put), list(save.forget)) == ([NEW], [A, B])
    desk.outbox.completed(save.id, None)
    assert (desk.over, desk.answers) == ([True, True], [None])


def test_all_records_stay_if_the_transaction_fails() -> None:
    desk = Desk()
    desk.outbox.completed(desk.save().id, FAILED)
    back = desk.save()
    assert (list(back.put), list(back.forget), desk.over) == ([A, B, OLD], [], [])
    desk.outbox.completed(back.id, None)
    assert desk.over == [False, False]
    (no,) = desk.answers
    assert (no.status, no.reason) == (503, "storage")


def test_the_answer_has_a_deadline() -> None:
    desk = Desk()
    desk.outbox.completed(desk.save().id, FAILED)
    at = 0.0
    while not desk.answers:
        desk.outbox.completed(desk.save().id, FAILED)
        at += broker_limits.SAVE_RETRY_S
        desk.outbox.now = a.Now(at, 0)
        desk.outbox.run_due()
        assert at < limits.REQUEST_TIMEOUT_S
    assert desk.over == [], "the records are still reserved"
    (no,) = desk.answers
    assert "not known" in no.message
    desk.outbox.completed(desk.save().id, None)
    assert (desk.over, len(desk.answers)) == ([False, False], 1)


@pytest.mark.parametrize("nothing", [[], [Deletion((), lambda _: None)]])
def test_removing_no_records_is_answered_at_once(nothing: list[Deletion]) -> None:
    outbox, answers = Outbox(), []  # type: ignore[var-annotated]
    remove(outbox, nothing, answers.append)
    assert (answers, outbox.pop_actions()) == ([None], [])
