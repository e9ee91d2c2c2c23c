"""A commit in progress: all or nothing, in every failure and crash. PROTOCOL.md 5.5."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest

from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.errors import Refused, StorageFailed
from mtl.storage import limits as storage_limits
from mtl.storage.api import Publish, Roll, Save, StorageAction
from mtl.wire import commands, control
from tests.support.commits import Contents, applications, begin, commit, leavings, staged, visible
from tests.support.core import Client, Rig
from tests.support.faulty_disk import Crashed
from tests.support.faulty_store import FaultyStore, refuse
from tests.support.logs import files


@pytest.fixture(autouse=True)
def resources(client: Client) -> None:
    client.create("a", "b")


# --- failures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("landed", [False, True])
def test_a_failed_commit_point_has_no_effect(rig: Rig, client: Client, landed: bool) -> None:
    """Contents are confirmed behind it; a redo after a crash would overwrite them."""
    client.commit("app", 1)
    stage = staged(client, 2, {"a": [b"x"], "b": [b"y"]})
    failures = iter([True])

    def once(when: str) -> None:
        if when == "commit" and next(failures, False):
            raise refuse(full=False)

    rig.store.hook = once
    assert client.refused(commit(2, stage)).reason == control.STORAGE
    client.fill("a", [b"confirmed"])
    rig.crash(landed=landed)
    client = rig.client()
    assert visible(client) == {"a": [b"confirmed"], "b": []}
    assert applications(client)["app"].version == 1
    client.commit("app", 2, stage)
    assert visible(client) == {"a": [b"confirmed", b"x"], "b": [b"y"]}


def test_a_log_that_cannot_be_rolled_refuses_the_commit(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contents before the commit have to be synced first: a redo has to find its position."""
    client.create("fast", durability="os")
    stage = client.staged("app", 1, "fast", [b"x"])
    perform = rig.engine.perform

    def failing(actions: Sequence[StorageAction]) -> Sequence[object]:
        if any(isinstance(action, Roll) for action in actions):
            return [StorageFailed("the disk does not write") for _ in actions]
        return perform(actions)

    monkeypatch.setattr(rig.engine, "perform", failing)
    assert client.refused(commit(1, stage)).reason == control.STORAGE
    monkeypatch.undo()
    assert client.read("fast") == []
    client.commit("app", 1, stage)
    assert client.read("fast") == [b"x"]


def test_appends_wait_until_a_failed_commit_point_is_undone(rig: Rig, client: Client) -> None:
    stage = staged(client, 1, {"a": [b"x"]})

    def failing(when: str) -> None:
        raise refuse(full=False)

    rig.store.hook = failing
    asked = begin(client, 1, stage)
    flow = client.flow(client.writer("a"))
    flow.content(1, b"waits")
    assert (asked.answered, flow.sent()) == (False, [])
    rig.sleep(limits.REQUEST_TIMEOUT_S / 2, step=0.1)
    with pytest.raises(Refused, match=r"503 storage.*not known yet whether version 1 is committed"):
        asked.reply(control.Committed)
    assert flow.sent() == [commands.Reject(1, False, True)]
    assert "not known yet" in (client.describe("a").trouble or "")
    assert client.refused(commit(1, stage)).reason == control.STORAGE, "and so is a repeated request"
    assert client.refused(DELETE["a"]).reason == control.OVERLOADED
    rig.store.hook = FaultyStore().hook
    rig.sleep(2 * broker_limits.SAVE_RETRY_S)
    assert client.describe("a").trouble is None
    client.commit("app", 1, stage)
    client.fill("a", [b"after"])
    assert client.read("a") == [b"x", b"after"]


@pytest.mark.parametrize("op", ["write", "sync"])
@pytest.mark.parametrize("adopt", [False, True])
def test_a_disk_failure_after_the_commit_point_delays_the_commit(
    rig: Rig, client: Client, op: str, adopt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client gets an answer, memory stays bounded, no part is visible, and the commit completes in the end."""
    monkeypatch.setattr(storage_limits, "ADOPT_OCTETS", 0 if adopt else 1 << 30)
    stage = staged(client, 1, {"a": [b"x"], "b": [b"y"]})
    client.fill("a", [b"before"])
    found = rig.broker.parts.resources.find("/", "a")
    assert found is not None
    directory = f"/data/{found.intake.key}/"
    rig.disk.fail(op, count=5, when=lambda path: path.startswith(directory), error=errno.ENOSPC)
    refused = client.refused(commit(1, stage))
    assert (refused.status, refused.reason) == (503, control.STORAGE)
    assert visible_ends(client) == {"a": 2, "b": 1}
    if client.describe("a").state == "stopped":
        flow = client.flow(client.writer())
        flow.content(1, b"no", "a")
        assert rig.inbound_octets() == 0
        assert client.refused(commit(1, stage)).status == 503
    rig.sleep(20 * broker_limits.SAVE_RETRY_S, step=broker_limits.SAVE_RETRY_S)
    if (
        client.describe("a").state == "stopped"
    ):  # the content of the disk is unknown until the log is opened again
        rig.kill()
        client = rig.client()
    assert client.commit("app", 1).already
    assert visible(client) == {"a": [b"before", b"x"], "b": [b"y"]}
    client.fill("a", [b"after"])
    assert client.describe("a").state == "serving"
    assert leavings(rig) == []


def visible_ends(client: Client) -> dict[str, int]:
    return {name: client.describe(name).next for name in ("a", "b")}


def test_a_failed_save_of_the_end_of_a_commit_is_retried(rig: Rig, client: Client) -> None:
    stage = staged(client, 1, {"a": [b"x"]})
    saves = iter([False, True])

    def second(when: str) -> None:
        if when == "begin" and next(saves, False):
            raise refuse(full=True)

    rig.store.hook = second
    assert client.refused(commit(1, stage)).status == 503
    assert client.sequences("a") == (1, 1)
    rig.sleep(2 * broker_limits.SAVE_RETRY_S)
    assert client.read("a") == [b"x"]
    assert leavings(rig) == []


# --- a crash between every two steps ------------------------------------------------------------------------


def crash_after(rig: Rig, where: str, steps: int) -> None:
    """Stop the process after this number of steps of the disk or of the records."""
    left = iter(range(steps))

    def count(_: str) -> None:
        if next(left, None) is None:
            raise Crashed

    if where == "disk":
        rig.disk.crash_after(steps)
    else:
        rig.store.hook = count


def crashes(rig: Rig, client: Client, stages: list[str], truncate: Sequence[str] = ()) -> bool:
    """Whether a commit of these stages is interrupted by the crash."""
    try:
        begin(client, 1, *stages, truncate=truncate).reply(control.Committed)
    except Crashed:
        return True
    rig.disk.crash_after(None)
    rig.store.hook = FaultyStore().hook
    return False


@pytest.mark.parametrize("power", [True, False])
@pytest.mark.parametrize(("adopt", "replaced"), [(True, []), (False, []), (True, ["a"])])
@pytest.mark.parametrize(("where", "landed"), [("disk", True), ("records", True), ("records", False)])
def test_a_crash_between_any_two_steps_leaves_all_or_nothing(
    where: str,
    adopt: bool,
    replaced: list[str],
    power: bool,
    landed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A repetition completes the commit. `landed`: the transaction in progress reached the disk. Replaced contents
    exist before the commit, and not after it.
    """
    monkeypatch.setattr(storage_limits, "ADOPT_OCTETS", 0 if adopt else 1 << 30)
    before: Contents = {"a": [b"before"], "b": []}
    whole: Contents = {"a": [b"x"] if replaced else [b"before", b"x"], "b": [b"y", b"z"]}
    outcomes = set()
    crashed, step = True, 0
    while crashed:
        rig = Rig()
        client = rig.client()
        client.create("a", "b")
        client.fill("a", [b"before"])
        stages = [staged(client, 1, {"a": [b"x"], "b": [b"y"]}), staged(client, 1, {"b": [b"z"]})]
        crash_after(rig, where, step)
        crashed = crashes(rig, client, stages, replaced)
        if crashed:
            rig.crash(power=power, keep="some", landed=landed)
        client = rig.client()
        contents = visible(client)
        assert contents in (before, whole), (step, contents)
        committed = contents == whole
        assert ("app" in applications(client)) is committed, step
        again = commit(1, *([] if committed else stages), truncate=replaced)
        assert client.ask(again, control.Committed).already is committed
        assert visible(client) == whole, step
        assert client.sequences("a") == (2 if replaced else 1, 3)
        assert leavings(rig) == []
        client.fill("b", [b"after"])
        rig.restart()
        assert visible(rig.client()) == {"a": whole["a"], "b": [*whole["b"], b"after"]}
        outcomes.add(committed)
        step += 1
    early = where == "records" or replaced  # replaced contents end with a segment, before the commit point
    assert outcomes == ({True, False} if early else {True}), "the commit point is a record"
    assert step > (10 if where == "disk" else 3)


@pytest.mark.parametrize("adopt", [True, False])
@pytest.mark.parametrize("where", ["disk", "records"])
def test_a_power_cut_in_a_commit_into_a_log_with_unsynced_contents(
    where: str, adopt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Durability "os": unsynced contents may be lost, but not once a later commit is recorded."""
    monkeypatch.setattr(storage_limits, "ADOPT_OCTETS", 0 if adopt else 1 << 30)
    outcomes = set()
    crashed, step = True, 0
    while crashed:
        rig = Rig()
        client = rig.client()
        client.create("os", durability="os")
        client.fill("os", [b"before"])
        stage = staged(client, 1, {"os": [b"x"]})
        crash_after(rig, where, step)
        crashed = crashes(rig, client, [stage])
        if crashed:
            rig.crash(keep="none", landed=True)
        client = rig.client()
        committed = "app" in applications(client)
        contents = client.read("os")
        assert contents == [b"before", b"x"] if committed else contents in ([], [b"before"]), step
        outcomes.add((committed, bool(contents)))
        step += 1
    assert (True, True) in outcomes
    assert step > 3


def test_a_redo_with_a_damaged_resource_shows_no_part_and_serves_others(rig: Rig, client: Client) -> None:
    client.create("c")
    client.fill("a", [b"before"])
    client.fill("b", [b"1", b"2"])
    stage = staged(client, 1, {"a": [b"x"], "b": [b"y"]})
    rig.hold(Publish)
    begin(client, 1, stage)
    rig.let_go(1)  # `a` has its part
    damage = log_file(rig, "b")
    rig.disk.flip(damage, 64 + 70)
    rig.crash(keep="all")
    client = rig.client()
    assert rig.broker.ready
    assert client.read("a") == [b"before"]
    assert client.describe("a").state == client.describe("b").state == "stopped"
    client.fill("c", [b"z"])
    assert client.refused(commit(1, stage)).status == 503
    rig.disk.flip(damage, 64 + 70)  # repaired from a copy
    rig.crash(keep="all")
    client = rig.client()
    assert visible(client) == {"a": [b"before", b"x"], "b": [b"1", b"2", b"y"]}


def log_file(rig: Rig, resource: str) -> str:
    found = rig.broker.parts.resources.find("/", resource)
    assert found is not None
    directory = f"/data/{found.intake.key}"
    return f"{directory}/{files(rig.disk, directory)[-1]}"


def test_a_broker_serves_while_a_redo_fails_on_a_full_disk(rig: Rig, client: Client) -> None:
    client.create("c")
    stage = staged(client, 1, {"a": [b"x"], "b": [b"y"]})
    rig.hold(Publish)
    begin(client, 1, stage)
    rig.disk.crash(power=False)
    rig.store.crash(landed=False)
    found = rig.broker.parts.resources.find("/", "b")
    assert found is not None
    directory = f"/data/{found.intake.key}/"
    rig.disk.fail("write", count=3, when=lambda path: path.startswith(directory), error=errno.ENOSPC)
    rig.hold()
    rig.start()
    client = rig.client()
    assert rig.broker.ready
    assert visible_ends(client) == {"a": 1, "b": 1}
    client.fill("c", [b"z"])
    rig.sleep(10 * broker_limits.SAVE_RETRY_S, step=broker_limits.SAVE_RETRY_S)
    assert visible(client) == {"a": [b"x"], "b": [b"y"]}


# --- a resource that is in the way --------------------------------------------------------------------------


DELETE = {name: control.ResourceDelete(resource=name) for name in ("a", "b")}


def stuck_on_b(rig: Rig, client: Client, *, failures: int = 1_000_000) -> None:
    """A commit into both resources past its commit point; the disk refuses its part for `b`."""
    stage = staged(client, 1, {"a": [b"x"], "b": [b"y"]})
    directory = log_file(rig, "b").rpartition("/")[0]
    rig.disk.fail("write", count=failures, when=lambda path: path.startswith(directory), error=errno.ENOSPC)
    assert client.refused(commit(1, stage)).status == 503


def names(client: Client) -> list[str]:
    return [x.resource for x in client.ask(control.ResourceList(), control.DescriptionList).resources]


@pytest.mark.parametrize("how", ["", "restart", "crash"])
def test_deleting_the_resource_that_blocks_a_commit_completes_the_commit(
    rig: Rig, client: Client, how: str
) -> None:
    stuck_on_b(rig, client)
    client.ask(DELETE["b"], control.Ok)
    if how:
        getattr(rig, how)()
        client = rig.client()
    assert names(client) == ["a"]
    assert client.read("a") == [b"x"]
    assert leavings(rig) == []
    assert client.commit("app", 1).already
    client.create("b")  # another life: nothing of the commit is its own
    rig.crash()
    assert visible(rig.client()) == {"a": [b"x"], "b": []}


def test_a_resource_of_a_blocked_commit_that_is_not_blocked_can_be_deleted(rig: Rig, client: Client) -> None:
    stuck_on_b(rig, client, failures=3)
    client.ask(DELETE["a"], control.Ok)
    rig.sleep(10 * broker_limits.SAVE_RETRY_S, step=broker_limits.SAVE_RETRY_S)
    assert names(client) == ["b"]
    assert client.read("b") == [b"y"]
    assert leavings(rig) == []


def test_all_resources_of_a_blocked_commit_can_be_deleted_in_turn(rig: Rig, client: Client) -> None:
    stuck_on_b(rig, client)
    rig.hold(Save)
    first = client.begin(DELETE["b"])
    assert client.refused(DELETE["a"]).reason == control.OVERLOADED
    rig.let_go()
    first.reply(control.Ok)
    client.ask(DELETE["a"], control.Ok)
    assert names(client) == []
    assert leavings(rig) == []


def test_a_damaged_resource_can_be_deleted_after_a_restart(rig: Rig, client: Client) -> None:
    client.fill("b", [b"1"])
    stage = staged(client, 1, {"a": [b"x"], "b": [b"y"]})
    rig.hold(Publish)
    begin(client, 1, stage)
    rig.disk.flip(log_file(rig, "b"), 64 + 70)
    rig.crash(keep="all")
    client = rig.client()
    assert client.describe("a").state == client.describe("b").state == "stopped"
    client.ask(DELETE["b"], control.Ok)
    assert client.read("a") == [b"x"]
    assert client.describe("a").state == "serving"
    assert leavings(rig) == []


def test_a_resource_whose_delete_fails_stays_in_the_commit(rig: Rig, client: Client) -> None:
    stuck_on_b(rig, client, failures=3)

    def full(when: str) -> None:
        if when == "begin":
            rig.store.hook = lambda _: None
            raise refuse(full=True)

    rig.store.hook = full
    assert client.refused(DELETE["b"]).status == 503
    rig.sleep(10 * broker_limits.SAVE_RETRY_S, step=broker_limits.SAVE_RETRY_S)
    assert visible(client) == {"a": [b"x"], "b": [b"y"]}
    assert leavings(rig) == []


def test_delete_during_the_save_of_the_end_of_a_commit_is_refused(rig: Rig, client: Client) -> None:
    stage = staged(client, 1, {"a": [b"x"]})
    rig.hold(Save)
    begin(client, 1, stage)
    rig.let_go(1)  # the commit point; the mark comes next
    assert client.refused(DELETE["a"]).reason == control.OVERLOADED
    rig.let_go()
    assert client.read("a") == [b"x"]


@pytest.mark.parametrize(("landed", "power"), [(True, True), (False, True), (True, False), (False, False)])
def test_a_crash_in_a_delete_from_a_blocked_commit_is_atomic(landed: bool, power: bool) -> None:
    """The resource is deleted, or exists with its part; the other resource has its part in either case."""
    outcomes = set()
    crashed, step = True, 0
    while crashed:
        rig = Rig()
        client = rig.client()
        client.create("a", "b")
        stuck_on_b(rig, client)
        crash_after(rig, "records", step)
        try:
            client.ask(DELETE["b"], control.Ok)
            crashed = False
        except Crashed:
            rig.crash(power=power, landed=landed)
        client = rig.client()
        rig.sleep(2 * broker_limits.SAVE_RETRY_S)
        found = names(client)
        assert client.read("a") == [b"x"], step
        assert found == ["a"] or client.read("b") == [b"y"], step
        assert leavings(rig) == [], step
        outcomes.add(tuple(found))
        step += 1
    assert outcomes == {("a",), ("a", "b")}
