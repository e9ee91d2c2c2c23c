"""The way into one log by itself: groups, holders, what is lost with what. Driven without a broker around it."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.broker.outbox import Outbox
from mtl.broker.writing.intake import Arrival, Inbound, Intake
from mtl.broker.writing.turns import Turns
from mtl.broker.writing.writers import WriterLease
from mtl.errors import LogStopped, StorageFailed
from mtl.log.chunk import NewChunk, RunEntry
from mtl.log.reader import LogReader
from mtl.storage.api import Append, Draft, Prepare, Trim
from mtl.wire.fields import EMPTY


class Log:
    """As much of a LogReader as an intake sees."""

    def __init__(self) -> None:
        self.applied: list[object] = []

    def apply(self, change: object) -> None:
        self.applied.append(change)


def lease(key: int | str = 1, *, confirmed: bool = True) -> WriterLease:
    return cast(WriterLease, SimpleNamespace(key=key, confirmed_flow=confirmed))


class Desk:
    """An intake, and what it told its owner."""

    def __init__(
        self, last: dict[int, int] | None = None, turns: Turns | None = None, outbox: Outbox | None = None
    ) -> None:
        self.outbox = outbox or Outbox()
        self.log = Log()
        self.inbound = Inbound()
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
            self.intake.add(Arrival(of or WRITER, number, 1, (body,), EMPTY))
        self.intake.start()

    def actions(self) -> list[Any]:
        return self.outbox.take()

    def answer(self, result: object, action: Any = None) -> None:
        self.outbox.completed((action or self.actions()[0]).id, result)

    def drafts(self) -> Sequence[Draft | NewChunk]:
        return append(self.outbox).drafts


def append(outbox: Outbox) -> Append:
    """The only thing that is to be done."""
    (action,) = outbox.take()
    assert isinstance(action, Append)
    return action


WRITER = lease(1)
FAILED = StorageFailed("no")


# --- groups -------------------------------------------------------------------------------------------------


def test_what_arrives_while_a_group_is_with_the_disk_is_the_next_group() -> None:
    desk = Desk()
    desk.add(1)
    desk.add(2, 3)
    (first,) = desk.actions()
    assert [d.count for d in first.drafts] == [1]
    desk.answer(["change"], first)
    assert (desk.durable, desk.log.applied) == ([1], ["change"])
    assert [d.count for d in desk.drafts()] == [2]


def test_what_arrives_before_it_is_the_logs_turn_is_one_group() -> None:
    """Else many logs that are written to in turn would have a sync for every content."""
    turns, outbox = Turns(1), Outbox()
    busy, waiting = Desk(turns=turns, outbox=outbox), Desk(turns=turns, outbox=outbox)
    busy.add(1)
    first = append(outbox)
    for number in (1, 2, 3):
        waiting.add(number)
        busy.add(number + 1)
    assert outbox.take() == []
    busy.answer(["change"], first)
    second = append(outbox)
    assert [d.count for d in second.drafts] == [3]
    waiting.answer(["change"], second)
    third = append(outbox)
    assert [d.count for d in third.drafts] == [3]
    assert (busy.durable, waiting.durable) == ([1], [1, 2, 3])


def test_a_log_whose_turn_comes_when_it_is_held_lets_the_next_one_go_and_comes_again() -> None:
    turns, outbox = Turns(1), Outbox()
    busy, held, other = (Desk(turns=turns, outbox=outbox) for _ in range(3))
    busy.add(1)
    (first,) = outbox.take()
    held.add(1)
    other.add(1)
    held.intake.hold(lambda: None)
    busy.answer(FAILED, first)
    (second,) = outbox.take()
    other.answer(["change"], second)
    assert (busy.failed, other.durable, outbox.take()) == ([1], [1], [])
    held.intake.release()
    held.answer(["change"])
    assert held.durable == [1]


def test_a_group_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "GROUP_OCTETS", 10 * limits.ARRIVAL_OVERHEAD)
    desk = Desk()
    desk.intake.hold(lambda: None)
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
def test_a_pack_stays_what_it_is_and_plain_neighbours_share_a_chunk(pattern: str, counts: list[int]) -> None:
    desk = Desk()
    desk.intake.hold(lambda: None)
    number = 1
    for kind in pattern:
        count = 5 if kind == "K" else 1
        desk.intake.add(Arrival(WRITER, number, count, (b"x",), None if kind == "K" else EMPTY))
        number += count
    desk.intake.release()
    drafts = desk.drafts()
    assert [d.count for d in drafts] == counts
    assert [isinstance(d, NewChunk) for d in drafts] == [n == 5 for n in counts]


def test_a_large_pack_that_waits_is_prepared_and_then_appended_as_it_is() -> None:
    desk = Desk()
    large = bytes(broker_limits.PREPARED)
    for number, body, properties in (
        (1, large, None),
        (2, large, None),
        (3, b"small", None),
        (4, large, EMPTY),
    ):
        desk.intake.add(Arrival(WRITER, number, 1, (body,), properties))
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
    desk.intake.hold(lambda: None)
    for number, size in enumerate([30, 30, 30, 200, 1, 1, 1, 1, 1], 1):
        desk.intake.add(Arrival(WRITER, number, 1, (bytes(size),), EMPTY))
    desk.intake.release()
    assert [d.count for d in desk.drafts()] == [2, 1, 1, 4, 1]


@pytest.mark.parametrize(
    ("arrivals", "runs"),
    [
        ([(1, 1), (1, 2), (1, 3)], [RunEntry(1, 1, 3)]),
        ([(1, 1), (1, 3)], [RunEntry(1, 1, 1), RunEntry(1, 3, 1)]),
        ([(1, 1), (2, 1), (1, 2)], [RunEntry(1, 1, 1), RunEntry(2, 1, 1), RunEntry(1, 2, 1)]),
        ([("token", 1), ("token", 2)], []),
        ([(1, 1), ("token", 5), (1, 2)], [RunEntry(1, 1, 1), RunEntry(1, 2, 1)]),
    ],
)
def test_runs_say_which_numbers_of_named_writers_a_chunk_holds(
    arrivals: list[tuple[int | str, int]], runs: list[RunEntry]
) -> None:
    desk = Desk()
    desk.intake.hold(lambda: None)
    for key, number in arrivals:
        desk.intake.add(Arrival(lease(key), number, 1, (b"",), EMPTY))
    desk.intake.release()
    (draft,) = desk.drafts()
    assert list(draft.runs) == runs


def test_unconfirmed_numbers_are_no_runs() -> None:
    desk = Desk()
    desk.add(7, of=lease(1, confirmed=False))
    (draft,) = desk.drafts()
    assert draft.runs == ()
    assert desk.intake.numbers._accepted == {}


# --- numbers and echoes -------------------------------------------------------------------------------------


def test_taken_runs_ahead_of_last() -> None:
    desk = Desk({1: 4})
    desk.add(5, 6)
    assert (desk.intake.numbers._durable, desk.intake.numbers._accepted) == ({1: 4}, {1: 6})
    desk.answer(["change"])
    assert desk.intake.numbers._durable == desk.intake.numbers._accepted == {1: 6}


def test_an_echo_is_done_when_its_original_is() -> None:
    desk = Desk({1: 1})
    durable, pending = Arrival(WRITER, 1, 1), Arrival(WRITER, 2, 1)
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
    echo = Arrival(lease(1), 1, 1)
    desk.intake.echo(echo)
    desk.answer(FAILED)
    assert desk.failed == [1, 1]
    assert not echo.done


def test_an_echo_outlives_the_failure_of_another_writer() -> None:
    desk = Desk()
    desk.add(1)
    desk.add(1, of=lease(2))
    echo = Arrival(lease(2), 1, 1)
    desk.intake.echo(echo)
    desk.answer(FAILED)
    assert desk.failed == [1]
    desk.answer(["change"])
    assert echo.done


# --- failures -----------------------------------------------------------------------------------------------


def test_what_waits_behind_a_failed_content_of_its_writer_goes_with_it() -> None:
    """Else the later number would be stored first, and the earlier one taken for a duplicate when it comes again."""
    desk = Desk()
    other = lease(2)
    desk.add(1)
    desk.add(2, 3)
    desk.add(1, of=other)
    desk.answer(FAILED)
    assert desk.failed == [1, 2, 3]
    assert desk.intake.numbers._accepted == {1: 0, 2: 1}
    assert [d.count for d in desk.drafts()] == [1]


def test_octets_are_counted_until_they_are_durable_or_given_up() -> None:
    desk = Desk()
    desk.add(1)
    desk.add(2, of=lease(2))
    each = 1 + len(EMPTY) + limits.ARRIVAL_OVERHEAD
    assert desk.inbound.octets == 2 * each
    desk.answer(["change"])
    assert desk.inbound.octets == each
    desk.answer(FAILED)
    assert desk.inbound.octets == 0


def test_octets_given_up_twice_are_a_bug() -> None:
    with pytest.raises(AssertionError):
        Inbound().give(1)


def test_a_log_that_stopped_gives_everything_back() -> None:
    desk = Desk()
    desk.add(1)
    desk.add(1, of=lease(2))
    seen: list[object] = []
    desk.intake.hold(lambda: seen.append(desk.intake.stopped))
    stopped = LogStopped("for good")
    desk.answer(stopped)
    assert desk.failed == [1, 1]
    assert seen == [stopped], "whoever goes on must see it"
    desk.intake.release()
    desk.add(2)
    assert desk.actions() == []


def test_stop_and_go_on() -> None:
    desk = Desk()
    desk.intake.hold(lambda: None)
    desk.add(1)
    desk.intake.stop(FAILED)
    assert (desk.failed, desk.inbound.octets) == ([1], 0)
    desk.intake.go_on()
    desk.intake.release()
    desk.add(1)
    desk.answer(["change"])
    assert desk.durable == [1]


def test_forgotten_numbers_stay_forgotten() -> None:
    desk = Desk()
    desk.add(1, of=lease("token"))
    desk.intake.numbers.forget("token")
    desk.answer(["change"])
    assert desk.intake.numbers._durable == desk.intake.numbers._accepted == {}


# --- withdrawing --------------------------------------------------------------------------------------------


def test_withdrawing_waits_for_what_is_with_the_disk() -> None:
    desk = Desk()
    desk.add(1)
    desk.add(2)
    called: list[int] = []
    desk.intake.withdraw(1, lambda: called.append(desk.intake.numbers.durable(1)))
    assert (called, desk.failed) == ([], [2])
    assert desk.intake.numbers._accepted == {1: 1}
    desk.answer(["change"])
    assert called == [1]


def test_withdrawing_does_not_wait_for_others() -> None:
    desk = Desk()
    desk.add(1)
    desk.add(1, of=lease(2))
    called: list[int] = []
    desk.intake.withdraw(2, lambda: called.append(1))
    assert (called, desk.failed) == ([1], [1])
    desk.answer(["change"])
    assert desk.actions() == []


# --- holding ------------------------------------------------------------------------------------------------


def test_a_holder_waits_for_the_disk_and_starts_no_group() -> None:
    desk = Desk()
    desk.add(1)
    held: list[str] = []
    desk.intake.hold(lambda: held.append("me"))
    desk.add(2)
    assert (held, desk.intake.held) == ([], True)
    desk.answer(["change"])
    assert held == ["me"]
    assert desk.actions() == []
    desk.intake.release()
    assert len(desk.drafts()) == 1


def test_holders_come_one_after_the_other() -> None:
    desk = Desk()
    held: list[int] = []
    for number in (1, 2, 3):
        desk.intake.hold(lambda number=number: held.append(number))  # type: ignore[misc]
    assert held == [1]
    desk.intake.release()
    assert held == [1, 2]
    desk.intake.release()
    desk.intake.release()
    assert held == [1, 2, 3]
    assert not desk.intake.held


def test_a_holder_that_lets_go_at_once_lets_the_next_one_in() -> None:
    desk = Desk()
    held: list[int] = []

    def brief() -> None:
        held.append(1)
        desk.intake.release()

    desk.intake.hold(brief)
    desk.intake.hold(lambda: held.append(2))
    assert held == [1, 2]


def test_the_next_holder_waits_for_what_the_former_gave_the_disk() -> None:
    """Retention unlinks after it has let go: a commit that is put in place meanwhile would be a second action."""
    desk = Desk()
    held: list[int] = []

    def trim() -> None:
        desk.intake.submit(lambda number: Trim(number, "x", 1), lambda _: None)
        desk.intake.release()

    desk.intake.hold(trim)
    desk.intake.hold(lambda: held.append(1))
    assert held == []
    desk.answer(None)
    assert held == [1]


def test_two_actions_at_once_are_a_bug() -> None:
    desk = Desk()
    desk.add(1)
    with pytest.raises(AssertionError):
        desk.intake.submit(lambda number: Trim(number, "x", 1), lambda _: None)


def test_a_log_that_is_being_made_takes_contents_in_and_starts_later() -> None:
    desk = Desk()
    desk.intake.reader = None
    desk.add(1)
    assert desk.actions() == []
    assert not desk.intake.idle
    desk.intake.reader = cast(LogReader, desk.log)
    desk.intake.start()
    desk.answer(["change"])
    assert desk.intake.idle
