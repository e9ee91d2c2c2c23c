"""Contents held by a consumer, and the fewest commands for its answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.protocol.consuming import ConsumerAnswer, ConsumerFlow, Hand
from mtl.wire import commands
from mtl.wire.fields import EMPTY, encode_table

CONFIRM, REJECT, RECYCLE = ConsumerAnswer.CONFIRM, ConsumerAnswer.REJECT, ConsumerAnswer.RECYCLE


def content(number: int, position: int | None = None, *, again: bool = False) -> commands.Content:
    table = {commands.SEQUENCE: position} if position is not None else {}
    properties = encode_table(table | ({commands.REDELIVERED: True} if again else {}))
    return commands.Content(number, "a", properties, b"")


def in_hand(flow: ConsumerFlow, count: int) -> list[Hand]:
    return [flow.received(content(n, 10 + n)) for n in range(1, count + 1)]


def test_a_content_has_its_position_and_redelivered_mark() -> None:
    flow = ConsumerFlow()
    assert flow.received(content(1, 77)) == Hand(0, 1, 77, again=False)
    assert flow.received(content(2, 5, again=True)) == Hand(0, 2, 5, again=True)
    assert flow.received(commands.Content(3, "a", EMPTY, b"")) == Hand(0, 3, 3, again=False)


@pytest.mark.requirement("MTL-90", "MTL-91", "MTL-95")
def test_consecutive_confirms_are_combined() -> None:
    flow = ConsumerFlow()
    hands = in_hand(flow, 6)
    for at, answer in ((0, CONFIRM), (1, RECYCLE), (2, CONFIRM), (4, CONFIRM), (5, REJECT)):
        assert flow.answer(hands[at], answer)
    assert flow.take_commands() == [
        commands.Reject(2, multiple=False, recycle=True),
        commands.Reject(6, multiple=False, recycle=False),
        commands.Confirm(3, multiple=True),
        commands.Confirm(5, multiple=False),
    ]
    assert flow.take_commands() == []
    assert len(flow) == 1


def test_a_content_is_answered_once() -> None:
    flow = ConsumerFlow()
    (hand,) = in_hand(flow, 1)
    assert flow.answer(hand, REJECT)
    assert not flow.answer(hand, CONFIRM)
    assert flow.take_commands() == [commands.Reject(1, multiple=False, recycle=False)]


def test_answers_to_contents_of_a_lost_flow_are_dropped() -> None:
    flow = ConsumerFlow()
    (old,) = in_hand(flow, 1)
    flow.answer(old, CONFIRM)
    flow.lost()
    assert flow.take_commands() == []
    new = flow.received(content(1, 11, again=True))
    assert not flow.answer(old, REJECT)
    assert flow.answer(new, CONFIRM)
    assert flow.take_commands() == [commands.Confirm(1, multiple=True)]


def test_without_confirmation_no_answers_are_sent() -> None:
    flow = ConsumerFlow(confirm=False)
    (hand,) = in_hand(flow, 1)
    assert not flow.answer(hand, CONFIRM)
    assert (len(flow), flow.take_commands()) == (0, [])


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from(ConsumerAnswer), st.booleans())))
def test_a_broker_settles_exactly_the_answered_contents(
    answers: list[tuple[int, ConsumerAnswer, bool]],
) -> None:
    flow = ConsumerFlow()
    hands = in_hand(flow, 31)
    outstanding = dict.fromkeys(range(1, 32))
    given_answers: dict[int, ConsumerAnswer] = {}
    settled: dict[int, ConsumerAnswer] = {}
    for at, answer, send in answers:
        if flow.answer(hands[at], answer):
            given_answers[at + 1] = answer
        for command in flow.take_commands() if send else ():
            numbers = (
                [n for n in outstanding if n <= command.sequence] if command.multiple else [command.sequence]
            )
            for number in numbers:
                del outstanding[number]
                rejected = isinstance(command, commands.Reject)
                settled[number] = (RECYCLE if command.recycle else REJECT) if rejected else CONFIRM  # type: ignore[union-attr]
    assert settled.items() <= given_answers.items()
    flow.lost()
