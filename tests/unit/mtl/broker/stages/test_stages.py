"""Stages until they are committed: staged contents are durable and invisible, and expire."""

from __future__ import annotations

import errno

import pytest

from mtl.broker import limits as broker_limits
from mtl.storage.api import Append, CreateLog, DropLogs, Save
from mtl.storage.records import StageRecord
from mtl.wire import commands, control
from tests.support.core import START_US, Client, Rig
from tests.support.faulty_store import FaultyStore, refuse
from tests.support.logs import files as log_files

HOUR_S, DAY_S = 3600.0, 24 * 3600.0
"""The lives of an open stage without a lease and of a sealed one (PROTOCOL.md)."""


@pytest.fixture(autouse=True)
def resources(client: Client) -> None:
    client.create("a", "b")


def stages(client: Client, application: str | None = None) -> list[control.StageInfo]:
    return client.ask(control.StageDescribe(application=application), control.StageList).stages


def records(rig: Rig) -> list[str]:
    return [r.stage for r in rig.store.load().records if isinstance(r, StageRecord)]


def files(rig: Rig) -> list[str]:
    return rig.disk.list_dir("/data/stages")


def abort(client: Client, *names: str) -> None:
    client.ask(control.StageAbort(stages=list(names)), control.Ok)


# --- staging ------------------------------------------------------------------------------------------------


def test_staged_contents_are_durable_and_invisible(rig: Rig, client: Client) -> None:
    reader = client.flow(client.reader("a"))
    reader.summon("a")
    lease = client.stage("app", 1, "a")
    flow = client.flow(lease)
    flow.content(1, b"x")
    assert flow.sent() == [commands.Confirm(1, True)]
    assert reader.contents() == []
    assert client.sequences("a") == (1, 1)
    rig.crash()
    (stage,) = stages(rig.client())
    assert (stage.stage, stage.contents) == (lease.stage, {"a": 1})


def test_describe_gives_state_contents_and_octets(rig: Rig, client: Client) -> None:
    opened = client.stage("app", 3, "a")
    rig.sleep(10)
    sealed = client.staged("other", 7, "b", [b"x", b"y"])
    first, second = stages(client)
    assert (first.stage, first.application, first.version, first.state) == (opened.stage, "app", 3, "open")
    assert (first.created, first.contents, first.bytes) == (START_US, {}, 0)
    assert (second.stage, second.state, second.contents) == (sealed, "sealed", {"b": 2})
    assert second.bytes > 0
    assert second.created == START_US + 10_000_000
    assert second.expires == second.created + int(DAY_S * 1e6)
    assert [x.stage for x in stages(client, "other")] == [sealed]


def test_describe_gives_the_trouble_of_a_stage(rig: Rig, client: Client) -> None:
    flow = client.flow(client.stage("app", 1, "a"))
    flow.content(1, b"x")
    rig.disk.fail("sync", error=errno.ENOSPC)
    flow.content(2, b"y")
    assert flow.sent() == [commands.Confirm(1, True), commands.Reject(2, False, True)]
    (stage,) = stages(client)
    assert "no space left" in (stage.trouble or "")
    flow.content(2, b"y")
    (stage,) = stages(client)
    assert (stage.contents, stage.trouble) == ({"a": 2}, None)


def test_a_stage_whose_log_has_stopped_refuses_contents_for_good(rig: Rig, client: Client) -> None:
    """Retries would last until the writer's deadline: the log is not opened again before a restart."""
    flow = client.flow(client.stage("app", 1, "a"))
    flow.content(1, b"x")
    rig.disk.fail("write", count=2)
    rig.disk.fail("truncate", count=2)
    flow.content(2, b"y")
    assert flow.sent() == [commands.Confirm(1, True), commands.Reject(2, False, True)]
    (stage,) = stages(client)
    assert "was stopped" in (stage.trouble or ""), stage.trouble
    flow.content(2, b"y")
    flow.content(3, b"z")
    assert flow.sent() == [commands.Reject(2, False, False), commands.Reject(3, False, False)]
    spec = control.StageSpec(application="app", version=1, id=stage.stage)
    refused = client.refused(control.ConnectionWriter(resources=["a"], confirm="full", stage=spec))
    assert (refused.status, refused.reason) == (503, control.STORAGE)


def test_a_stage_whose_save_fails_is_refused(rig: Rig, client: Client) -> None:
    def full(when: str) -> None:
        raise refuse(full=True)

    rig.store.hook = full
    spec = control.StageSpec(application="app", version=1)
    refused = client.refused(control.ConnectionWriter(resources=["a"], confirm="full", stage=spec))
    assert (refused.status, refused.reason) == (503, control.STORAGE)
    assert stages(client) == []


def test_stages_are_limited(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "MAX_STAGES", 1)
    client.stage("app", 1, "a")
    spec = control.StageSpec(application="app", version=1)
    assert (
        client.refused(control.ConnectionWriter(resources=["a"], confirm="full", stage=spec)).reason
        == control.OVERLOADED
    )


# --- Stage.Abort --------------------------------------------------------------------------------------------


def test_abort_ends_the_lease_and_removes_records_and_files(rig: Rig, client: Client) -> None:
    lease = client.stage("app", 1, "a", "b")
    flow = client.flow(lease)
    flow.content(1, b"x", "a")
    flow.content(2, b"x", "b")
    sealed = client.staged("app", 1, "a", [b"x"])
    assert lease.stage is not None
    abort(client, lease.stage, sealed, "unknown", sealed)
    assert (stages(client), records(rig), files(rig)) == ([], [], [])
    assert not flow.ponged(), "its lease is over"
    assert flow.lease(lease.lease) == 403
    assert client.refused(control.StageCommit(application="app", version=1, stages=[sealed])).status == 404


def test_abort_drops_pending_contents(rig: Rig, client: Client) -> None:
    lease = client.stage("app", 1, "a", "b")
    flow = client.flow(lease)
    rig.hold(CreateLog, Append)
    flow.content(1, b"x", "a")
    flow.content(2, b"x", "b")
    rig.let_go(1)
    flow.content(3, b"x", "a")
    assert lease.stage is not None
    abort(client, lease.stage)
    rig.let_go()
    assert (files(rig), rig.inbound_octets()) == ([], 0)
    assert flow.sent() == []


def test_an_abort_whose_save_fails_leaves_the_stage(rig: Rig, client: Client) -> None:
    stage = client.staged("app", 1, "a", [b"x"])

    def full(when: str) -> None:
        raise refuse(full=True)

    rig.store.hook = full
    assert client.refused_in_time(control.StageAbort(stages=[stage])).reason == control.STORAGE
    rig.store.hook = FaultyStore().hook
    rig.sleep(2 * broker_limits.SAVE_RETRY_S)
    client.commit("app", 1, stage)
    assert client.read("a") == [b"x"]


def test_a_stage_being_aborted_is_not_found(rig: Rig, client: Client) -> None:
    """A seal or a commit would restore its record after the abort."""
    lease = client.stage("app", 1, "a")
    client.flow(lease).content(1, b"x")
    rig.hold(Save)
    assert lease.stage is not None
    aborted = client.begin(control.StageAbort(stages=[lease.stage]))
    assert stages(client) == []
    assert (
        client.refused(control.StageCommit(application="app", version=1, stages=[lease.stage])).status == 404
    )
    spec = control.StageSpec(application="app", version=1, id=lease.stage)
    assert client.refused(control.ConnectionWriter(resources=["a"], confirm="full", stage=spec)).status == 404
    again = client.begin(control.StageAbort(stages=[lease.stage]))
    rig.let_go()
    aborted.reply(control.Ok)
    again.reply(control.Ok)
    assert (records(rig), files(rig)) == ([], [])


def test_files_of_a_discarded_stage_are_removed_after_a_crash(rig: Rig, client: Client) -> None:
    stage = client.staged("app", 1, "a", [b"x"])
    rig.hold(DropLogs)
    abort(client, stage)
    assert files(rig) == [stage]
    rig.hold()
    rig.crash(keep="all")
    assert files(rig) == []


# --- expiry -------------------------------------------------------------------------------------------------


def rest(rig: Rig, seconds: float) -> None:
    rig.sleep(seconds, step=broker_limits.EXPIRY_CHECK_S)


@pytest.mark.parametrize("margin", [-60, 60])
def test_an_open_stage_expires_an_hour_after_its_lease(rig: Rig, client: Client, margin: float) -> None:
    client.close_lease(client.reader("a"))
    lease = client.stage("app", 1, "a")
    client.flow(lease).content(1, b"x")
    found = rig.broker.parts.leases.find(lease.lease)
    assert found is not None
    rig.broker.parts.leases.end(found)
    rest(rig, HOUR_S + margin)
    assert len(records(rig)) == (1 if margin < 0 else 0)
    assert len(files(rig)) == (1 if margin < 0 else 0)


def test_an_expired_stage_is_logged(rig: Rig, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "mtl.broker")
    stage = client.staged("app", 3, "a", [b"x", b"y"])
    rig.sleep(DAY_S + 600, step=300)
    (line,) = [text for text in caplog.messages if "never committed" in text]
    assert line.startswith(
        f"stage {stage} of version 3 of 'app' was never committed and is removed: 2 contents, "
    )


def test_an_open_stage_with_a_live_lease_does_not_expire(rig: Rig, client: Client) -> None:
    lease = client.stage("app", 1, "a")
    flow = client.flow(lease)
    for _ in range(int(2 * HOUR_S / 10)):
        rig.sleep(10, step=5)
        flow.send(commands.Pong())
    assert records(rig) == [lease.stage]


@pytest.mark.parametrize("how", ["", "restart", "crash"])
@pytest.mark.parametrize("margin", [-600, 600])
def test_a_sealed_stage_expires_after_a_day_across_restarts(
    rig: Rig, client: Client, how: str, margin: float
) -> None:
    client.staged("app", 1, "a", [b"x"])
    rig.sleep(DAY_S / 2, step=600)
    if how:
        getattr(rig, how)()
    rig.sleep(DAY_S / 2 + margin, step=300)
    assert len(records(rig)) == (1 if margin < 0 else 0)


def test_the_hour_of_an_open_stage_restarts_with_the_broker(rig: Rig, client: Client) -> None:
    lease = client.stage("app", 1, "a")
    rig.stop()
    rig.mono += 100_000
    rig.wall_us += 100_000 * 1_000_000
    rig.start()
    rest(rig, HOUR_S - 60)
    assert records(rig) == [lease.stage]


@pytest.mark.parametrize("hours", [26, -26])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_clock_change_does_not_expire_a_sealed_stage(
    rig: Rig, client: Client, hours: int, restarts: bool
) -> None:
    stage = client.staged("app", 1, "a", [b"x"])
    if restarts:
        rig.stop()
    rig.wall_us += hours * 3600 * 1_000_000
    if restarts:
        rig.start()
    rest(rig, 60)
    assert records(rig) == [stage]
    rig.sleep(DAY_S - 600, step=300)
    assert records(rig) == [stage]
    if hours > 0:
        rig.sleep(1_200, step=300)
        assert records(rig) == []


def test_a_clock_change_does_not_expire_an_open_stage(rig: Rig, client: Client) -> None:
    lease = client.stage("app", 1, "a")
    rig.wall_us += 48 * 3600 * 1_000_000
    rest(rig, 60)
    assert records(rig) == [lease.stage]


# --- damage -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["log", "contents"])
def test_a_sealed_stage_with_lost_contents_is_damaged(rig: Rig, client: Client, how: str) -> None:
    """Only the broker compares the committed contents with the sealed ones."""
    lease = client.stage("app", 1, "a", "b")
    flow = client.flow(lease)
    for number, name in ((1, "a"), (2, "b"), (3, "b")):
        flow.content(number, b"x", name)
    sealed = client.ask(control.LeaseClose(lease=lease.lease), control.LeaseClosed).stage
    assert sealed is not None
    assert sealed.contents == {"a": 1, "b": 2}
    directory = f"/data/stages/{lease.stage}/1"
    if how == "log":
        for name in rig.disk.list_dir(directory):
            rig.disk.unlink(f"{directory}/{name}")
        rig.disk.remove_dir(directory)
    else:
        (segment,) = log_files(rig.disk, directory)
        path = f"{directory}/{segment}"
        rig.disk.kill()
        rig.disk.shorten(path, rig.disk.content(path).rindex(b"MTLc"))
    rig.kill()
    client = rig.client()
    assert lease.stage is not None
    refused = client.refused(control.StageCommit(application="app", version=1, stages=[lease.stage]))
    assert (refused.status, refused.reason) == (503, control.STORAGE)
    assert "contents where 2 were sealed" in refused.message
    assert client.sequences("a") == (1, 1)


def test_a_stage_with_a_damaged_log_accepts_no_contents_and_no_commit(rig: Rig, client: Client) -> None:
    """A commit without the damaged contents would lose them silently."""
    lease = client.stage("app", 1, "a", "b")
    flow = client.flow(lease)
    for number, name in ((1, "a"), (2, "b"), (3, "b")):
        flow.content(number, b"x", name)
    rig.stop()
    directory = f"/data/stages/{lease.stage}/1"
    rig.disk.flip(f"{directory}/{log_files(rig.disk, directory)[-1]}", 64 + 70)
    rig.start()
    client = rig.client()
    assert lease.stage is not None
    refused = client.refused(control.StageCommit(application="app", version=1, stages=[lease.stage]))
    assert (refused.status, refused.reason) == (503, control.STORAGE)
    assert "damaged" in refused.message
    spec = control.StageSpec(application="app", version=1, id=lease.stage)
    assert client.refused(control.ConnectionWriter(resources=["a"], confirm="full", stage=spec)).status == 503
    assert client.sequences("a") == (1, 1)
    abort(client, lease.stage)
    assert files(rig) == []
