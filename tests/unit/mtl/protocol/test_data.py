from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.protocol.data import Answered, DataSession, OutOfTurn
from mtl.protocol.states import BROKER, CLIENT, End, FlowState, ResourceState
from mtl.wire import commands
from mtl.wire.fields import EMPTY

LEASE, SUMMON, DISMISS = commands.Lease(1, "token"), commands.Summon(2, "a"), commands.Dismiss(3, "a")
CONTENT = commands.Content(1, "a", EMPTY, b"")


def session(*steps: tuple[End, commands.Command], role: End = CLIENT) -> DataSession:
    made = DataSession(role)
    for sender, command in steps:
        step(made, sender, command)
    return made


def step(flow: DataSession, sender: End, command: commands.Command) -> Answered | None:
    return flow.sending(command) if sender is flow.role else flow.received(command)


BOUND = ((CLIENT, LEASE), (BROKER, commands.Response(1, 200)))
SUMMONED = (*BOUND, (CLIENT, SUMMON), (BROKER, commands.Response(2, 200)))


@pytest.mark.requirement("MTL-62", "MTL-64")
def test_a_lease_is_bound_when_accepted() -> None:
    flow = session((CLIENT, LEASE))
    assert (flow.state, flow.bound) == (FlowState.LEASING, False)
    assert flow.received(commands.Response(1, 200)) == Answered(LEASE, 200)
    assert flow.bound


@pytest.mark.requirement("MTL-64")
def test_a_refused_lease_does_not_change_the_binding() -> None:
    flow = session((CLIENT, LEASE))
    answered = flow.received(commands.Response(1, 403))
    assert answered is not None
    assert (answered.ok, flow.state) == (False, FlowState.UNBOUND)
    flow = session(*BOUND, (CLIENT, commands.Lease(9, "other")), (BROKER, commands.Response(9, 403)))
    assert flow.bound


@pytest.mark.requirement("MTL-60")
@pytest.mark.parametrize(
    "command", [SUMMON, DISMISS, CONTENT, commands.Confirm(1, True), commands.Ping(), commands.Pong()]
)
def test_commands_before_the_lease_are_out_of_turn(command: commands.Command) -> None:
    with pytest.raises(OutOfTurn, match=f"{type(command).__name__} is not allowed in state") as error:
        session().sending(command)
    refused = (
        commands.Response(command.sequence, 403)
        if isinstance(command, commands.Summon | commands.Dismiss)
        else None
    )
    assert error.value.response == refused


@pytest.mark.requirement("MTL-65", "MTL-66")
def test_commands_are_pipelined_and_answered_in_any_order() -> None:
    flow = session((CLIENT, LEASE), (CLIENT, SUMMON), (CLIENT, commands.Summon(4, "b")))
    assert flow.received(commands.Response(4, 200)) == Answered(commands.Summon(4, "b"), 200)
    assert flow.received(commands.Response(1, 200)) == Answered(LEASE, 200)
    assert flow.received(commands.Response(2, 400)) == Answered(SUMMON, 400)
    assert (flow.summoned, flow.resource("a"), flow.resource("b")) == (
        ["b"],
        ResourceState.DISMISSED,
        ResourceState.SUMMONED,
    )


@pytest.mark.requirement("MTL-70", "MTL-75")
def test_a_resource_is_not_summoned_or_dismissed_twice() -> None:
    for again in (commands.Summon(7, "a"), commands.Dismiss(7, "b")):
        with pytest.raises(OutOfTurn) as error:
            session(*SUMMONED, role=BROKER).received(again)
        assert error.value.response == commands.Response(7, 400)
    flow = session(*SUMMONED, (CLIENT, DISMISS), (BROKER, commands.Response(3, 200)))
    assert flow.summoned == []
    flow.sending(commands.Summon(8, "a"))


def test_after_the_end_of_a_lease_another_one_may_summon_the_same_resource() -> None:
    flow = session(*SUMMONED, role=BROKER)
    flow.released()
    assert flow.summoned == []
    flow.received(commands.Summon(7, "a"))


@pytest.mark.parametrize(
    ("again", "response"),
    [(commands.Summon(1, "a"), commands.Response(1, 400)), (commands.Lease(1, "token"), None)],
)
def test_a_command_sequence_is_not_used_twice_at_once(
    again: commands.Command, response: commands.Response | None
) -> None:
    with pytest.raises(OutOfTurn) as error:
        session((CLIENT, LEASE)).sending(again)
    assert error.value.response == response
    session(*BOUND).sending(again)


@pytest.mark.requirement("MTL-81")
def test_a_content_before_the_response_to_summon_is_out_of_turn() -> None:
    with pytest.raises(OutOfTurn):
        session(*BOUND, (CLIENT, SUMMON)).received(CONTENT)
    with pytest.raises(OutOfTurn):
        session(*SUMMONED).received(commands.Content(1, "b", EMPTY, b""))
    session(*SUMMONED).received(CONTENT)
    session(*SUMMONED).received(commands.Content(1, "", EMPTY, b""))


@pytest.mark.requirement("MTL-77", "MTL-82")
def test_contents_may_arrive_until_the_dismiss_is_accepted() -> None:
    flow = session(*SUMMONED, (CLIENT, DISMISS))
    flow.received(CONTENT)
    flow.received(commands.Response(3, 200))
    with pytest.raises(OutOfTurn):
        flow.received(CONTENT)
    flow = session(*SUMMONED, (CLIENT, DISMISS), (BROKER, commands.Response(3, 400)))
    flow.received(CONTENT)


def test_contents_of_a_writer_need_no_summon() -> None:
    session(*BOUND).sending(CONTENT)
    session(*BOUND, role=BROKER).received(CONTENT)


def test_a_response_without_command_is_ignored() -> None:
    assert session(*BOUND).received(commands.Response(99, 200)) is None


STEPS = st.one_of(
    st.builds(commands.Lease, st.integers(1, 4), st.just("t")),
    st.builds(commands.Response, st.integers(1, 4), st.sampled_from([200, 400, 403])),
    st.builds(commands.Summon, st.integers(1, 4), st.sampled_from("ab")),
    st.builds(commands.Dismiss, st.integers(1, 4), st.sampled_from("ab")),
    st.builds(
        commands.Content, st.integers(1, 4), st.sampled_from(["a", "b", ""]), st.just(EMPTY), st.just(b"")
    ),
    st.builds(commands.Confirm, st.integers(1, 4), st.booleans()),
    st.builds(commands.Ping),
)


@given(st.lists(st.tuples(st.sampled_from(End), STEPS), max_size=40))
def test_both_ends_agree_about_every_step(steps: list[tuple[End, commands.Command]]) -> None:
    ends = DataSession(CLIENT), DataSession(BROKER)
    for sender, command in steps:
        outcomes: list[object] = []
        for end in ends:
            try:
                outcomes.append(step(end, sender, command))
            except OutOfTurn as error:
                outcomes.append(error.response)
        assert outcomes[0] == outcomes[1]
        assert ends[0].state is ends[1].state
        assert ends[0].summoned == ends[1].summoned
