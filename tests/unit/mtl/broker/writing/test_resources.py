"""Resources: creation, description, deletion, stopped logs. PROTOCOL.md 5.1."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from mtl.broker import limits as broker_limits
from mtl.errors import DataLoss, Refused
from mtl.storage.api import Append, CreateLog, Save
from mtl.storage.records import ResourceRecord
from mtl.wire import commands, control
from tests.support.core import START_US, Client, Rig
from tests.support.faulty_store import FaultyStore, refuse
from tests.support.logs import files


def names(client: Client, pattern: str | None = None) -> list[str]:
    return [
        x.resource
        for x in client.ask(control.ResourceList(pattern=pattern), control.DescriptionList).resources
    ]


def state(client: Client) -> str:
    """The state after all changes up to now, for a long poll."""
    found = client.ask(control.ResourceDescribe(), control.DescriptionList).state
    assert found is not None
    return found


def about_a(since: str) -> list[control.Request]:
    """Requests whose answer depends on whether the resource `a` exists."""
    return [
        control.ResourceList(),
        control.ResourceList(pattern="a|b"),
        control.ResourceDescribe(),
        control.ResourceDescribe(resource="a"),
        control.ResourceDescribe(pattern="a"),
        control.ResourceDescribe(resources=["a"], missing_ok=True),
        control.ResourceDescribe(pattern="a", since=since, wait=60_000),
        control.ResourceDescribe(resources=["a"], missing_ok=True, since=since, wait=60_000),
        control.QueueDescribe(),
        control.QueueDescribe(resource="a"),
    ]


def directories(rig: Rig) -> list[str]:
    return rig.disk.list_dir("/data/resources")


def records(rig: Rig) -> list[str]:
    return [r.name for r in rig.store.load().records if isinstance(r, ResourceRecord)]


# --- Create -------------------------------------------------------------------------------------------------


def test_create_and_describe(client: Client) -> None:
    retention = control.Retention(bytes=1 << 30, age=3600.0, groups=("g",))
    created = client.ask(
        control.ResourceCreate(resource="a", durability="os", retention=retention), control.ResourceCreated
    ).resource
    assert created == client.describe("a")
    assert (created.resource, created.earliest, created.next, created.contents) == ("a", 1, 1, 0)
    assert (created.durability, created.retention, created.state) == ("os", retention, "serving")
    assert (created.oldest_time, created.newest_time) == (None, None)
    assert len(bytes.fromhex(created.incarnation)) == 16


def test_a_description_follows_the_contents(rig: Rig, client: Client) -> None:
    client.create("a")
    client.fill("a", [b"x"])
    rig.sleep(10)
    client.fill("a", [b"y"])
    found = client.describe("a")
    assert (found.next, found.contents) == (3, 2)
    assert (found.oldest_time, found.newest_time) == (START_US, START_US + 10_000_000)
    assert (found.bytes or 0) > 0


def test_create_of_an_existing_resource(client: Client) -> None:
    client.create("a")
    first = client.describe("a")
    refused = client.refused(control.ResourceCreate(resource="a"))
    assert (refused.status, refused.reason) == (409, control.EXISTS)
    again = client.ask(control.ResourceCreate(resource="a", exist_ok=True), control.ResourceCreated)
    assert again.resource == first


def test_two_concurrent_creates_of_one_name(rig: Rig, client: Client) -> None:
    rig.hold(CreateLog)
    asked = [client.begin(control.ResourceCreate(resource="a", exist_ok=ok)) for ok in (False, False, True)]
    rig.let_go()
    made = asked[0].reply(control.ResourceCreated)
    with pytest.raises(Refused, match="exists"):
        asked[1].reply(control.ResourceCreated)
    assert asked[2].reply(control.ResourceCreated) == made
    assert len(directories(rig)) == 1


@pytest.mark.parametrize("name", ["a", "ü" * 127, "with space", "a/b", "..", "%00"])
def test_names_are_not_used_as_paths(rig: Rig, client: Client, name: str) -> None:
    client.create(name)
    client.fill(name, [b"x"])
    rig.crash()
    assert rig.client().read(name) == [b"x"]


@pytest.mark.parametrize("op", ["create", "write", "sync", "rename", "fsync_dir", "make_dir"])
def test_a_failed_create_leaves_no_files_or_records(rig: Rig, client: Client, op: str) -> None:
    rig.disk.fail(op, error=errno.ENOSPC)
    refused = client.refused(control.ResourceCreate(resource="a"))
    assert (refused.status, refused.reason) == (503, control.STORAGE)
    assert (names(client), directories(rig), records(rig)) == ([], [], [])
    client.create("a")
    client.fill("a", [b"x"])
    assert client.read("a") == [b"x"]


def test_a_failed_save_of_a_create_leaves_nothing_after_a_crash(rig: Rig, client: Client) -> None:
    """The transaction may have reached the disk: it is undone before the log is removed."""
    failures = iter([True])

    def once(when: str) -> None:
        if when == "commit" and next(failures, False):
            raise refuse(full=False)

    rig.store.hook = once
    assert client.refused(control.ResourceCreate(resource="a")).status == 503
    rig.crash(landed=True)
    assert names(rig.client()) == []
    assert directories(rig) == []


def test_a_create_is_answered_only_after_its_failed_save_is_undone(rig: Rig, client: Client) -> None:
    def failing(when: str) -> None:
        raise refuse(full=False)

    rig.store.hook = failing
    asked = client.begin(control.ResourceCreate(resource="a"))
    assert not asked.answered
    rig.store.hook = FaultyStore().hook
    rig.sleep(broker_limits.SAVE_RETRY_S)
    with pytest.raises(Refused, match="storage"):
        asked.reply(control.ResourceCreated)


def test_resources_are_limited(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "MAX_RESOURCES", 2)
    client.create("a", "b")
    assert client.refused(control.ResourceCreate(resource="c")).reason == control.OVERLOADED


# --- List ---------------------------------------------------------------------------------------------------


def test_list_is_sorted_and_filtered(client: Client) -> None:
    client.create("b", "a", "ab", "c")
    assert names(client) == ["a", "ab", "b", "c"]
    assert names(client, "a.*") == ["a", "ab"]
    assert names(client, "nothing") == []
    assert client.refused(control.ResourceList(pattern="(")).status == 400


# --- Delete -------------------------------------------------------------------------------------------------


def test_delete_removes_leases_cursors_stages_and_files(rig: Rig, client: Client) -> None:
    client.create("a", "b")
    client.fill("a", [b"x"])
    reader, writer = client.flow(client.reader("a", group="g")), client.flow(client.writer("a", "b"))
    stage = client.staged("app", 1, "a", [b"x"])
    kept = client.staged("app", 1, "b", [b"x"])
    client.ask(control.ResourceDelete(resource="a"), control.Ok)
    assert (names(client), records(rig)) == (["b"], ["b"])
    assert not reader.ponged()
    assert not writer.ponged()
    assert client.ask(control.CursorDescribe(), control.CursorList).cursors == []
    assert [x.stage for x in client.ask(control.StageDescribe(), control.StageList).stages] == [kept]
    assert stage not in rig.disk.list_dir("/data/stages")
    assert len(directories(rig)) == 1
    assert client.refused(control.ResourceDescribe(resource="a")).members["missing"] == ["a"]


def test_a_recreated_resource_has_another_incarnation_and_starts_at_one(client: Client) -> None:
    client.create("a")
    client.fill("a", [b"old"])
    former = client.describe("a").incarnation
    client.ask(control.ResourceDelete(resource="a", incarnation=former), control.Ok)
    client.create("a")
    assert client.describe("a").incarnation != former
    assert client.sequences("a") == (1, 1)
    for request in (
        control.ConnectionReader(resources=["a"], incarnation=former),
        control.ConnectionWriter(resources=["a"], incarnations={"a": former}),
        control.ResourceLocate(resource="a", start=1, incarnation=former),
        control.CursorOpen(group="g", resource="a", incarnation=former),
        control.ResourceDelete(resource="a", incarnation=former),
    ):
        refused = client.refused(request)
        assert (refused.status, refused.reason) == (409, control.INCARNATION)


def test_delete_of_an_unknown_resource_is_refused(client: Client) -> None:
    assert client.refused(control.ResourceDelete(resource="a")).status == 404


def test_delete_drops_contents_that_wait_for_the_disk(rig: Rig, client: Client) -> None:
    client.create("a")
    flow = client.flow(client.writer())
    rig.hold(Append)
    flow.content(1, b"with the disk", "a")
    flow.content(2, b"waits", "a")
    deleted = client.begin(control.ResourceDelete(resource="a"))
    rig.let_go()
    deleted.reply(control.Ok)
    assert rig.inbound_octets() == 0
    assert flow.sent()[-1] == commands.Reject(2, False, True)


def test_requests_during_a_delete_of_the_resource_are_refused(rig: Rig, client: Client) -> None:
    client.create("a")
    rig.hold(Save)
    deleted = client.begin(control.ResourceDelete(resource="a"))
    for request, status in (
        (control.ConnectionReader(resources=["a"]), 503),
        (control.ConnectionWriter(resources=["a"]), 503),
        (control.ResourceDelete(resource="a"), 503),
        (control.ResourceDescribe(resource="a"), 503),
        (control.ResourceDescribe(resources=["gone", "a"]), 503),
        (control.ResourceCreate(resource="a"), 503),
        (control.ResourceCreate(resource="a", exist_ok=True), 503),
    ):
        assert client.refused(request).status == status
    assert names(client) == ["a"], "it exists until its deletion is durable"
    rig.let_go()
    deleted.reply(control.Ok)
    assert names(client) == []
    client.create("a")


def test_a_delete_whose_save_fails_has_no_effect(rig: Rig, client: Client) -> None:
    """The same after a crash that finds the failed transaction: contents were confirmed since."""
    client.create("a")
    client.fill("a", [b"x"])
    failures = iter([True])

    def once(when: str) -> None:
        if when == "commit" and next(failures, False):
            raise refuse(full=False)

    rig.store.hook = once
    assert client.refused(control.ResourceDelete(resource="a")).status == 503
    client.fill("a", [b"y"])
    rig.crash(landed=True)
    assert rig.client().read("a") == [b"x", b"y"]


def whole(client: Client) -> None:
    """Contents, a cursor, a queue and a sealed stage of `a`."""
    client.create("a")
    client.fill("a", [b"x", b"y"])
    reader = client.flow(client.reader("a", start=None, group="g"))
    reader.confirm(1)
    consumer = client.rig.client("queue")
    queue = consumer.flow(consumer.reader("a", start=None, group="q"))
    queue.summon("a")
    queue.confirm(1)


def is_whole(client: Client, stage: str) -> None:
    (cursor,) = client.ask(control.CursorDescribe(group="g"), control.CursorList).cursors
    assert (cursor.resource, cursor.position) == ("a", 2)
    (queue,) = client.ask(control.QueueDescribe(group="q"), control.QueueList).queues
    assert (queue.resource, queue.unsettled) == ("a", 1)
    client.commit("app", 1, stage)
    assert client.read("a") == [b"x", b"y", b"staged"]


@pytest.mark.parametrize("when", ["begin", "commit"])
@pytest.mark.parametrize("how", ["space", "restart", "crash", "crash, and it landed"])
def test_a_delete_while_records_cannot_be_saved_is_answered_and_atomic(
    rig: Rig, client: Client, when: str, how: str
) -> None:
    whole(client)
    stage = client.staged("app", 1, "a", [b"staged"])
    rig.sleep(1)

    def full(at: str) -> None:
        if at == when:
            raise refuse(full=True)

    rig.store.hook = full
    since = state(client)
    waiting = client.begin(control.ResourceDescribe(pattern="a", since=since, wait=20_000))
    refused = client.refused_in_time(control.ResourceDelete(resource="a"))
    assert (refused.status, refused.reason) == (503, control.STORAGE)
    assert "no space left" in refused.message
    for again in (control.ResourceDelete(resource="a"), *about_a(since)):
        assert client.refused(again).reason == control.STORAGE, "it is not known whether it is there"
    assert names(client, "b.*") == []
    assert client.ask(control.QueueDescribe(resource="b"), control.QueueList).queues == []
    rig.sleep(20)
    with pytest.raises(Refused, match=control.STORAGE):
        waiting.reply(control.DescriptionList)
    rig.store.hook = lambda _: None
    if how == "space":
        rig.sleep(2 * broker_limits.SAVE_RETRY_S)
    elif how == "restart":
        rig.restart()
    else:
        rig.crash(landed=how.endswith("landed"))
    client = rig.client()
    if how.endswith("landed") and when == "commit" and not names(client):
        assert client.ask(control.CursorDescribe(), control.CursorList).cursors == []
        assert client.ask(control.StageDescribe(), control.StageList).stages == []
        assert client.ask(control.QueueDescribe(), control.QueueList).queues == []
        return
    is_whole(client, stage)
    client.ask(control.ResourceDelete(resource="a"), control.Ok)
    assert (names(client), records(rig)) == ([], [])


def test_a_create_while_records_cannot_be_saved_is_answered(rig: Rig, client: Client) -> None:
    def full(at: str) -> None:
        raise refuse(full=True)

    rig.store.hook = full
    since = state(client)
    refused = client.refused_in_time(control.ResourceCreate(resource="a"))
    assert refused.reason == control.STORAGE
    assert "not known yet whether resource 'a' was made" in refused.message
    for again in (control.ResourceCreate(resource="a"), *about_a(since)):
        assert client.refused(again).reason == control.STORAGE, "it is not known whether it is there"
    assert names(client, "b.*") == []
    rig.store.hook = lambda _: None
    rig.sleep(2 * broker_limits.SAVE_RETRY_S)
    assert names(client) == []
    client.create("a")
    assert len(directories(rig)) == 1


def test_contents_during_a_failing_delete_wait_and_are_confirmed(rig: Rig, client: Client) -> None:
    """They are not rejected for good: a lease for any resource has no part in the Delete."""
    client.create("a")
    flow = client.flow(client.writer())
    rig.hold(Save)
    deleting = client.begin(control.ResourceDelete(resource="a"))
    flow.content(1, b"x", "a")
    assert flow.sent() == []

    def full(at: str) -> None:
        rig.store.hook = lambda _: None
        raise refuse(full=True)

    rig.store.hook = full
    rig.let_go()
    with pytest.raises(Refused, match="no space"):
        deleting.reply(control.Ok)
    assert flow.sent() == [commands.Confirm(1, True)]


def test_files_that_could_not_be_removed_are_removed_at_the_next_start(rig: Rig, client: Client) -> None:
    client.create("a")
    rig.disk.fail("unlink")
    client.ask(control.ResourceDelete(resource="a"), control.Ok)
    assert len(directories(rig)) == 1
    rig.restart()
    assert directories(rig) == []


# --- stopped ------------------------------------------------------------------------------------------------


def log_file(rig: Rig, resource: str) -> str:
    found = rig.broker.parts.resources.find("/", resource)
    assert found is not None
    directory = f"/data/{found.intake.key}"
    return f"{directory}/{files(rig.disk, directory)[-1]}"


@pytest.fixture
def stopped(rig: Rig, client: Client) -> Client:
    """The first chunk of the log of `a` is damaged, `b` is intact."""
    client.create("a", "b")
    for name in ("a", "b"):
        client.fill(name, [b"x", b"y"])
    path = log_file(rig, "a")
    rig.stop()
    rig.disk.flip(path, 64 + 70)
    rig.start()
    return rig.client()


def test_a_damaged_log_stops_only_its_resource(stopped: Client) -> None:
    found = stopped.describe("a")
    assert (found.state, found.bytes, found.contents) == ("stopped", None, None)
    assert (found.known_earliest, found.known_next) == (None, None)
    with pytest.raises(Refused, match=r"503 storage.*damaged"):
        _ = found.next
    for request in (
        control.ConnectionReader(resources=["a"]),
        control.ConnectionWriter(resources=["a"]),
        control.ConnectionWriter(resources=["b", "a"]),
        control.ResourceLocate(resource="a", start=1),
        control.CursorOpen(group="g", resource="a"),
    ):
        refused = stopped.refused(request)
        assert (refused.status, refused.reason) == (503, control.STORAGE)
        assert "damaged" in refused.message
    stopped.fill("b", [b"z"])
    assert stopped.read("b") == [b"x", b"y", b"z"]


def test_contents_for_a_stopped_resource_are_pushed_back(stopped: Client) -> None:
    flow = stopped.flow(stopped.writer())
    flow.content(1, b"x", "a")
    assert flow.sent() == [commands.Reject(1, False, True)]


def test_a_stopped_resource_can_be_deleted_and_recreated(rig: Rig, stopped: Client) -> None:
    stopped.ask(control.ResourceDelete(resource="a"), control.Ok)
    stopped.create("a")
    stopped.fill("a", [b"new"])
    rig.restart()
    assert rig.client().read("a") == [b"new"]


def test_a_log_stopped_by_a_failed_write_can_still_be_read(rig: Rig, client: Client) -> None:
    client.create("a", "b")
    client.fill("a", [b"x"])
    flow = client.flow(client.writer("a"))
    rig.disk.fail("sync", count=3)  # of the group, and of all that is tried after it
    rig.disk.fail("fsync_dir")
    flow.content(1, b"y")
    assert flow.sent() == [commands.Reject(1, False, True)]
    assert client.describe("a").state == "stopped"
    assert client.refused(control.ConnectionWriter(resources=["a"])).status == 503
    assert client.read("a") == [b"x"]
    rig.disk.heal()
    client.fill("b", [b"z"])
    rig.crash()
    client = rig.client()
    assert client.describe("a").state == "serving"
    client.fill("a", [b"y"])
    assert client.read("a") == [b"x", b"y"]


# --- durability "os" ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "kept"),
    [({}, "all"), ({"power": False}, "all"), ({"keep": "all"}, "all"), ({"keep": "none"}, "none")],
)
def test_contents_lost_under_durability_os_are_data_loss_by_position(
    rig: Rig, client: Client, how: dict[str, Any], kept: str
) -> None:
    """With or without a new boot id: a crash of the file system alone is enough (PROTOCOL.md 5.1.1)."""
    client.create("a", durability="os")
    client.fill("a", [b"1", b"2"])
    rig.restart()
    client = rig.client()
    client.fill("a", [b"3", b"4", b"5"])
    before = client.describe("a")
    client.flow(client.reader("a", group="g", holder="d")).confirm(4)
    rig.sleep(0.2)  # the cursor is written; the log is not idle for so long that its end is
    rig.crash(**how) if how else rig.restart()
    client = rig.client()
    client.fill("a", [b"other"] * 9)
    assert client.describe("a").incarnation == before.incarnation
    reader = control.ConnectionReader(resources=["a"], confirm="full", from_=6, log_epoch=before.log_epoch)
    group = control.ConnectionReader(resources=["a"], confirm="full", group="g", holder="d")
    if kept == "all":
        assert client.read("a", 5)[:2] == [b"5", b"other"]
        assert client.ask(reader, control.DataLease).from_ == 6
        assert client.ask(group, control.DataLease).from_ == 5
        return
    for request_, position in ((reader, 6), (group, 5)):
        refused = client.refused(request_)
        assert isinstance(refused, DataLoss)
        assert (refused.first, refused.end, refused.resume) == (3, position, 3)


def test_undoing_a_failed_delete_keeps_a_concurrent_retention() -> None:
    """The files below the new `earliest` are removed: with the former record the next start would miss them."""
    rig = Rig(segment_bytes=1_200)
    client = rig.client()
    client.create("a", retention=control.Retention(contents=1))
    client.fill("a", [bytes(1_000)] * 5)
    rig.hold(Save)
    rig.sleep(broker_limits.RETENTION_CHECK_S + 1)
    deleting = client.begin(control.ResourceDelete(resource="a"))
    saves = iter([None, refuse(full=False)])  # that of retention, and the deletion's

    def hook(step: str) -> None:
        error = next(saves, None) if step == "begin" else None
        if error is not None:
            raise error

    rig.store.hook = hook
    rig.let_go()
    with pytest.raises(Refused, match="disk I/O error"):
        deleting.reply(control.Ok)
    rig.kill()
    found = rig.client().describe("a")
    assert (found.state, found.earliest) == ("serving", 5)
