"""Lease.Close, and what all grants have in common. What each kind is granted is in the files beside this one."""

from __future__ import annotations

import pytest

from mtl import limits
from mtl.broker import actions as a
from mtl.broker.granting import Ports
from mtl.wire import commands as c
from mtl.wire import control as w
from tests.support.core import Client, Rig
from tests.support.faulty_store import FaultyStore, refuse


@pytest.fixture(autouse=True)
def resources(client: Client) -> None:
    client.create("a", "b")


# --- ports --------------------------------------------------------------------------------------------------


def test_endpoints_stand_in_where_there_is_no_port(rig: Rig, client: Client) -> None:
    granting = rig.broker.requests._methods[w.LeaseClose].__self__  # type: ignore[attr-defined]
    granting._ports = Ports(0, 0, "ipc:///x.packed", "ipc:///x.plain")
    assert client.reader("a").endpoint == "ipc:///x.plain"
    assert client.reader("a", packed=True).endpoint == "ipc:///x.packed"


# --- Lease.Close --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["reader", "writer"])
def test_close_ends_a_lease(client: Client, kind: str) -> None:
    lease = getattr(client, kind)("a")
    flow = client.flow(lease)
    assert client.close_lease(lease).stage is None
    assert not flow.ponged()
    assert flow.lease(lease.lease) == 403


@pytest.mark.parametrize("token", ["", "0" * 32, "closed"])
def test_what_is_no_lease(client: Client, token: str) -> None:
    if token == "closed":
        lease = client.writer("a")
        client.close_lease(lease)
        token = lease.lease
    refused = client.refused(w.LeaseClose(lease=token))
    assert (refused.status, refused.reason) == (404, w.UNKNOWN_LEASE)


def test_whoever_has_the_token_may_close(rig: Rig, client: Client) -> None:
    """A client asks under a new session when its former one was forgotten; the lease outlived it."""
    lease = client.stage("app", 1, "a")
    client.flow(lease).content(1, b"x")
    sealed = rig.client().close_lease(lease).stage
    assert sealed is not None
    assert sealed.contents == {"a": 1}


def test_but_not_from_another_virtual_host() -> None:
    rig = Rig(virtual_hosts=("/", "other"))
    client = rig.client()
    client.create("a")
    lease = client.writer("a")
    assert rig.client(virtual_host="other").refused(w.LeaseClose(lease=lease.lease)).status == 404
    client.close_lease(lease)


def test_close_seals_a_stage(client: Client) -> None:
    lease = client.stage("app", 1, "a", "b")
    flow = client.flow(lease)
    for number in (1, 2, 3):
        flow.content(number, b"x", "a" if number < 3 else "b")
    sealed = client.close_lease(lease).stage
    assert sealed is not None
    assert (sealed.stage, sealed.contents) == (lease.stage, {"a": 2, "b": 1})
    assert sealed.bytes > 0


def test_the_answer_can_be_had_again(client: Client) -> None:
    """The first one was lost; the client cannot know whether the stage is sealed."""
    lease = client.stage("app", 1, "a")
    client.flow(lease).content(1, b"x")
    assert client.close_lease(lease) == client.close_lease(lease)
    assert lease.stage is not None
    client.commit("app", 1, lease.stage)
    assert client.refused(w.LeaseClose(lease=lease.lease)).status == 404


def test_a_stage_is_not_sealed_before_its_contents_are_durable(rig: Rig, client: Client) -> None:
    lease = client.stage("app", 1, "a")
    flow = client.flow(lease)
    rig.hold(a.Append)
    flow.content(1, b"x")
    refused = client.refused(w.LeaseClose(lease=lease.lease))
    assert (refused.status, refused.reason) == (409, w.UNSEALED)
    rig.let_go()
    assert client.close_lease(lease).stage is not None


def test_what_comes_while_a_stage_is_being_sealed_is_too_late(rig: Rig, client: Client) -> None:
    """Counted nowhere, it must not be confirmed."""
    lease = client.stage("app", 1, "a")
    flow = client.flow(lease)
    flow.content(1, b"x")
    flow.sent()
    rig.hold(a.Save)
    closed = client.begin(w.LeaseClose(lease=lease.lease))
    assert client.refused(w.LeaseClose(lease=lease.lease)).status == 503
    flow.content(2, b"late")
    rig.let_go()
    sealed = closed.reply(w.LeaseClosed).stage
    assert sealed is not None
    assert sealed.contents == {"a": 1}
    assert flow.sent() == []


def test_a_seal_that_cannot_be_saved_leaves_the_lease_as_it_was(rig: Rig, client: Client) -> None:
    lease = client.stage("app", 1, "a")
    flow = client.flow(lease)
    flow.content(1, b"x")

    def full(when: str) -> None:
        raise refuse(full=True)

    rig.store.hook = full
    assert client.refused(w.LeaseClose(lease=lease.lease)).status == 503
    rig.store.hook = FaultyStore().hook
    flow.content(2, b"y")
    assert flow.sent() == [c.Confirm(1, True), c.Confirm(2, True)]
    assert client.close_lease(lease).stage is not None


def test_closing_the_lease_of_a_stage_that_was_thrown_away(rig: Rig, client: Client) -> None:
    lease = client.stage("app", 1, "a")
    rig.hold(a.Save)
    assert lease.stage is not None
    aborted = client.begin(w.StageAbort(stages=[lease.stage]))
    assert client.refused(w.LeaseClose(lease=lease.lease)).status == 404
    rig.let_go()
    aborted.reply(w.Ok)


def test_the_limits_are_announced(client: Client) -> None:
    lease = client.writer("a")
    assert (lease.max_content, lease.max_pack) == (limits.MAX_CONTENT, limits.MAX_PACK)
