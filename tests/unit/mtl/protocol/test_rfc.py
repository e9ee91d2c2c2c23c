from __future__ import annotations

import pytest

from mtl.protocol.consuming import ConsumerAnswer
from mtl.protocol.limits import RESEND_DELAY_S
from mtl.protocol.rfc import RfcConsumerFlow, RfcReaderFlow, RfcWriterFlow
from mtl.protocol.writing import RefusedContent
from mtl.wire import commands
from mtl.wire.fields import EMPTY

LATER = 10.0


def content(number: int) -> commands.Content:
    return commands.Content(number, "a", EMPTY, b"")


# --- reading ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-89")
@pytest.mark.parametrize("numbers", [[0, 1], [3, 3, 3], [9, 2], [2**64 - 1, 0], [1, 100]])
def test_contents_are_confirmed_by_their_own_numbers(numbers: list[int]) -> None:
    flow = RfcReaderFlow()
    for number in numbers:
        flow.received(content(number))
    assert flow.finish(1) == [commands.Confirm(numbers[0], multiple=False)]
    assert flow.finish(len(numbers) - 1) == [commands.Confirm(n, multiple=False) for n in numbers[1:]]
    assert flow.finish(0) == []


def test_contents_of_a_lost_flow_are_not_confirmed() -> None:
    flow = RfcReaderFlow()
    flow.received(content(1))
    flow.lost()
    flow.received(content(1))
    assert (flow.finish(1), flow.finish(1)) == ([], [commands.Confirm(1, multiple=False)])


# --- consuming ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-89", "MTL-94")
def test_contents_of_the_same_number_are_answered_separately() -> None:
    flow = RfcConsumerFlow()
    first, second, third = [flow.received(content(n)) for n in (4, 4, 0)]
    assert [x.position for x in (first, second, third)] == [4, 4, 0]
    assert flow.answer(second, ConsumerAnswer.RECYCLE)
    assert flow.answer(first, ConsumerAnswer.CONFIRM)
    assert flow.answer(first, ConsumerAnswer.CONFIRM) is False
    assert flow.answer(third, ConsumerAnswer.REJECT)
    assert flow.take_commands() == [
        commands.Reject(4, multiple=False, recycle=True),
        commands.Confirm(4, multiple=False),
        commands.Reject(0, multiple=False, recycle=False),
    ]
    assert flow.take_commands() == []


def test_answers_to_a_lost_flow_are_ignored() -> None:
    flow = RfcConsumerFlow()
    hand = flow.received(content(1))
    flow.lost()
    assert flow.answer(hand, ConsumerAnswer.CONFIRM) is False


def test_without_confirmation_no_contents_are_held() -> None:
    flow = RfcConsumerFlow(confirm=False)
    assert not flow.answer(flow.received(content(1)), ConsumerAnswer.CONFIRM)


# --- writing ------------------------------------------------------------------------------------------------


def written(count: int) -> RfcWriterFlow:
    flow = RfcWriterFlow(100, 10_000)
    for _ in range(count):
        flow.publish("a", EMPTY, b"")
    assert len(flow.pop_unsent(0.0, 100)) == count
    return flow


def numbers(flow: RfcWriterFlow, now: float = LATER) -> list[int]:
    return [sent.first for sent in flow.pop_unsent(now, 100)]


@pytest.mark.requirement("MTL-90", "MTL-91", "MTL-93")
def test_a_confirm_covers_one_or_all_up_to_its_number() -> None:
    flow = written(6)
    assert [x.first for x in flow.received(commands.Confirm(5, multiple=False), 0.0)] == [5]
    assert [x.first for x in flow.received(commands.Confirm(3, multiple=True), 0.0)] == [1, 2, 3]
    assert flow.received(commands.Confirm(5, multiple=False), 0.0) == ()
    assert flow.received(commands.Confirm(7, multiple=True), 0.0) == (), "it was never sent"
    assert flow.unconfirmed == 2


@pytest.mark.requirement("MTL-95", "MTL-96")
@pytest.mark.parametrize(("multiple", "again"), [(False, [3]), (True, [1, 2, 3])])
def test_a_recycle_resends_the_covered_contents(multiple: bool, again: list[int]) -> None:
    flow = written(6)
    assert flow.received(commands.Reject(3, multiple=multiple, recycle=True), 0.0) == ()
    assert numbers(flow, 0.0) == [], "after a pause"
    assert flow.due == RESEND_DELAY_S
    flow.received(commands.Reject(3, multiple=multiple, recycle=True), 0.0)
    assert numbers(flow) == again, "once, though it was told twice"
    assert (numbers(flow), flow.unconfirmed) == ([], 6)


@pytest.mark.requirement("MTL-93", "MTL-95")
def test_a_settled_content_is_progress_and_ends_the_growth_of_the_pause() -> None:
    flow = written(6)
    now = 0.0
    for _ in range(4):
        flow.received(commands.Reject(6, multiple=False, recycle=True), now)
        assert flow.due is not None
        now = flow.due
        assert numbers(flow, now) == [6]
    assert flow.progressed == 0
    flow.received(commands.Confirm(2, multiple=True), now)
    assert flow.progressed == 2
    flow.received(commands.Reject(6, multiple=False, recycle=True), now)
    assert flow.due == now + RESEND_DELAY_S, "the first pause again"


def test_contents_settled_during_the_pause_are_not_resent() -> None:
    flow = written(6)
    flow.received(commands.Reject(4, multiple=True, recycle=True), 0.0)
    flow.received(commands.Confirm(3, multiple=False), 0.0)
    flow.received(commands.Reject(1, multiple=False, recycle=False), 0.0)
    assert numbers(flow) == [2, 4]


@pytest.mark.requirement("MTL-88", "MTL-98")
def test_rejected_contents_are_reported_and_not_resent_on_the_next_flow() -> None:
    flow = written(4)
    flow.received(commands.Reject(2, multiple=True, recycle=False), 0.0)
    assert list(flow.refused) == [RefusedContent("a", 1, 1), RefusedContent("a", 2, 2)]
    flow.received(commands.Reject(9, multiple=True, recycle=True), 0.0)
    flow.lost()
    assert numbers(flow) == [3, 4]


def test_without_confirmation_no_contents_are_resent() -> None:
    flow = RfcWriterFlow(100, 10_000, confirm=False)
    flow.publish("a", EMPTY, b"")
    flow.pop_unsent(0.0, 10)
    flow.received(commands.Reject(1, multiple=True, recycle=True), 0.0)
    assert numbers(flow) == []
