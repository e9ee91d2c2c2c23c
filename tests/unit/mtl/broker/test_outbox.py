"""Timers, answers, and transactions that have no effect after a failure."""

from __future__ import annotations

from typing import Any

import pytest

from mtl import limits
from mtl.broker import actions
from mtl.broker import limits as broker_limits
from mtl.broker.outbox import ANSWER_S, Outbox, unstored
from mtl.broker.steps import begin
from mtl.errors import Refused, StorageFailed
from mtl.storage.api import Save, Trim
from mtl.storage.records import ApplicationRecord, WriterRecord
from mtl.wire import commands, control

FAILED = StorageFailed("no")


def record(name: str, epoch: int = 1) -> WriterRecord:
    return WriterRecord("/", name, 7, epoch)


@pytest.fixture
def outbox() -> Outbox:
    return Outbox()


def saves(outbox: Outbox) -> list[Save]:
    found = outbox.pop_actions()
    assert all(isinstance(x, Save) for x in found)
    return found  # type: ignore[return-value]


# --- time ---------------------------------------------------------------------------------------------------


def test_timers_run_in_order_when_they_are_due(outbox: Outbox) -> None:
    ran: list[str] = []
    for delay, name in ((3.0, "late"), (1.0, "soon"), (1.0, "then")):
        outbox.later(delay, lambda name=name: ran.append(name))  # type: ignore[misc]
    assert outbox.next_due == 1.0
    outbox.run_due()
    assert ran == []
    outbox.now = actions.Now(2.0, 0)
    outbox.run_due()
    assert ran == ["soon", "then"]
    outbox.now = actions.Now(9.0, 0)
    outbox.run_due()
    assert ran == ["soon", "then", "late"]
    assert outbox.next_due is None


def test_a_timer_set_by_a_timer_runs_in_the_next_round(outbox: Outbox) -> None:
    ran: list[int] = []

    def again() -> None:
        ran.append(1)
        outbox.later(0.0, again)

    outbox.later(0.0, again)
    outbox.run_due()
    assert ran == [1]


# --- answers ------------------------------------------------------------------------------------------------


def test_an_action_is_answered_once(outbox: Outbox) -> None:
    outcome = outbox.submit(lambda number: Trim(number, "x", 1))
    (action,) = outbox.pop_actions()
    assert isinstance(action, Trim)
    assert not outbox.idle
    outbox.completed(action.id, "result")
    assert (outcome.value, outbox.idle) == ("result", True)
    with pytest.raises(KeyError):
        outbox.completed(action.id, "again")


def test_commands_and_replies_are_actions(outbox: Outbox) -> None:
    peer: Any = ("port", b"id")
    outbox.command(peer, commands.Response(3, 403), "me")
    outbox.reply((b"id", b""), control.Ok(), "me")
    outbox.reply((b"id", b""), Refused(404, control.UNKNOWN_RESOURCE, "no", missing=["a"]), "")
    sent, good, bad = outbox.pop_actions()
    assert sent == actions.Send(peer, *commands.encode(commands.Response(3, 403)), "me")
    assert isinstance(good, actions.SendReply)
    assert (good.envelope, good.frames[0]) == ((b"id", b""), b"200")
    assert isinstance(bad, actions.SendReply)
    assert bad.frames[0] == b"404"
    assert outbox.pop_actions() == []


def test_a_failed_action_refuses_its_request() -> None:
    refused = unstored(FAILED)
    assert (refused.status, refused.reason, refused.message) == (503, control.STORAGE, "no")


# --- save_surely --------------------------------------------------------------------------------------------


def test_a_save_that_succeeds_is_one_transaction(outbox: Outbox) -> None:
    unsure: list[Any] = []
    saved = begin(outbox.save_surely((record("a"),), (), (), unsure.append))
    (save,) = saves(outbox)
    outbox.completed(save.id, None)
    assert (saved.is_known, saved.error, unsure, outbox.pop_actions()) == (True, None, [], [])


@pytest.mark.parametrize(
    ("put", "forget", "before", "back_put", "back_forget"),
    [
        ([record("new")], [], [], [], [record("new")]),
        ([record("a", 2)], [], [record("a", 1)], [record("a", 1)], []),
        ([record("a", 2), record("new")], [], [record("a", 1)], [record("a", 1)], [record("new")]),
        ([], [record("a", 1)], [record("a", 1)], [record("a", 1)], []),
    ],
)
def test_a_failed_save_is_undone(
    outbox: Outbox, put: Any, forget: Any, before: Any, back_put: Any, back_forget: Any
) -> None:
    unsure: list[Any] = []
    saved = begin(outbox.save_surely(put, forget, before, unsure.append))
    (save,) = saves(outbox)
    outbox.completed(save.id, FAILED)
    assert not saved.is_known
    (back,) = saves(outbox)
    assert (list(back.put), list(back.forget)) == (back_put, back_forget)
    outbox.completed(back.id, FAILED)
    assert (saved.is_known, outbox.pop_actions()) == (False, [])
    outbox.now = actions.Now(broker_limits.SAVE_RETRY_S, 0)
    outbox.run_due()
    (again,) = saves(outbox)
    outbox.completed(again.id, None)
    assert saved.error is FAILED
    assert unsure == []


def test_an_unknown_outcome_is_reported_before_the_request_timeout(outbox: Outbox) -> None:
    unsure: list[Any] = []
    saved = begin(outbox.save_surely((record("a"),), (), (), unsure.append))
    (save,) = saves(outbox)
    outbox.completed(save.id, FAILED)
    reported = 0.0
    for at in range(10):
        (back,) = saves(outbox)
        outbox.completed(back.id, FAILED)
        reported = reported if unsure else at * broker_limits.SAVE_RETRY_S
        outbox.now = actions.Now((at + 1) * broker_limits.SAVE_RETRY_S, 0)
        outbox.run_due()
    assert unsure == [FAILED], "once"
    assert not saved.is_known
    assert reported <= ANSWER_S < limits.REQUEST_TIMEOUT_S
    (back,) = saves(outbox)
    outbox.completed(back.id, None)
    assert saved.error is FAILED


def test_records_are_identified_by_kind_and_key(outbox: Outbox) -> None:
    application = ApplicationRecord("/", "a", 1, "", {}, 0)
    begin(outbox.save_surely((record("a"), application), (), (record("a"),), lambda _: None))
    (save,) = saves(outbox)
    outbox.completed(save.id, FAILED)
    (back,) = saves(outbox)
    assert list(back.forget) == [application]
