"""Control sessions: opening, tokens and identities, virtual hosts, profiles. RFC 11 "Client Authentication"."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mtl.broker import limits as broker_limits
from mtl.wire import control
from tests.support.core import Client, Rig


def opened(rig: Rig, **more: Any) -> Client:
    client = Client(rig)
    client.ask(control.ConnectionOpen(protocol=control.Protocol(), **more), control.Ready)
    return client


# --- Open ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-21", "MTL-22", "MTL-25", "MTL-26")
def test_open_is_answered_with_profiles_session_and_limits(rig: Rig) -> None:
    ready = Client(rig).ask(
        control.ConnectionOpen(protocol=control.Protocol(), virtual_host="/"), control.Ready
    )
    assert ready.status == "Ready"
    assert set(ready.profiles) == {"test", "log", "queue"}
    assert ready.session is not None
    assert len(bytes.fromhex(ready.session)) == 16
    assert (ready.max_content, ready.max_pack, ready.heartbeat) == (4 << 20, 4 << 20, 5.0)


def test_boot_differs_after_a_restart(rig: Rig) -> None:
    def boot() -> str | None:
        return Client(rig).ask(control.ConnectionOpen(protocol=control.Protocol()), control.Ready).boot

    first = boot()
    assert boot() == first
    rig.restart()
    assert boot() != first


@pytest.mark.requirement("MTL-22", "MTL-52")
@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"protocol": {"name": "AMQP", "version": 1}}, 400, control.BAD_ARGUMENTS),
        ({"protocol": {"name": "MTL", "version": 2}}, 501, control.UNSUPPORTED),
        ({"protocol": {"name": "MTL", "version": 1}, "virtual-host": "x"}, 404, control.UNKNOWN_VIRTUAL_HOST),
        ({}, 400, control.BAD_ARGUMENTS),
        ({"protocol": 1}, 400, control.BAD_ARGUMENTS),
        ([], 400, control.BAD_ARGUMENTS),
    ],
)
def test_open_refusals(rig: Rig, body: object, status: int, reason: str) -> None:
    ((*_, code, text),) = rig.control(b"id", b"", b"Connection.Open", json.dumps(body).encode())
    assert (int(code), json.loads(text)["reason"]) == (status, reason)


@pytest.mark.requirement("MTL-23")
def test_virtual_hosts_are_separate_and_the_first_is_the_default() -> None:
    rig = Rig(virtual_hosts=("main", "other"))
    default, main, other = rig.client(), rig.client(virtual_host="main"), rig.client(virtual_host="other")
    main.create("a")
    assert default.describe("a") == main.describe("a")
    assert other.refused(control.ResourceDescribe(resource="a")).status == 404
    other.create("a")
    main.fill("a", [b"main"])
    assert (main.read("a"), other.read("a")) == ([b"main"], [])
    stage = main.staged("app", 1, "a", [b"x"])
    refused = other.refused(control.StageCommit(application="app", version=1, stages=[stage]))
    assert (refused.status, refused.reason) == (404, control.UNKNOWN_STAGE)
    assert other.ask(control.StageDescribe(), control.StageList).stages == []
    main.ask(control.CursorOpen(group="g", resource="a"), control.CursorOpened)
    assert other.ask(control.CursorDescribe(), control.CursorList).cursors == []
    main.ask(control.ResourceDelete(resource="a"), control.Ok)
    assert other.describe("a").next == 1


# --- turns --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-21", "MTL-45")
@pytest.mark.parametrize(
    "request_",
    [
        control.ConnectionProfile(profile="log"),
        control.ConnectionAuthorize(mechanism="ANONYMOUS", response=""),
        control.ConnectionReader(resources=["a"]),
        control.ConnectionWriter(resources=["a"]),
        control.ResourceList(),
    ],
)
def test_requests_before_open_are_refused_without_a_session(rig: Rig, request_: control.Request) -> None:
    refused = Client(rig).refused(request_)
    assert (refused.status, refused.reason) == (400, control.NOT_OPEN)
    assert len(rig.broker.parts.sessions) == 0, "nothing is kept for it"


@pytest.mark.requirement("MTL-45")
@pytest.mark.parametrize(
    "request_",
    [
        control.ConnectionReader(resources=["a"]),
        control.ConnectionWriter(resources=["a"]),
        control.ResourceList(),
    ],
)
def test_a_request_without_a_selected_profile_is_refused(rig: Rig, request_: control.Request) -> None:
    refused = opened(rig).refused(request_)
    assert (refused.status, refused.reason) == (400, control.NO_PROFILE)


@pytest.mark.requirement("MTL-35", "MTL-36", "MTL-37", "MTL-38", "MTL-39")
def test_profiles(rig: Rig) -> None:
    client = opened(rig)
    refused = client.refused(control.ConnectionProfile(profile="stack"))
    assert (refused.status, refused.reason) == (400, control.UNKNOWN_PROFILE)
    for name in ("log", "LOG", "Test", "Queue"):
        assert client.ask(control.ConnectionProfile(profile=name), control.Ok).status == "OK"


def test_another_selection_of_a_profile_does_not_change_leases(rig: Rig) -> None:
    client = rig.client()
    client.create("a")
    flow = client.flow(client.writer("a"))
    client.ask(control.ConnectionProfile(profile="test"), control.Ok)
    assert client.refused(control.ResourceList()).status == 501
    flow.content(1, b"x")
    client.ask(control.ConnectionProfile(profile="log"), control.Ok)
    assert client.read("a") == [b"x"]


# --- identities and tokens ----------------------------------------------------------------------------------


def test_an_identity_without_token_finds_the_session(rig: Rig) -> None:
    client = opened(rig)
    client.ask(control.ConnectionProfile(profile="log"), control.Ok)
    client.create("a")


def test_a_token_finds_its_session_from_any_socket(rig: Rig) -> None:
    client = rig.client()
    ready = client.ask(control.ConnectionOpen(protocol=control.Protocol()), control.Ready)
    client.ask(control.ConnectionProfile(profile="log"), control.Ok)
    other = Client(rig)
    other.session = ready.session
    other.create("a")
    assert client.describe("a").next == 1


def test_an_unknown_token_is_refused_despite_a_known_identity(rig: Rig) -> None:
    client = rig.client()
    client.session = "0" * 32
    refused = client.refused(control.ResourceList())
    assert (refused.status, refused.reason) == (400, control.NOT_OPEN)


def test_open_with_a_token_of_the_last_run_opens_a_usable_session(rig: Rig) -> None:
    """Otherwise every later request would be refused as not open, for ever."""
    client = Client(rig)
    client.session = "0" * 32
    ready = client.ask(control.ConnectionOpen(protocol=control.Protocol()), control.Ready)
    client.session = ready.session
    client.ask(control.ConnectionProfile(profile="log"), control.Ok)


# --- bounds -------------------------------------------------------------------------------------------------


def test_a_silent_session_expires(rig: Rig) -> None:
    client = rig.client()
    rig.sleep(broker_limits.SESSION_IDLE_S - 10, step=60)
    client.ask(control.ResourceList(), control.DescriptionList)
    rig.sleep(broker_limits.SESSION_IDLE_S + 10, step=60)
    refused = client.refused(control.ResourceList())
    assert (refused.status, refused.reason) == (400, control.NOT_OPEN)


def test_a_silent_session_with_a_live_lease_does_not_expire(rig: Rig) -> None:
    """A task may write for hours without a control request."""
    client = rig.client()
    client.create("a")
    flow = client.flow(client.writer("a"))
    for number in range(1, 1_000):
        rig.sleep(5, step=5)
        flow.content(number, b"")
    client.ask(control.ResourceList(), control.DescriptionList)


def test_at_the_limit_idle_sessions_are_evicted_in_batches_leasing_ones_singly(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_limits, "MAX_SESSIONS", 30)
    monkeypatch.setattr(broker_limits, "SESSIONS_LEAVING", 10)
    clients = [rig.client() for _ in range(30)]
    rig.client()
    assert len(rig.broker.parts.sessions) == 28
    clients[-1].create("a")
    for client in clients[3:]:
        client.writer("a")
    while len(rig.broker.parts.sessions) < 30:
        rig.client().writer("a")
    rig.client()  # the one without a lease leaves for it, and only one other
    assert len(rig.broker.parts.sessions) == 30


def test_the_longest_silent_session_is_evicted_first_leasing_ones_last(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_limits, "MAX_SESSIONS", 3)
    leasing, silent, talking = rig.client(), rig.client(), rig.client()
    leasing.create("a")
    leasing.writer("a")
    rig.sleep(1)
    talking.ask(control.ResourceList(), control.DescriptionList)
    rig.client()
    assert len(rig.broker.parts.sessions) == 3
    assert silent.refused(control.ResourceList()).reason == control.NOT_OPEN
    for client in (leasing, talking):
        client.ask(control.ResourceList(), control.DescriptionList)
