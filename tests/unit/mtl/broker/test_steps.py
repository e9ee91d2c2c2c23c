"""Steps: their order, their errors, joins, and work that is dropped."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from mtl.broker import actions
from mtl.broker.outbox import Outbox
from mtl.broker.steps import Outcome, begin, either, gather, run
from mtl.errors import Refused, StorageFailed
from mtl.storage.api import Mark, Save, Trim
from mtl.wire import control

NO = Refused(404, control.UNKNOWN_RESOURCE, "no")
FAILED = StorageFailed("no")


class Desk:
    """Steps by name, and a log of what the works did."""

    def __init__(self) -> None:
        self.steps: dict[str, Outcome[str]] = {}
        self.log: list[str] = []

    def step(self, name: str) -> Outcome[str]:
        return self.steps.setdefault(name, Outcome())

    async def work(self, name: str, *steps: str) -> str:
        for step in steps:
            self.log.append(f"{name} awaits {step}")
            value = await self.step(step)
            self.log.append(f"{name} has {value}")
        return name

    async def alone(self, name: str, *steps: str) -> None:
        await self.work(name, *steps)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_work_runs_up_to_its_first_unfinished_step_and_continues_where_it_ends(desk: Desk) -> None:
    desk.step("known").set("1")
    run(desk.alone("x", "known", "later"))
    assert desk.log == ["x awaits known", "x has 1", "x awaits later"]
    desk.step("later").set("2")
    assert desk.log[3:] == ["x has 2"]


def test_works_that_wait_for_the_same_step_continue_in_their_order(desk: Desk) -> None:
    for name in "xyz":
        run(desk.alone(name, "s"))
    desk.log.clear()
    desk.step("s").set("1")
    assert desk.log == ["x has 1", "y has 1", "z has 1"]


def test_a_step_that_ends_while_a_work_continues_is_known_when_it_is_awaited(desk: Desk) -> None:
    async def ends_the_next() -> None:
        await desk.step("first")
        desk.step("second").set("2")
        desk.log.append(await desk.step("second"))

    run(ends_the_next())
    desk.step("first").set("1")
    assert desk.log == ["2"]


def test_many_steps_that_end_at_once_do_not_nest(desk: Desk) -> None:
    async def long() -> int:
        total = 0
        for _ in range(100_000):
            step: Outcome[int] = Outcome()
            step.set(1)
            total += await step
        return total

    assert begin(long()).value == 100_000


@pytest.mark.parametrize("error", [NO, FAILED])
def test_an_error_is_raised_where_the_step_is_awaited(desk: Desk, error: Any) -> None:
    async def careful() -> str:
        with pytest.raises(type(error)):
            await desk.step("s")
        return "handled"

    handled, passed = begin(careful()), begin(desk.work("x", "s"))
    desk.step("s").fail(error)
    assert handled.value == "handled"
    with pytest.raises(type(error)) as raised:
        _ = passed.value
    assert raised.value is error


def test_an_error_that_nothing_awaits_is_ignored(desk: Desk) -> None:
    begin(desk.work("x", "s"))
    desk.step("s").fail(NO)


def test_a_programming_error_is_raised_to_the_input_that_made_the_work_continue(desk: Desk) -> None:
    async def wrong() -> None:
        await desk.step("s")
        raise KeyError("bug")

    joined = begin(gather([wrong(), desk.alone("x", "s")]))
    with pytest.raises(KeyError, match="bug"):
        desk.step("s").set("1")
    assert not joined.is_known
    with pytest.raises(KeyError, match="bug"):
        run(wrong())


def test_an_error_that_work_does_not_handle_is_a_programming_error(desk: Desk) -> None:
    run(desk.alone("x", "s"))
    with pytest.raises(Refused):
        desk.step("s").fail(NO)


def test_a_step_ends_once(desk: Desk) -> None:
    desk.step("s").set("1")
    with pytest.raises(AssertionError):
        desk.step("s").fail(NO)


# --- joins --------------------------------------------------------------------------------------------------


def test_joined_works_begin_at_once_in_order_and_keep_their_order(desk: Desk) -> None:
    joined = begin(gather(desk.work(name, name) for name in "xyz"))
    assert desk.log == ["x awaits x", "y awaits y", "z awaits z"]
    for name in "zxy":
        assert not joined.is_known
        desk.step(name).set(name)
    assert joined.value == ["x", "y", "z"]


def test_nothing_to_join_ends_at_once() -> None:
    assert begin(gather([])).value == []


def test_joined_works_all_end_before_the_first_error_in_their_order_is_raised(desk: Desk) -> None:
    joined = begin(gather(desk.work(name, name) for name in "xyz"))
    desk.step("z").fail(FAILED)
    desk.step("y").fail(NO)
    assert not joined.is_known
    desk.step("x").set("x")
    assert joined.error is NO


def test_steps_can_be_joined_themselves(desk: Desk) -> None:
    joined = begin(gather([desk.step("x"), desk.step("y")]))
    desk.step("y").set("2")
    desk.step("x").set("1")
    assert joined.value == ["1", "2"]


@pytest.mark.parametrize("failed", [False, True])
def test_either_of_two_steps_ends_with_the_first(desk: Desk, failed: bool) -> None:
    ended = either(desk.step("x"), desk.step("y"))
    assert not ended.is_known
    if failed:
        desk.step("y").fail(FAILED)
    else:
        desk.step("y").set("2")
    assert (ended.is_known, ended.error) == (True, None)
    desk.step("x").set("1")


# --- the end ------------------------------------------------------------------------------------------------


def test_dropped_work_does_nothing(desk: Desk, recwarn: pytest.WarningsRecorder) -> None:
    run(desk.alone("x", "s"))
    joined = begin(gather([desk.work("y", "s"), desk.work("z", "t")]))
    before = list(desk.log)
    del joined
    desk.steps.clear()
    gc.collect()
    assert desk.log == before
    assert not recwarn.list


def test_ended_work_leaves_no_garbage(desk: Desk) -> None:
    def works() -> Iterator[Outcome[Any]]:
        yield begin(desk.work("x", "s"))
        yield begin(gather([desk.work("y", "s"), desk.work("z", "s")]))

    gc.collect()
    gc.disable()
    try:
        outcomes = list(works())
        desk.step("s").set("1")
        assert all(outcome.is_known for outcome in outcomes)
        outcomes.clear()
        assert gc.collect() == 0
    finally:
        gc.enable()


# --- steps of the disk and of time --------------------------------------------------------------------------


def test_an_action_is_a_step() -> None:
    outbox = Outbox()
    found: list[object] = []

    async def work() -> None:
        found.append(await outbox.submit(lambda number: Mark(number, "x")))
        try:
            await outbox.save(())
        except StorageFailed as e:
            found.append(e)

    run(work())
    (mark,) = outbox.pop_actions()
    assert isinstance(mark, Mark)
    outbox.completed(mark.id, True)
    (save,) = outbox.pop_actions()
    assert isinstance(save, Save)
    assert not outbox.idle
    outbox.completed(save.id, FAILED)
    assert found == [True, FAILED]
    assert outbox.idle


def test_a_result_that_nothing_awaits_is_taken() -> None:
    outbox = Outbox()
    outbox.submit(lambda number: Trim(number, "x", 1))
    (trim,) = outbox.pop_actions()
    assert isinstance(trim, Trim)
    outbox.completed(trim.id, FAILED)
    assert outbox.idle


def test_a_pause_is_a_step() -> None:
    outbox, ended = Outbox(), []

    async def work() -> None:
        await outbox.pause(2.0)
        ended.append(outbox.now.mono)

    run(work())
    outbox.now = actions.Now(1.0, 0)
    outbox.run_due()
    assert ended == []
    outbox.now = actions.Now(2.5, 0)
    outbox.run_due()
    assert ended == [2.5]
