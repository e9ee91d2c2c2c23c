"""Connection.Writer: the grant of each kind of writer, and the numbers with which it continues."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from mtl.errors import DataLoss, Fenced
from mtl.storage.api import Append, CreateLog, Save
from mtl.wire import commands, control
from tests.support.core import PORTS, Client, Rig
from tests.support.faulty_store import FaultyStore, refuse

CRASHES = ["restart", "kill", "crash"]


@pytest.fixture(autouse=True)
def resources(client: Client) -> None:
    client.create("a", "b")


def number_of(client: Client, name: str, *resources: str) -> dict[str, int] | None:
    return client.writer(*resources, writer=name).last


# --- every writer -------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-43", "MTL-44", "MTL-48")
def test_the_202_has_port_token_and_limits(client: Client) -> None:
    lease = client.writer("a")
    assert lease.status == "Data Lease"
    assert lease.port in PORTS.values()
    assert len(bytes.fromhex(lease.lease)) == 16
    assert (lease.packed, lease.max_content, lease.max_pack, lease.heartbeat) == (
        False,
        4 << 20,
        4 << 20,
        5.0,
    )
    assert client.writer("a", packed=True).port != lease.port


@pytest.mark.requirement("MTL-52")
@pytest.mark.parametrize(
    ("request_", "status", "reason"),
    [
        (control.ConnectionWriter(resources=["nowhere"]), 404, control.UNKNOWN_RESOURCE),
        (control.ConnectionWriter(resources=["a", "x", "y"]), 404, control.UNKNOWN_RESOURCE),
        (control.ConnectionWriter(resources=["a"], confirm="half"), 501, control.UNSUPPORTED),
        (control.ConnectionWriter(resources=["a"], incarnations={"a": "another"}), 409, control.INCARNATION),
        (
            control.ConnectionWriter(
                resources=[], confirm="full", stage=control.StageSpec(application="x", version=1)
            ),
            400,
            control.BAD_ARGUMENTS,
        ),
        (
            control.ConnectionWriter(
                resources=["a"], confirm="none", stage=control.StageSpec(application="x", version=1)
            ),
            400,
            control.BAD_ARGUMENTS,
        ),
    ],
)
def test_refusals(client: Client, request_: control.ConnectionWriter, status: int, reason: str) -> None:
    refused = client.refused(request_)
    assert (refused.status, refused.reason) == (status, reason)
    if reason == control.UNKNOWN_RESOURCE:
        assert refused.members["missing"] == [n for n in request_.resources if n != "a"]


@pytest.mark.parametrize("change", [{}, {"packed": True}, {"writer": "w"}])
def test_a_writer_for_a_stopped_resource_is_refused(rig: Rig, client: Client, change: dict[str, Any]) -> None:
    found = rig.broker.parts.resources.find("/", "a")
    assert found is not None
    found.intake.stop(refuse(full=True))
    request = control.ConnectionWriter(resources=["a"], confirm="full")
    refused = client.refused(msgspec.structs.replace(request, **change))
    assert (refused.status, refused.reason) == (503, control.STORAGE)


# --- named writers ------------------------------------------------------------------------------------------


def test_the_202_of_a_name_has_its_last_numbers(client: Client) -> None:
    lease = client.writer("a", "b", writer="w")
    assert (lease.last, lease.epoch) == ({"a": 0, "b": 0}, 1)
    flow = client.flow(lease)
    for number, resource in ((1, "a"), (2, "b"), (3, "a")):
        flow.content(number, b"", resource)
    lease = client.writer("a", "b", writer="w")
    assert (lease.last, lease.epoch) == ({"a": 3, "b": 2}, 1)


@pytest.mark.parametrize("how", CRASHES)
def test_the_numbers_of_a_name_survive_a_restart(rig: Rig, client: Client, how: str) -> None:
    client.flow(client.writer("a", writer="w")).content(1, b"x")
    getattr(rig, how)()
    client = rig.client()
    lease = client.writer("a", writer="w")
    assert (lease.last, lease.epoch) == ({"a": 1}, 2)
    flow = client.flow(lease)
    flow.content(1, b"x")  # its Confirm was lost
    flow.content(2, b"y")
    assert flow.sent() == [commands.Confirm(1, True), commands.Confirm(2, True)]
    assert client.read("a") == [b"x", b"y"]


@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_a_resumed_flow_may_begin_at_or_after_its_unconfirmed_numbers(client: Client, first: int) -> None:
    flow = client.flow(client.writer("a", "b", writer="w"))
    for number, resource in ((1, "a"), (2, "b"), (3, "a")):
        flow.content(number, b"%d" % number, resource)
    again = client.flow(client.writer("a", "b", writer="w"))
    for number in range(first, 6):
        again.content(number, b"%d" % number, "b" if number == 2 else "a")
    assert again.sent() == [commands.Confirm(n, True) for n in range(first, 6)]
    assert (client.read("a"), client.read("b")) == ([b"1", b"3", b"4", b"5"], [b"2"])


def test_a_gap_in_a_resumed_flow_is_rejected(client: Client) -> None:
    client.flow(client.writer("a", writer="w")).content(1, b"x")
    flow = client.flow(client.writer("a", writer="w"))
    flow.content(3, b"z")
    assert flow.sent() == [commands.Reject(3, False, True)]


def test_a_name_for_any_resource_continues_with_its_last_numbers(client: Client) -> None:
    flow = client.flow(client.writer(writer="w"))
    flow.content(1, b"x", "a")
    flow.content(2, b"y", "b")
    lease = client.writer(writer="w")
    assert lease.last == {"a": 1, "b": 2}
    again = client.flow(lease)
    again.content(3, b"z", "a")
    assert again.sent() == [commands.Confirm(3, True)]


def test_a_grant_awaits_writes_in_progress_and_drops_pending_contents(rig: Rig, client: Client) -> None:
    """The numbers of a 202 must be final: a writer that has lost its state continues behind them with new contents."""
    flow = client.flow(client.writer("a", writer="w"))
    rig.hold(Append)
    flow.content(1, b"with the disk")
    flow.content(2, b"waits")
    asked = client.begin(control.ConnectionWriter(resources=["a"], confirm="full", writer="w"))
    assert not asked.answered
    rig.let_go()
    lease = asked.reply(control.DataLease)
    assert lease.last == {"a": 1}
    again = client.flow(lease)
    again.content(2, b"new")
    assert again.sent() == [commands.Confirm(2, True)]
    assert client.read("a") == [b"with the disk", b"new"]


def test_a_grant_awaits_a_write_in_progress_that_fails(rig: Rig, client: Client) -> None:
    flow = client.flow(client.writer("a", writer="w"))
    rig.hold(Append)
    flow.content(1, b"x")
    asked = client.begin(control.ConnectionWriter(resources=["a"], confirm="full", writer="w"))
    rig.disk.fail("write")
    rig.let_go()
    assert asked.reply(control.DataLease).last == {"a": 0}


def test_the_same_session_replaces_its_lease(client: Client) -> None:
    former = client.flow(client.writer("a", writer="w"))
    later = client.flow(client.writer("a", writer="w"))
    former.content(1, b"x")
    assert not former.ponged()
    later.content(1, b"x")
    assert later.sent() == [commands.Confirm(1, True)]


def test_a_newer_holder_of_the_name_fences_the_older(rig: Rig, client: Client) -> None:
    flow = client.flow(client.writer("a", writer="w"))
    other = rig.client()
    other.writer("a", writer="w")
    assert not flow.ponged()
    assert isinstance(client.refused(control.ConnectionWriter(resources=["a"], writer="w")), Fenced)
    assert client.writer("a", writer="another").epoch == 1
    assert other.writer("a", writer="w").epoch == 2


def test_a_later_holder_in_a_session_that_lost_the_name_is_the_newest_one(rig: Rig, client: Client) -> None:
    """A client keeps its sessions for its next writers."""
    client.writer("a", writer="w", holder="first")
    rig.client().writer("a", writer="w", holder="second")
    assert client.writer("a", writer="w", holder="third").epoch == 3
    first = control.ConnectionWriter(resources=["a"], writer="w", holder="first", confirm="full")
    assert isinstance(client.refused(first), Fenced)


def test_a_repeated_request_of_the_same_holder_does_not_fence(rig: Rig, client: Client) -> None:
    """The first reply was lost, and the request is repeated in another session; a delayed first one may come last."""
    first = client.writer("a", writer="w", holder="me")
    again = rig.client().writer("a", writer="w", holder="me")
    assert (first.epoch, again.epoch) == (1, 1)
    assert client.writer("a", writer="w", holder="me").epoch == 1


@pytest.mark.parametrize("how", CRASHES)
def test_an_older_holder_is_fenced_after_a_restart(rig: Rig, client: Client, how: str) -> None:
    """With the newer holder's numbers it would treat its own unconfirmed contents as stored."""
    former = client.writer("a", writer="w", holder="old")
    newer = rig.client().writer("a", writer="w", holder="new")
    getattr(rig, how)()
    client = rig.client()
    back = control.ConnectionWriter(
        resources=["a"], confirm="full", writer="w", holder="old", epoch=former.epoch
    )
    assert isinstance(client.refused(back), Fenced)
    assert client.writer("a", writer="w", holder="new", epoch=newer.epoch).epoch == newer.epoch == 2


def test_a_holder_of_an_expired_name_is_refused(client: Client) -> None:
    back = control.ConnectionWriter(resources=["a"], confirm="full", writer="w", holder="me", epoch=1)
    refused = client.refused(back)
    assert (refused.status, refused.reason) == (404, control.UNKNOWN_WRITER)


def test_of_two_concurrent_requests_the_later_gets_the_name(rig: Rig, client: Client) -> None:
    other = rig.client()
    rig.hold(Save)
    asked = [
        x.begin(control.ConnectionWriter(resources=["a"], confirm="full", writer="w"))
        for x in (client, other)
    ]
    rig.let_go()
    with pytest.raises(Fenced):
        asked[0].reply(control.DataLease)
    assert asked[1].reply(control.DataLease).epoch == 2


def test_a_name_whose_save_fails_is_refused(rig: Rig, client: Client) -> None:
    def full(when: str) -> None:
        raise refuse(full=True)

    rig.store.hook = full
    refused = client.refused(control.ConnectionWriter(resources=["a"], confirm="full", writer="w"))
    assert (refused.status, refused.reason) == (503, control.STORAGE)
    rig.store.hook = FaultyStore().hook
    assert client.writer("a", writer="w").last == {"a": 0}


def test_names_are_per_virtual_host() -> None:
    rig = Rig(virtual_hosts=("/", "other"))
    for host in ("/", "other"):
        client = rig.client(virtual_host=host)
        client.create("a")
        assert number_of(client, "w", "a") == {"a": 0}
        client.flow(client.writer("a", writer="w")).content(1, b"x")
    assert number_of(rig.client(), "w", "a") == {"a": 1}


def test_retention_of_segments_keeps_the_numbers_of_writers() -> None:
    """Each segment begins with the table of writers, so retention removes none (PROTOCOL.md 5.4)."""
    rig = Rig(segment_bytes=2_000)
    client = rig.client()
    client.create("a", retention=control.Retention(bytes=1))
    client.flow(client.writer("a", writer="w")).content(1, b"x")
    other = client.flow(client.writer("a"))
    for number in range(1, 20):
        other.content(number, bytes(500))
    rig.sleep(6)
    assert client.describe("a").earliest > 1
    rig.crash()
    assert number_of(rig.client(), "w", "a") == {"a": 1}


# --- staged writers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["", *CRASHES])
def test_a_resumed_stage_continues_with_its_last_number(rig: Rig, client: Client, how: str) -> None:
    lease = client.stage("app", 1, "a", "b")
    assert lease.last == {}
    flow = client.flow(lease)
    flow.content(1, b"1", "a")
    flow.content(2, b"2", "b")
    if how:
        getattr(rig, how)()
        client = rig.client()
    again = client.stage("app", 1, "a", "b", id=lease.stage)
    assert (again.stage, again.last) == (lease.stage, {"a": 1, "b": 2})
    flow = client.flow(again)
    for number, resource in ((1, "a"), (2, "b"), (3, "a")):
        flow.content(number, b"%d" % number, resource)
    assert flow.sent() == [commands.Confirm(n, True) for n in (1, 2, 3)]
    client.close_lease(again)
    assert again.stage is not None
    client.commit("app", 1, again.stage)
    assert (client.read("a"), client.read("b")) == ([b"1", b"3"], [b"2"])


def test_reopening_a_stage_waits_for_the_disk_and_replaces_the_lease(rig: Rig, client: Client) -> None:
    lease = client.stage("app", 1, "a")
    flow = client.flow(lease)
    flow.content(1, b"1")
    rig.hold(Append)
    flow.content(2, b"2")
    flow.content(3, b"3")
    spec = control.StageSpec(application="app", version=1, id=lease.stage)
    asked = client.begin(control.ConnectionWriter(resources=["a"], confirm="full", stage=spec))
    assert not asked.answered
    assert not flow.ponged()
    rig.let_go()
    assert asked.reply(control.DataLease).last == {"a": 2}


@pytest.mark.parametrize(
    ("spec", "status", "reason"),
    [
        (control.StageSpec(application="app", version=1, id="unknown"), 404, control.UNKNOWN_STAGE),
        (control.StageSpec(application="app", version=2, id="open"), 400, control.BAD_ARGUMENTS),
        (control.StageSpec(application="other", version=1, id="open"), 400, control.BAD_ARGUMENTS),
        (control.StageSpec(application="app", version=1, id="sealed"), 409, control.CLOSED),
    ],
)
def test_stages_that_cannot_be_resumed(
    client: Client, spec: control.StageSpec, status: int, reason: str
) -> None:
    ids = {"open": client.stage("app", 1, "a").stage, "sealed": client.staged("app", 1, "a", [b"x"])}
    spec = control.StageSpec(
        application=spec.application, version=spec.version, id=ids.get(spec.id or "", spec.id)
    )
    refused = client.refused(control.ConnectionWriter(resources=["a"], confirm="full", stage=spec))
    assert (refused.status, refused.reason) == (status, reason)


def test_a_stage_accepts_only_resources_of_its_record(client: Client) -> None:
    lease = client.stage("app", 1, "a")
    again = client.stage("app", 1, "a", "b", id=lease.stage)
    flow = client.flow(again)
    flow.content(1, b"x", "b")
    assert flow.sent() == [commands.Reject(1, False, False)]


@pytest.mark.parametrize("op", ["create", "fsync_dir", "rename"])
def test_a_staged_log_whose_creation_failed_is_created_on_retry(rig: Rig, client: Client, op: str) -> None:
    lease = client.stage("app", 1, "a")
    flow = client.flow(lease)
    rig.disk.fail(op, when=lambda path: "/stages" in path)
    flow.content(1, b"x")
    assert flow.sent() == [commands.Reject(1, False, True)]
    flow.content(1, b"x")
    assert flow.sent() == [commands.Confirm(1, True)]
    client.close_lease(lease)
    assert lease.stage is not None
    client.commit("app", 1, lease.stage)
    assert client.read("a") == [b"x"]


def test_a_stage_of_many_resources_survives_any_crash(rig: Rig, client: Client) -> None:
    """Two logs of a stage are created concurrently: neither may rely on a directory that the other has not synced."""
    names = [f"r{n}" for n in range(5)]
    client.create(*names)
    lease = client.stage("app", 1, *names)
    flow = client.flow(lease)
    rig.hold(CreateLog)
    for number, name in enumerate(names, 1):
        flow.content(number, b"x", name)
    order = list(rig.held)
    random.Random(5).shuffle(order)
    rig.held.clear()
    rig.held.extend(order)
    rig.let_go()
    assert flow.sent()[-1] == commands.Confirm(5, True)
    rig.crash()
    assert rig.client().stage("app", 1, *names, id=lease.stage).last == {n: i for i, n in enumerate(names, 1)}


# --- epochs (PROTOCOL.md 5.1.1) -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["w", None])
def test_a_writer_with_an_epoch_unknown_to_the_log_is_refused(
    rig: Rig, client: Client, name: str | None
) -> None:
    copy = rig.copy()
    rig.restart()
    client = rig.client()
    lease = client.writer("a", writer=name, holder="me" if name else None)
    client.flow(lease).content(1, b"1")
    assert lease.log_epochs is not None
    incarnation, epoch = lease.log_epochs["a"]
    assert (incarnation, epoch) == (client.describe("a").incarnation, client.describe("a").log_epoch)
    again = control.ConnectionWriter(
        resources=["a"], confirm="full", writer=name, holder="me", log_epochs=lease.log_epochs
    )
    rig.restart()
    assert rig.client().ask(again, control.DataLease).lease, "the same log, after a restart"
    rig.put_back(copy)
    client = rig.client()
    client.writer("a", writer=name)
    client.fill("a", [b"other"] * 5)
    refused = client.refused(again)
    assert isinstance(refused, DataLoss)
    assert refused.resource == "a"
    other_life = {"a": ("another", epoch)}
    assert client.ask(msgspec.structs.replace(again, log_epochs=other_life), control.DataLease).lease
