from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.protocol.heartbeat import Heartbeat, HeartbeatVerdict


@pytest.mark.requirement("MTL-102", "MTL-103")
def test_a_silent_end_pings_once_per_interval() -> None:
    pulse = Heartbeat(0.0, 5.0)
    assert pulse.check(4.9) is HeartbeatVerdict.QUIET
    assert pulse.check(5.0) is HeartbeatVerdict.PING
    assert pulse.check(5.1) is HeartbeatVerdict.QUIET
    pulse.received(6.0)
    assert pulse.check(9.0) is HeartbeatVerdict.QUIET
    assert pulse.check(10.0) is HeartbeatVerdict.PING


@pytest.mark.requirement("MTL-104")
def test_a_silent_peer_is_lost_after_three_intervals() -> None:
    pulse = Heartbeat(0.0, 5.0)
    assert [pulse.check(now) for now in (5.0, 10.0)] == [HeartbeatVerdict.PING, HeartbeatVerdict.PING]
    assert pulse.check(14.9) is HeartbeatVerdict.QUIET
    assert pulse.check(15.0) is HeartbeatVerdict.DEAD


def test_any_command_counts_as_a_sign_of_life() -> None:
    pulse = Heartbeat(0.0, 5.0)
    pulse.check(5.0)
    pulse.received(14.0)
    assert pulse.check(15.0) is not HeartbeatVerdict.DEAD


def test_a_busy_sender_pings_a_silent_peer() -> None:
    pulse = Heartbeat(0.0, 5.0)
    verdicts = []
    for tenth in range(1, 200):
        now = tenth / 10
        pulse.sent(now)
        verdicts.append(pulse.check(now))
    assert HeartbeatVerdict.PING in verdicts
    assert verdicts.index(HeartbeatVerdict.DEAD) / 10 == pytest.approx(14.9)


def test_a_peer_is_pinged_before_it_is_lost() -> None:
    pulse = Heartbeat(0.0, 5.0)
    assert pulse.check(1_000.0) is HeartbeatVerdict.PING, "the machine was suspended"
    pulse.received(1_000.5)
    assert pulse.check(1_001.0) is HeartbeatVerdict.QUIET


def test_an_interval_of_zero_disables_heartbeats() -> None:
    assert Heartbeat(0.0, 0.0).check(1e9) is HeartbeatVerdict.QUIET


@given(st.lists(st.tuples(st.floats(0.01, 3.0), st.booleans()), max_size=60))
def test_a_peer_that_answers_every_ping_is_never_lost(steps: list[tuple[float, bool]]) -> None:
    pulse, now = Heartbeat(0.0, 1.0), 0.0
    for pause, talks in steps:
        now += pause
        if talks:
            pulse.sent(now)
        verdict = pulse.check(now)
        assert verdict is not HeartbeatVerdict.DEAD
        if verdict is HeartbeatVerdict.PING:
            pulse.received(now)


@given(
    st.lists(st.tuples(st.floats(0.01, 3.0), st.sampled_from(["sent", "received", "nothing"])), max_size=30)
)
def test_the_due_time_is_exact(steps: list[tuple[float, str]]) -> None:
    """An end that sleeps until the due time misses no action."""
    pulse, now = Heartbeat(0.0, 1.0), 0.0
    for pause, what in steps:
        if now + pause < pulse.due - 1e-6:
            now += pause
            assert pulse.check(now) is HeartbeatVerdict.QUIET
        else:
            now = max(now, pulse.due + 1e-6)
            if pulse.check(now) is HeartbeatVerdict.DEAD:
                return
        if what != "nothing":
            getattr(pulse, what)(now)


def test_without_an_interval_there_is_no_due_time() -> None:
    assert Heartbeat(0.0, 0.0).due == math.inf
