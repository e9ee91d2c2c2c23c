"""Records are removed in one transaction, all or none."""

from __future__ import annotations

import pytest

from mtl import limits
from mtl.broker import actions
from mtl.broker import limits as broker_limits
from mtl.broker.outbox import Deletion, Outbox, remove
from mtl.errors import Refused, StorageFailed
from mtl.storage.api import Save
from mtl.storage.records import WriterRecord

FAILED = StorageFailed("no")
A, B, OLD, NEW = (WriterRecord("/", *x) for x in (("a", 1, 1), ("b", 1, 1), ("c", 1, 1), ("c", 1, 2)))


class Desk:
    def __init__(self) -> None:
        self.outbox = Outbox()
        self.over: list[bool] = []
        leavings = [Deletion((A,), self.over.append), Deletion((B,), self.over.append, ((OLD, NEW),))]
        self.removed = remove(self.outbox, leavings)

    def save(self) -> Save:
        (save,) = self.outbox.pop_actions()
        assert isinstance(save, Save)
        return save


def test_all_records_are_removed_in_one_transaction() -> None:
    desk = Desk()
    save = desk.save()
    assert (list(save.put), list(save.forget)) == ([NEW], [A, B])
    desk.outbox.completed(save.id, None)
    assert (desk.over, desk.removed.is_known, desk.removed.error) == ([True, True], True, None)


def test_all_records_stay_if_the_transaction_fails() -> None:
    desk = Desk()
    desk.outbox.completed(desk.save().id, FAILED)
    back = desk.save()
    assert (list(back.put), list(back.forget), desk.over) == ([A, B, OLD], [], [])
    desk.outbox.completed(back.id, None)
    assert desk.over == [False, False]
    assert desk.removed.error is FAILED


def test_the_answer_has_a_deadline() -> None:
    desk = Desk()
    desk.outbox.completed(desk.save().id, FAILED)
    at = 0.0
    while not desk.removed.is_known:
        desk.outbox.completed(desk.save().id, FAILED)
        at += broker_limits.SAVE_RETRY_S
        desk.outbox.now = actions.Now(at, 0)
        desk.outbox.run_due()
        assert at < limits.REQUEST_TIMEOUT_S
    assert desk.over == [], "the records are still reserved"
    assert isinstance(desk.removed.error, Refused)
    assert "not known" in desk.removed.error.message
    desk.outbox.completed(desk.save().id, None)
    assert desk.over == [False, False]


@pytest.mark.parametrize("nothing", [[], [Deletion((), lambda _: None)]])
def test_removing_no_records_is_answered_at_once(nothing: list[Deletion]) -> None:
    outbox = Outbox()
    removed = remove(outbox, nothing)
    assert (removed.is_known, removed.error, outbox.pop_actions()) == (True, None, [])
