"""Ages: no jump of the wall clock increases an age, and jumps are remembered across restarts."""

from __future__ import annotations

import logging
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.broker import actions
from mtl.broker.outbox import Outbox
from mtl.broker.writing.clock import CLOCK_JUMP_S, CLOCK_JUMPS, DOWNTIME_S, CorrectedClock
from mtl.storage.api import Save
from mtl.storage.records import ClockRecord

HOUR = 3600.0
START_US = 1_700_000_000_000_000


class Machine:
    """A machine with a broker: `true` is the time since the start, independent of its clocks."""

    def __init__(self) -> None:
        self.true = 0.0
        self.mono = 100.0
        self.boot_s = 500.0
        self.wall_us = START_US
        self.boot = "one"
        self.start()

    def start(self) -> None:
        self.outbox = Outbox()
        self.outbox.now = self.now()
        self.clock = CorrectedClock(self.outbox, getattr(self, "noted", None), self.boot)
        self.store_record()

    def now(self) -> actions.Now:
        return actions.Now(self.mono, self.wall_us, self.boot_s)

    def store_record(self) -> None:
        """Store the record that the clock wants saved."""
        for action in self.outbox.pop_actions():
            assert isinstance(action, Save)
            (self.noted,) = action.put

    def compare_clocks(self) -> None:
        self.outbox.now = self.now()
        self.clock.compare_clocks()
        self.store_record()

    def note(self) -> None:
        self.compare_clocks()
        self.clock.save_clocks()
        self.store_record()

    def pass_by(self, seconds: float, *, asleep: bool = False) -> None:
        self.true += seconds
        self.boot_s += seconds
        self.mono += 0.0 if asleep else seconds
        self.wall_us += int(seconds * 1e6)

    def set_clock_by(self, seconds: float) -> None:
        self.wall_us += int(seconds * 1e6)

    def reboot(self, seconds: float) -> None:
        """Be down for this time, then start under another boot."""
        self.pass_by(seconds)
        self.boot += "'"
        self.mono = self.boot_s = 1.0

    def age(self, stamp: int) -> float:
        self.compare_clocks()
        return self.clock.age(stamp)


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_without_a_jump_an_age_is_the_elapsed_time(machine: Machine) -> None:
    stamp = machine.wall_us
    machine.pass_by(26 * HOUR)
    assert machine.age(stamp) == pytest.approx(26 * HOUR)


@pytest.mark.parametrize("by", [26 * HOUR, -26 * HOUR, 2 * CLOCK_JUMP_S, 50 * 365 * 24 * HOUR])
def test_a_jump_increases_no_age_and_is_logged(
    machine: Machine, by: float, caplog: pytest.LogCaptureFixture
) -> None:
    before = machine.wall_us
    machine.pass_by(HOUR)
    machine.set_clock_by(by)
    assert machine.age(before) == pytest.approx(HOUR if by > 0 else max(0.0, HOUR + by))
    (line,) = [x for x in caplog.records if x.levelno == logging.WARNING]
    assert f"jumped {'forward' if by > 0 else 'back'} by {abs(by):.0f} s" in line.getMessage()
    after = machine.wall_us
    machine.pass_by(HOUR)
    assert machine.age(after) == pytest.approx(HOUR)


def test_a_corrected_clock_leaves_ages_unchanged(machine: Machine) -> None:
    before = machine.wall_us
    machine.pass_by(HOUR)
    machine.set_clock_by(26 * HOUR)
    machine.pass_by(HOUR)
    machine.compare_clocks()
    machine.set_clock_by(-26 * HOUR)
    assert machine.age(before) == pytest.approx(2 * HOUR)


def test_a_stamp_in_the_future_has_age_zero_until_the_clock_reaches_it(machine: Machine) -> None:
    machine.set_clock_by(26 * HOUR)
    machine.compare_clocks()
    wrong = machine.wall_us
    machine.set_clock_by(-26 * HOUR)
    machine.pass_by(HOUR)
    assert machine.age(wrong) == 0.0
    machine.pass_by(26 * HOUR)
    assert machine.age(wrong) == pytest.approx(HOUR)


def test_slewing_is_not_a_jump_but_many_small_steps_are(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    stamp = machine.wall_us
    for _ in range(10):
        machine.pass_by(60.0)
        machine.set_clock_by(CLOCK_JUMP_S / 20)
        machine.compare_clocks()
    assert not caplog.records
    for _ in range(1_000):
        machine.set_clock_by(CLOCK_JUMP_S / 2)
        machine.compare_clocks()
    assert caplog.records
    assert machine.age(stamp) == pytest.approx(600.0, abs=2 * CLOCK_JUMP_S)


def test_suspended_time_counts_as_age(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    stamp = machine.wall_us
    machine.pass_by(10 * HOUR, asleep=True)
    assert machine.age(stamp) == pytest.approx(10 * HOUR)
    assert not caplog.records


# --- restarts -----------------------------------------------------------------------------------------------


def test_within_one_boot_the_downtime_counts_exactly(machine: Machine) -> None:
    stamp = machine.wall_us
    machine.note()
    machine.pass_by(50 * HOUR)
    machine.set_clock_by(100 * HOUR)
    machine.start()
    assert machine.age(stamp) == pytest.approx(50 * HOUR)


@pytest.mark.parametrize(
    ("down", "by"), [(60.0, 0.0), (60.0, 26 * HOUR), (50 * HOUR, 0.0), (60.0, -26 * HOUR)]
)
def test_across_a_reboot_the_counted_downtime_is_bounded(machine: Machine, down: float, by: float) -> None:
    """A long downtime and a jump cannot be distinguished: then contents are kept longer."""
    stamp = machine.wall_us
    machine.pass_by(HOUR)
    machine.note()
    machine.reboot(down)
    machine.set_clock_by(by)
    machine.start()
    counted = min(max(0.0, down + by), DOWNTIME_S)
    assert machine.age(stamp) == pytest.approx(HOUR + counted if by >= 0 else 0.0)


def test_a_jump_is_remembered_across_restarts(machine: Machine) -> None:
    stamp = machine.wall_us
    machine.set_clock_by(26 * HOUR)
    machine.compare_clocks()
    for _ in range(3):
        machine.pass_by(60.0)
        machine.note()
        machine.reboot(60.0)
        machine.start()
    assert machine.age(stamp) == pytest.approx(360.0)


def test_a_decreasing_uptime_within_one_boot_is_ignored(machine: Machine) -> None:
    """A container may see another origin of the uptime than the one before it."""
    stamp = machine.wall_us
    machine.note()
    machine.boot_s = 1.0
    machine.pass_by(HOUR)
    machine.set_clock_by(26 * HOUR)
    machine.start()
    assert machine.age(stamp) <= HOUR


def test_without_a_clock_record_ages_start_at_zero(machine: Machine) -> None:
    """The record with the jumps is missing: a kill before the first one, a damaged record, data of an older version."""
    stamp = machine.wall_us
    machine.pass_by(26 * HOUR)
    machine.set_clock_by(HOUR)
    machine.start()
    assert machine.age(stamp) == 0.0
    machine.pass_by(HOUR)
    assert machine.age(stamp) == pytest.approx(HOUR)


def test_a_first_start_under_a_wrong_clock_does_not_stop_ageing(machine: Machine) -> None:
    machine.set_clock_by(-10 * 365 * 24 * HOUR)
    machine.compare_clocks()
    stamp = machine.wall_us
    machine.pass_by(26 * HOUR)
    machine.note()
    machine.start()
    assert machine.age(stamp) == pytest.approx(26 * HOUR)


# --- any history --------------------------------------------------------------------------------------------


def test_remembered_jumps_are_bounded(machine: Machine) -> None:
    stamp = machine.wall_us
    for _ in range(3 * CLOCK_JUMPS):
        machine.pass_by(10.0)
        machine.set_clock_by(HOUR)
        machine.compare_clocks()
    machine.note()
    assert isinstance(machine.noted, ClockRecord)
    assert len(machine.noted.jumps) == CLOCK_JUMPS
    assert machine.age(stamp) == pytest.approx(machine.true)


@given(st.integers())
def test_an_age_exceeds_the_true_one_by_at_most_the_limits(seed: int) -> None:
    random, machine = Random(seed), Machine()
    stamps: list[tuple[int, float]] = []
    slack = last = 0.0
    for _ in range(60):
        what = random.random()
        if what < 0.4:
            machine.pass_by(random.choice((1.0, HOUR, 30 * HOUR)), asleep=random.random() < 0.2)
            machine.compare_clocks()
        elif what < 0.6:
            machine.set_clock_by(random.uniform(-1, 1) * random.choice((1.0, HOUR, 50 * HOUR)))
            machine.compare_clocks()
        elif what < 0.7:
            machine.note()
        elif what < 0.75:
            machine.reboot(random.choice((10.0, 50 * HOUR)))
            machine.start()
            slack += DOWNTIME_S
        else:
            last = max(last, machine.wall_us)  # append times never decrease
            stamps.append((int(last), machine.true))
        for stamp, at in stamps:
            age = machine.age(stamp)
            assert age <= machine.true - at + 2 * CLOCK_JUMP_S + slack
            # Both ways of asking agree: `stamp` gives the bound below which things are older.
            assert (stamp < machine.clock.stamp(age + 0.001)) is False
            assert age == 0.0 or stamp < machine.clock.stamp(age - 0.001)
