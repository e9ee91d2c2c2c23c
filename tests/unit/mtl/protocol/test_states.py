"""The tables are well-formed: every state can be reached, every event leads to an existing state."""

from __future__ import annotations

from enum import Enum

import pytest

from mtl.protocol.states import (
    CONTROL,
    FLOW,
    LEASED,
    OUT_OF_TURN,
    RESOURCE,
    Control,
    End,
    FlowState,
    RequestKind,
    ResourceState,
)
from mtl.wire import commands, control


def reachable(start: Enum, steps: dict[Enum, set[Enum]]) -> set[Enum]:
    found, todo = {start}, [start]
    while todo:
        for after in steps[todo.pop()] - found:
            found.add(after)
            todo.append(after)
    return found


def test_every_state_has_a_row_and_is_reached_from_the_first() -> None:
    control_states = {
        state: {to for row in rows.values() for to in row.values()} for state, rows in CONTROL.items()
    }
    flow = {state: set(FLOW[state].values()) | set(LEASED.get(state, {}).values()) for state in FlowState}
    resource = {state: set(rows.values()) for state, rows in RESOURCE.items()}
    assert reachable(Control.NEW, control_states) == set(Control) == set(CONTROL)  # type: ignore[arg-type]
    assert reachable(FlowState.UNBOUND, flow) == set(FlowState) == set(FLOW)  # type: ignore[arg-type]
    assert reachable(ResourceState.DISMISSED, resource) == set(ResourceState) == set(RESOURCE)  # type: ignore[arg-type]


def test_every_state_can_be_left() -> None:
    assert all(
        any(to is not state for row in rows.values() for to in row.values())
        for state, rows in CONTROL.items()
        if state is not Control.PROFILED
    )
    assert all(any(to is not state for to in rows.values()) for state, rows in RESOURCE.items())


def test_every_state_has_an_answer_to_requests_out_of_turn() -> None:
    assert set(OUT_OF_TURN) == set(Control)
    assert all(400 <= status <= 599 for status, _, _ in OUT_OF_TURN.values())


@pytest.mark.requirement("MTL-21")
def test_a_session_starts_only_with_open() -> None:
    assert set(CONTROL[Control.NEW]) == {RequestKind.OPEN}


@pytest.mark.requirement("MTL-28", "MTL-29")
def test_a_401_is_possible_in_every_state_and_authorize_after_it() -> None:
    for state in (Control.READY, Control.PROFILED):
        assert all(row[401] is Control.UNAUTHORIZED for row in CONTROL[state].values())
    after = {201: Control.READY, 402: Control.CHALLENGED, 401: Control.UNAUTHORIZED}
    for state in set(Control) - {Control.NEW}:
        assert CONTROL[state][RequestKind.AUTHORIZE] == after


@pytest.mark.requirement("MTL-45")
def test_leases_are_possible_only_with_a_profile() -> None:
    assert [state for state in Control if RequestKind.LEASE in CONTROL[state]] == [Control.PROFILED]


def test_statuses_of_the_table_equal_those_of_the_replies() -> None:
    replies = {
        RequestKind.OPEN: control.ConnectionOpen.replies,
        RequestKind.AUTHORIZE: control.ConnectionAuthorize.replies,
        RequestKind.PROFILE: control.ConnectionProfile.replies,
        RequestKind.LEASE: control.ConnectionReader.replies,
        RequestKind.CLASS: control.ResourceCreate.replies,
    }
    for rows in CONTROL.values():
        for kind, row in rows.items():
            assert set(row) == set(replies[kind]) | {401}


@pytest.mark.requirement("MTL-60", "MTL-65")
def test_a_flow_starts_with_a_lease_and_commands_may_be_pipelined() -> None:
    assert {command for sender, command in FLOW[FlowState.UNBOUND] if sender is End.CLIENT} == {
        commands.Lease
    }
    pipelined = {command for sender, command in FLOW[FlowState.LEASING] if sender is End.CLIENT}
    assert pipelined == {
        commands.Lease,
        commands.Summon,
        commands.Dismiss,
        commands.Content,
        commands.Confirm,
        commands.Reject,
        commands.Ping,
        commands.Pong,
    }


def test_only_clients_send_requests_and_only_brokers_responses() -> None:
    for rows in FLOW.values():
        for sender, command in rows:
            assert not (
                sender is End.BROKER and command in {commands.Lease, commands.Summon, commands.Dismiss}
            )
            assert not (sender is End.CLIENT and command is commands.Response)


@pytest.mark.requirement("MTL-81", "MTL-82")
def test_contents_are_sent_between_the_responses_to_summon_and_dismiss() -> None:
    states = [state for state in ResourceState if (End.BROKER, commands.Content) in RESOURCE[state]]
    assert states == [ResourceState.SUMMONED, ResourceState.DISMISSING]


def test_each_end_is_the_peer_of_the_other() -> None:
    assert [peer.other.other for peer in End] == list(End)
    assert End.CLIENT.other is End.BROKER
