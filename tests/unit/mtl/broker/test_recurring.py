from __future__ import annotations

from mtl.broker.actions import Now
from mtl.broker.outbox import Outbox
from mtl.broker.recurring import Recurring


class Clock:
    """An outbox whose timers run as in the broker's loop."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.outbox.now = Now(0.0, 0)
        self.recurring = Recurring(self.outbox)

    def round(self, mono: float) -> None:
        self.outbox.now = Now(mono, 0)
        self.outbox.run_due()
        self.recurring.set_timers()


def test_needed_work_is_done_once_per_period() -> None:
    clock, done = Clock(), list[float]()
    clock.recurring.add(1.0, lambda: done.append(clock.outbox.now.mono))
    for tenth in range(36):
        clock.round(tenth / 10)
    assert done == [1.0, 2.0, 3.0]


def test_work_without_need_sets_no_timer_and_waits_a_period_when_needed() -> None:
    clock, done, wanted = Clock(), list[float](), list[str]()

    def do() -> None:
        done.append(clock.outbox.now.mono)
        wanted.clear()

    clock.recurring.add(1.0, do, lambda: bool(wanted))
    due = []
    for second in (0.0, 5.0, 5.5, 6.0):
        if second == 5.0:
            wanted.append("something")
        clock.round(second)
        due.append(clock.outbox.next_due)
    assert due == [None, 6.0, 6.0, None]
    assert done == [6.0]


def test_work_still_needed_is_repeated() -> None:
    clock, done = Clock(), list[float]()
    clock.recurring.add(1.0, lambda: done.append(clock.outbox.now.mono), lambda: len(done) < 2)
    for second in range(10):
        clock.round(float(second))
    assert done == [1.0, 2.0]
