"""The intake of one log alone: groups, holders, and dependent losses. Without a broker around it."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.broker.outbox import Outbox
from mtl.broker.writing.intake import AcceptedContents, InboundBudget, Intake
from mtl.broker.writing.turns import Turns
from mtl.broker.writing.writers import WriterLease
from mtl.errors import LogStopped, StorageFailed
from mtl.log.chunk import NewChunk, RunEntry
from mtl.log.reader import LogReader
from mtl.storage.api import Append, Draft, Prepare, Trim
from mtl.wire.fields import EMPTY


class Log:
    """The part of a LogReader that an intake uses."""

    def __init__(self) -> None:
        self.applied: list[object] = []

    def apply(self, change: object) -> None:
        self.applied.append(change)


def lease(key: int | str = 1, *, confirmed: bool = True) -> WriterLease:
    return cast(WriterLease, SimpleNamespace(key=key, share="etl", confirmed_flow=confirmed))


class Desk:
    """An intake, and its reports to its owner."""

    def __init__(
        self, last: dict[int, int] | None = None, turns: Turns | None = None, outbox: Outbox | None = None
    ) -> None:
        self.outbox = outbox or Outbox()
        self.log = Log()
        self.inbound = InboundBudget()
        self.durable: list[int] = []
        self.failed: list[int] = []
        self.intake = Intake(
            self.outbox,
            "resources/x",
            cast(LogReader, self.log),
            last or {},
            self.inbound,
            turns or Turns(limits.COMMIT_THREADS),
            lambda _, group: self.durable.extend(x.last for x in group),
            lambda lost: self.failed.extend(x.last for x in lost),
        )

    def add(self, *numbers: int, of: WriterLease | None = None, body: bytes = b"x") -> None:
        for number in numbers:
            self.intake.add(AcceptedContents(of or WRITER, number, 1, (body,), EMPTY))
        self.intake.start()

    def actions(self) -> list[Any]:
        return self.outbox.pop_actions()

    def answer(self, result: object, action: Any = None) -> None:
        self.outbox.completed((action or self.actions()[0]).id, result)

    def drafts(self) -> Sequence[Draft | NewChunk]:
        return append(self.outbox).drafts


def append(outbox: Outbox) -> Append:
    """The only pending action."""
    (action,) = outbox.pop_actions()
    assert isinstance(action, Append)
    return action


WRITER = lease(1)
FAILED = StorageFailed("no")


# --- groups -------------------------------------------------------------------------------------------------


def test_arrivals_during_a_write_are_the_next_group() -> None:
    desk = Desk()
    desk.add(1)
    desk.add(2, 3)
    (first,) = desk.actions()
    assert [d.count for d in first.drafts] == [1]
    desk.answer(["change"], first)
    assert (desk.durable, desk.log.applied) == ([1], ["change"])
    assert [d.count for d in desk.drafts()] == [2]


def test_arrivals_before_the_turn_of_a_log_are_one_group() -> None:
    """Otherwise many logs written in turn would need a sync for every content."""
    turns, outbox = Turns(1), Outbox()
    busy, waiting = Desk(turns=turns, outbox=outbox), Desk(turns=turns, outbox=outbox)
    busy.add(1)
    first = append(outbox)
    for number in (1, 2, 3):
        waiting.add(number)
        busy.add(number + 1)
    assert outbox.pop_actions() == []
    busy.answer(["change"], first)
    second = append(outbox)
    assert [d.count for d in second.drafts] == [3]
    waiting.answer(["change"], second)
    third = append(outbox)
    assert [d.count for d in third.drafts] == [3]
    assert (busy.durable, waiting.durable) == ([1], [1, 2, 3])


def test_a_held_log_passes_its_turn_and_gets_another() -> None:
    turns, outbox = Turns(1), Outbox()
    busy, held, other = (Desk(turns=turns, outbox=outbox) for _ in range(3))
    busy.add(1)
    (first,) = outbox.pop_actions()
    held.add(1)
    other.add(1)
    held.intake.hold()
    busy.answer(FAILED, first)
    (second,) = outbox.pop_actions()
    other.answer(["change"], second)
    assert (busy.failed, other.durable, outbox.pop_actions()) == ([1], [1], [])
    held.intake.release()
    held.answer(["change"])
    assert held.durable == [1]


def test_a_group_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "GROUP_OCTETS", 10 * limits.ARRIVAL_OVERHEAD)
    desk = Desk()
    desk.intake.hold()
    desk.add(*range(1, 31))
    desk.intake.release()
    assert sum(d.count for d in desk.drafts()) == 10


@pytest.mark.parametrize(
    ("pattern", "counts"),
    [
        ("ppp", [3]),
        ("KpK", [5, 1, 5]),
        ("KK", [5, 5]),
        ("pKpp", [1, 5, 2]),
    ],
)
def test_a_pack_stays_one_chunk_and_adjacent_plain_contents_share_one(
    pattern: str, counts: list[int]
) -> None:
    desk = Desk()
    desk.intake.hold()
    number = 1
    for kind in pattern:
        count = 5 if kind == "K" else 1
        desk.intake.add(AcceptedContents(WRITER, number, count, (b"x",), None if kind == "K" else EMPTY))
        number += count
    desk.intake.release()
    drafts = desk.drafts()
    assert [d.count for d in drafts] == counts
    assert [isinstance(d, NewChunk) for d in drafts] == [n == 5 for n in counts]


def test_a_large_waiting_pack_is_prepared_and_then_appended() -> None:
    desk = Desk()
    large = bytes(broker_limits.PREPARED)
    for number, body, properties in (
        (1, large, None),
        (2, large, None),
        (3, b"small", None),
        (4, large, EMPTY),
    ):
        desk.intake.add(AcceptedContents(WRITER, number, 1, (body,), properties))
        desk.intake.start()
    first, prepare = desk.actions()
    assert isinstance(prepare, Prepare)
    desk.answer(["change"], first)
    assert desk.durable == [1]
    second, small, plain = desk.drafts()
    assert second is prepare.chunk
    assert isinstance(small, NewChunk)
    assert isinstance(plain, Draft)
    assert (second.body, second.runs) == (large, (RunEntry(1, 2, 1),))


def test_a_chunk_of_plain_contents_is_no_larger_than_a_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_PACK", 100)
    monkeypatch.setattr(limits, "MAX_PACK_CONTENTS", 4)
    desk = Desk()
    desk.intake.hold()
    for number, size in enumerate([30, 30, 30, 200, 1, 1, 1, 1, 1], 1):
        desk.intake.add(AcceptedContents(WRITER, number, 1, (bytes(size),), EMPTY))
    desk.intake.release()
    assert [d.count for d in desk.drafts()] == [2, 1, 1, 4, 1]


@pytest.mark.parametrize(
    ("accepted", "runs"),
    [
        ([(1, 1), (1, 2), (1, 3)], [RunEntry(1, 1, 3)]),
        ([(1, 1), (1, 3)], [RunEntry(1, 1, 1), RunEntry(1, 3, 1)]),
        ([(1, 1), (2, 1), (1, 2)], [RunEntry(1, 1, 1), RunEntry(2, 1, 1), RunEntry(1, 2, 1)]),
        ([("token", 1), ("token", 2)], []),
        ([(1, 1), ("token", 5), (1, 2)], [RunEntry(1, 1, 1), RunEntry(1, 2, 1)]),
    ],
)
def test_runs_say_which_numbers_of_named_writers_a_chunk_holds(
    accepted: list[tuple[int | str, int]], runs: list[RunEntry]
) -> None:
    desk = Desk()
    desk.intake.hold()
    for key, number in accepted:
        desk.intake.add(AcceptedContents(lease(key), number, 1, (b"",), EMPTY))
    desk.intake.release()
    (draft,) = desk.drafts()
    assert list(draft.runs) == runs


def test_numbers_without_confirmation_are_not_runs() -> None:
    desk = Desk()
    desk.add(7, of=lease(1, confirmed=False))
    (draft,) = desk.drafts()
    assert draft.runs == ()
    assert desk.intake.numbers._accepted == {}


# --- numbers and echoes -------------------------------------------------------------------------------------


def test_accepted_numbers_precede_durable_ones() -> None:
    desk = Desk({1: 4})
    desk.add(5, 6)
    assert (desk.intake.numbers._durable, desk.intake.numbers._accepted) == ({1: 4}, {1: 6})
    desk.answer(["change"])
    assert desk.intake.numbers._durable == desk.intake.numbers._accepted == {1: 6}


def test_an_echo_is_durable_with_its_original() -> None:
    desk = Desk({1: 1})
    durable, pending = AcceptedContents(WRITER, 1, 1), AcceptedContents(WRITER, 2, 1)
    desk.add(2)
    desk.intake.echo(durable)
    desk.intake.echo(pending)
    assert (durable.done, pending.done) == (True, False)
    desk.answer(["change"])
    assert pending.done
    assert desk.durable == [2, 2]


def test_an_echo_fails_with_its_original() -> None:
    desk = Desk()
    desk.add(1)
    echo = AcceptedContents(lease(1), 1, 1)
    desk.intake.echo(echo)
    desk.answer(FAILED)
    assert desk.failed == [1, 1]
    assert not echo.done


def test_an_echo_does_not_fail_with_another_writer() -> None:
    desk = Desk()
    desk.add(1)
    desk.add(1, of=lease(2))
    echo = AcceptedContents(lease(2), 1, 1)
    desk.intake.echo(echo)
    desk.answer(FAILED)
    assert desk.failed == [1]
    desk.answer(["change"])
    assert echo.done


# --- failures -----------------------------------------------------------------------------------------------


def test_a_failed_content_fails_later_ones_of_its_writer() -> None:
    """Otherwise the later number would be stored first, and a repetition of the earlier one would be a duplicate."""
    desk = Desk()
    other = lease(2)
    desk.add(1)
    desk.add(2, 3)
    desk.add(1, of=other)
    desk.answer(FAILED)
    assert desk.failed == [1, 2, 3]
    assert desk.intake.numbers._accepted == {1: 0, 2: 1}
    assert [d.count for d in desk.drafts()] == [1]


def test_octets_are_counted_until_durable_or_failed() -> None:
    desk = Desk()
    desk.add(1)
    desk.add(2, of=lease(2))
    each = 1 + len(EMPTY) + limits.ARRIVAL_OVERHEAD
    assert desk.inbound.used == 2 * each
    desk.answer(["change"])
    assert desk.inbound.used == each
    desk.answer(FAILED)
    assert desk.inbound.used == 0


def test_releasing_octets_twice_is_an_error() -> None:
    with pytest.raises(AssertionError):
        InboundBudget().remove("etl", 1)


def test_a_stopped_log_fails_all_waiting_contents() -> None:
    desk = Desk()
    desk.add(1)
    desk.add(1, of=lease(2))
    results: list[object] = []
    desk.intake.hold().when_known(lambda: results.append(desk.intake.stopped))
    stopped = LogStopped("for good")
    desk.answer(stopped)
    assert desk.failed == [1, 1]
    assert results == [stopped], "the continuation must see the stop"
    desk.intake.release()
    desk.add(2)
    assert desk.actions() == []


def test_a_stopped_intake_can_be_resumed() -> None:
    desk = Desk()
    desk.intake.hold()
    desk.add(1)
    desk.intake.stop(FAILED)
    assert (desk.failed, desk.inbound.used) == ([1], 0)
    desk.intake.resume()
    desk.intake.release()
    desk.add(1)
    desk.answer(["change"])
    assert desk.durable == [1]


def test_forgotten_numbers_are_not_restored_by_a_write() -> None:
    desk = Desk()
    desk.add(1, of=lease("token"))
    desk.intake.numbers.forget("token")
    desk.answer(["change"])
    assert desk.intake.numbers._durable == desk.intake.numbers._accepted == {}


# --- withdrawing --------------------------------------------------------------------------------------------


def test_withdrawing_a_writer_waits_for_its_write_in_progress() -> None:
    desk = Desk()
    desk.add(1)
    desk.add(2)
    called: list[int] = []
    desk.intake.withdraw(1).when_known(lambda: called.append(desk.intake.numbers.durable(1)))
    assert (called, desk.failed) == ([], [2])
    assert desk.intake.numbers._accepted == {1: 1}
    desk.answer(["change"])
    assert called == [1]


def test_withdrawing_a_writer_does_not_wait_for_others() -> None:
    desk = Desk()
    desk.add(1)
    desk.add(1, of=lease(2))
    called: list[int] = []
    desk.intake.withdraw(2).when_known(lambda: called.append(1))
    assert (called, desk.failed) == ([1], [1])
    desk.answer(["change"])
    assert desk.actions() == []


# --- holding ------------------------------------------------------------------------------------------------


def test_a_hold_waits_for_the_write_in_progress_and_starts_no_group() -> None:
    desk = Desk()
    desk.add(1)
    held: list[str] = []
    desk.intake.hold().when_known(lambda: held.append("me"))
    desk.add(2)
    assert (held, desk.intake.held) == ([], True)
    desk.answer(["change"])
    assert held == ["me"]
    assert desk.actions() == []
    desk.intake.release()
    assert len(desk.drafts()) == 1


def test_holders_are_served_one_after_the_other() -> None:
    desk = Desk()
    held: list[int] = []
    for number in (1, 2, 3):
        desk.intake.hold().when_known(lambda number=number: held.append(number))  # type: ignore[misc]
    assert held == [1]
    desk.intake.release()
    assert held == [1, 2]
    desk.intake.release()
    desk.intake.release()
    assert held == [1, 2, 3]
    assert not desk.intake.held


def test_a_holder_that_releases_at_once_is_followed_by_the_next() -> None:
    desk = Desk()
    held: list[int] = []

    def brief() -> None:
        held.append(1)
        desk.intake.release()

    desk.intake.hold().when_known(brief)
    desk.intake.hold().when_known(lambda: held.append(2))
    assert held == [1, 2]


def test_the_next_holder_waits_for_the_action_of_the_former() -> None:
    """Retention unlinks files after its release: a commit published meanwhile would be a second action."""
    desk = Desk()
    held: list[int] = []

    def trim() -> None:
        desk.intake.submit(lambda number: Trim(number, "x", 1))
        desk.intake.release()

    desk.intake.hold().when_known(trim)
    desk.intake.hold().when_known(lambda: held.append(1))
    assert held == []
    desk.answer(None)
    assert held == [1]


def test_two_concurrent_actions_are_an_error() -> None:
    desk = Desk()
    desk.add(1)
    with pytest.raises(AssertionError):
        desk.intake.submit(lambda number: Trim(number, "x", 1))


def test_a_log_in_creation_accepts_contents_and_writes_them_later() -> None:
    desk = Desk()
    desk.intake.reader = None
    desk.add(1)
    assert desk.actions() == []
    assert not desk.intake.idle
    desk.intake.reader = cast(LogReader, desk.log)
    desk.intake.start()
    desk.answer(["change"])
    assert desk.intake.idle


def test_no_user_takes_the_room_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "INBOUND_OCTETS", 100)
    inbound = InboundBudget()
    inbound.add("greedy", 75)
    assert not inbound.fits("greedy", 1)
    assert inbound.fits("modest", 25)
    assert not inbound.fits("modest", 26), "more than all have together"
    inbound.remove("greedy", 75)
    assert inbound.fits("greedy", 75)
