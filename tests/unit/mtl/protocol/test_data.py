from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.protocol.data import Answered, DataSession, OutOfTurn
from mtl.protocol.states import BROKER, CLIENT, End, FlowState, ResourceState
from mtl.wire import commands as c
from mtl.wire.fields import EMPTY

LEASE, SUMMON, DISMISS = c.Lease(1, "token"), c.Summon(2, "a"), c.Dismiss(3, "a")
CONTENT = c.Content(1, "a", EMPTY, b"")


def session(*steps: tuple[End, c.Command], role: End = CLIENT) -> DataSession:
    made = DataSession(role)
    for sender, command in steps:
        step(made, sender, command)
    return made


def step(flow: DataSession, sender: End, command: c.Command) -> Answered | None:
    return flow.sending(command) if sender is flow.role else flow.received(command)


BOUND = ((CLIENT, LEASE), (BROKER, c.Response(1, 200)))
SUMMONED = (*BOUND, (CLIENT, SUMMON), (BROKER, c.Response(2, 200)))


@pytest.mark.requirement("MTL-62", "MTL-64")
def test_a_lease_is_bound_when_accepted() -> None:
    flow = session((CLIENT, LEASE))
    assert (flow.state, flow.bound) == (FlowState.LEASING, False)
    assert flow.received(c.Response(1, 200)) == Answered(LEASE, 200)
    assert flow.bound


@pytest.mark.requirement("MTL-64")
def test_a_refused_lease_does_not_change_the_binding() -> None:
    flow = session((CLIENT, LEASE))
    answered = flow.received(c.Response(1, 403))
    assert answered is not None
    assert (answered.ok, flow.state) == (False, FlowState.UNBOUND)
    flow = session(*BOUND, (CLIENT, c.Lease(9, "other")), (BROKER, c.Response(9, 403)))
    assert flow.bound


@pytest.mark.requirement("MTL-60")
@pytest.mark.parametrize("command", [SUMMON, DISMISS, CONTENT, c.Confirm(1, True), c.Ping(), c.Pong()])
def test_commands_before_the_lease_are_out_of_turn(command: c.Command) -> None:
    with pytest.raises(OutOfTurn, match=f"{type(command).__name__} is not allowed in state") as error:
        session().sending(command)
    refused = c.Response(command.sequence, 403) if isinstance(command, c.Summon | c.Dismiss) else None
    assert error.value.response == refused


@pytest.mark.requirement("MTL-65", "MTL-66")
def test_commands_are_pipelined_and_answered_in_any_order() -> None:
    flow = session((CLIENT, LEASE), (CLIENT, SUMMON), (CLIENT, c.Summon(4, "b")))
    assert flow.received(c.Response(4, 200)) == Answered(c.Summon(4, "b"), 200)
    assert flow.received(c.Response(1, 200)) == Answered(LEASE, 200)
    assert flow.received(c.Response(2, 400)) == Answered(SUMMON, 400)
    assert (flow.summoned, flow.resource("a"), flow.resource("b")) == (
        ["b"],
        ResourceState.DISMISSED,
        ResourceState.SUMMONED,
    )


@pytest.mark.requirement("MTL-70", "MTL-75")
def test_a_resource_is_not_summoned_or_dismissed_twice() -> None:
    for again in (c.Summon(7, "a"), c.Dismiss(7, "b")):
        with pytest.raises(OutOfTurn) as error:
            session(*SUMMONED, role=BROKER).received(again)
        assert error.value.response == c.Response(7, 400)
    flow = session(*SUMMONED, (CLIENT, DISMISS), (BROKER, c.Response(3, 200)))
    assert flow.summoned == []
    flow.sending(c.Summon(8, "a"))


def test_after_the_end_of_a_lease_another_one_may_summon_the_same_resource() -> None:
    flow = session(*SUMMONED, role=BROKER)
    flow.released()
    assert flow.summoned == []
    flow.received(c.Summon(7, "a"))


@pytest.mark.parametrize(
    ("again", "response"), [(c.Summon(1, "a"), c.Response(1, 400)), (c.Lease(1, "token"), None)]
)
def test_a_command_sequence_is_not_used_twice_at_once(again: c.Command, response: c.Response | None) -> None:
    with pytest.raises(OutOfTurn) as error:
        session((CLIENT, LEASE)).sending(again)
    assert error.value.response == response
    session(*BOUND).sending(again)


@pytest.mark.requirement("MTL-81")
def test_a_content_before_the_response_to_summon_is_out_of_turn() -> None:
    with pytest.raises(OutOfTurn):
        session(*BOUND, (CLIENT, SUMMON)).received(CONTENT)
    with pytest.raises(OutOfTurn):
        session(*SUMMONED).received(c.Content(1, "b", EMPTY, b""))
    session(*SUMMONED).received(CONTENT)
    session(*SUMMONED).received(c.Content(1, "", EMPTY, b""))


@pytest.mark.requirement("MTL-77", "MTL-82")
def test_contents_may_arrive_until_the_dismiss_is_accepted() -> None:
    flow = session(*SUMMONED, (CLIENT, DISMISS))
    flow.received(CONTENT)
    flow.received(c.Response(3, 200))
    with pytest.raises(OutOfTurn):
        flow.received(CONTENT)
    flow = session(*SUMMONED, (CLIENT, DISMISS), (BROKER, c.Response(3, 400)))
    flow.received(CONTENT)


def test_contents_of_a_writer_need_no_summon() -> None:
    session(*BOUND).sending(CONTENT)
    session(*BOUND, role=BROKER).received(CONTENT)


def test_a_response_without_command_is_ignored() -> None:
    assert session(*BOUND).received(c.Response(99, 200)) is None


STEPS = st.one_of(
    st.builds(c.Lease, st.integers(1, 4), st.just("t")),
    st.builds(c.Response, st.integers(1, 4), st.sampled_from([200, 400, 403])),
    st.builds(c.Summon, st.integers(1, 4), st.sampled_from("ab")),
    st.builds(c.Dismiss, st.integers(1, 4), st.sampled_from("ab")),
    st.builds(c.Content, st.integers(1, 4), st.sampled_from(["a", "b", ""]), st.just(EMPTY), st.just(b"")),
    st.builds(c.Confirm, st.integers(1, 4), st.booleans()),
    st.builds(c.Ping),
)


@given(st.lists(st.tuples(st.sampled_from(End), STEPS), max_size=40))
def test_both_ends_agree_about_every_step(steps: list[tuple[End, c.Command]]) -> None:
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
