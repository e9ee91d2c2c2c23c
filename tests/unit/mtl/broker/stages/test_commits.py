"""Stage.Commit: its effect, once per version, and refusals. PROTOCOL.md 5.5."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from mtl.broker import limits as broker_limits
from mtl.errors import DataLoss
from mtl.storage import limits as storage_limits
from mtl.storage.api import Append, Publish, Roll, Save, Trim
from mtl.wire import control
from tests.support.commits import applications, begin, commit, leavings, staged, visible
from tests.support.core import Client, Rig
from tests.support.faulty_store import refuse


@pytest.fixture(autouse=True)
def resources(client: Client) -> None:
    client.create("a", "b")


# --- effect -------------------------------------------------------------------------------------------------


def test_contents_of_all_stages_are_published_in_the_order_of_the_list(rig: Rig, client: Client) -> None:
    client.fill("a", [b"before"])
    first = staged(client, 1, {"a": [b"a1", b"a2"], "b": [b"b1"]})
    second = staged(client, 1, {"a": [b"a3"], "b": []})
    done = client.commit("app", 1, second, first)
    assert visible(client) == {"a": [b"before", b"a3", b"a1", b"a2"], "b": [b"b1"]}
    assert not done.already
    assert done.resources == {
        "a": control.Published(first=2, contents=3),
        "b": control.Published(first=1, contents=1),
    }
    assert leavings(rig) == []


def test_readers_see_all_resources_at_once(rig: Rig, client: Client) -> None:
    """While only one of two resources has its part, neither shows it."""
    stage = staged(client, 1, {"a": [b"x"], "b": [b"y"]})
    rig.hold(Publish)
    asked = begin(client, 1, stage)
    assert len(rig.held) == 2
    rig.let_go(1)
    assert (client.sequences("a"), client.sequences("b")) == ((1, 1), (1, 1))
    rig.let_go()
    assert (client.sequences("a"), client.sequences("b")) == ((1, 2), (1, 2))
    asked.reply(control.Committed)


def test_a_commit_without_stages_counts_as_a_version(rig: Rig, client: Client) -> None:
    """A batch without rows: repeated with rows, it is recognised as committed."""
    assert client.commit("app", 1).resources == {}
    rig.crash()
    client = rig.client()
    again = client.commit("app", 1, staged(client, 1, {"a": [b"x"]}))
    assert (again.already, again.resources) == (True, {})
    assert visible(client) == {"a": [], "b": []}
    assert leavings(rig) == []


def test_a_commit_discards_stages_of_older_versions(rig: Rig, client: Client) -> None:
    """Stages of a failed attempt, sealed or not, can no longer be committed."""
    staged(client, 1, {"a": [b"failed"]})
    opened = client.stage("app", 1, "a")
    flow = client.flow(opened)
    same = staged(client, 2, {"a": [b"overtaken"]})
    other = staged(client, 1, {"a": [b"another's"]}, application="other")
    done = client.commit("app", 2, staged(client, 2, {"a": [b"x"]}))
    assert done.resources == {"a": control.Published(first=1, contents=1)}
    assert {x.stage for x in client.ask(control.StageDescribe(), control.StageList).stages} == {same, other}
    assert flow.lease(opened.lease) == 403
    client.commit("app", 3)
    client.commit("other", 1, other)
    assert visible(client)["a"] == [b"x", b"another's"]
    assert leavings(rig) == []


def test_waiting_readers_get_committed_contents(client: Client) -> None:
    flow = client.flow(client.reader("a", packed=True))
    flow.summon("a")
    client.commit("app", 1, client.staged("app", 1, "a", [b"x", b"y"]))
    assert flow.numbers() == [1, 2]


def test_large_stages_are_adopted_and_small_ones_copied(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_limits, "ADOPT_OCTETS", 2_000)
    stages = [
        client.staged("app", 1, "a", bodies)
        for bodies in ([b"s1"], [b"L" * 3_000], [b"s2"], [b"s3"], [b"L" * 2_500])
    ]
    client.fill("a", [b"first"])
    client.commit("app", 1, *stages)
    expected = [b"first", b"s1", b"L" * 3_000, b"s2", b"s3", b"L" * 2_500]
    assert client.read("a") == expected
    client.fill("a", [b"last"])
    rig.crash()
    assert rig.client().read("a") == [*expected, b"last"]


def test_an_open_stage_whose_contents_are_durable_is_sealed_by_the_commit(client: Client) -> None:
    lease = client.stage("app", 1, "a")
    flow = client.flow(lease)
    flow.content(1, b"x")
    flow.sent()
    assert lease.stage is not None
    client.commit("app", 1, lease.stage)
    flow.content(2, b"late")
    assert (flow.sent(), flow.ponged()) == ([], False)
    assert client.read("a") == [b"x"]


def test_a_commit_without_stages_or_contents_is_remembered(rig: Rig, client: Client) -> None:
    empty = client.stage("app", 2, "a").stage
    assert empty is not None
    assert client.commit("app", 1).resources == {}
    assert client.commit("app", 2, empty).resources == {}
    assert client.commit("app", 2).already
    assert leavings(rig) == []


def test_a_commit_into_a_resource_of_durability_os(rig: Rig, client: Client) -> None:
    client.create("os", durability="os")
    client.fill("os", [b"x"])
    stage = client.staged("app", 1, "os", [b"y"])
    client.commit("app", 1, stage)
    assert client.read("os") == [b"x", b"y"]
    rig.kill()
    assert rig.client().read("os") == [b"x", b"y"]


# --- replacing contents -------------------------------------------------------------------------------------


def replace(client: Client, version: int, *stages: str) -> control.Committed:
    return client.ask(commit(version, *stages, truncate=["a"]), control.Committed)


@pytest.mark.parametrize("adopt", [True, False])
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_truncating_commit_replaces_contents_in_one_step(
    rig: Rig, client: Client, adopt: bool, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sequences continue, the old files are removed, contents appended meanwhile remain."""
    monkeypatch.setattr(storage_limits, "ADOPT_OCTETS", 0 if adopt else 1 << 30)
    client.ask(control.ResourceDelete(resource="a"), control.Ok)
    client.create("a", durability=durability)
    client.fill("a", [b"old", b"older"])
    client.fill("b", [b"stays"])
    stage = staged(client, 1, {"a": [b"new"], "b": [b"added"]})
    rig.hold(Publish)
    asked = begin(client, 1, stage, truncate=["a"])
    assert client.sequences("a") == (1, 3)
    flow = client.flow(client.writer("a"))
    flow.content(1, b"after")
    rig.let_go()
    assert asked.reply(control.Committed).resources["a"] == control.Published(first=3, contents=1)
    assert visible(client) == {"a": [b"new", b"after"], "b": [b"stays", b"added"]}
    assert client.sequences("a") == (3, 5)
    found = rig.broker.parts.resources.find("/", "a")
    assert found is not None
    segments = [x for x in rig.disk.list_dir(f"/data/{found.intake.key}") if x.endswith(".segment")]
    assert min(segments) == "00000000000000000003.segment"
    for how in (rig.restart, rig.crash):
        how()
        assert visible(rig.client()) == {"a": [b"new", b"after"], "b": [b"stays", b"added"]}
    assert leavings(rig) == []


def test_a_truncating_commit_without_contents_empties_the_resource(rig: Rig, client: Client) -> None:
    client.fill("a", [b"old"])
    assert replace(client, 1).resources == {"a": control.Published(first=2, contents=0)}
    assert client.read("a") == []
    assert replace(client, 2, client.staged("app", 2, "a", [b"new"])).resources["a"].first == 2
    assert replace(client, 3).resources["a"].first == 3
    rig.restart()
    client = rig.client()
    assert (client.read("a"), client.sequences("a")) == ([], (3, 3))
    client.fill("a", [b"again"])
    assert client.read("a") == [b"again"]


def test_a_repeated_truncating_commit_changes_nothing(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    stage = client.staged("app", 1, "b", [b"x"])
    replace(client, 1, stage)
    client.fill("a", [b"later"])
    with caplog.at_level(logging.WARNING, "mtl.broker"):
        assert replace(client, 1, client.staged("app", 1, "b", [b"x"])).already
    assert client.read("a") == [b"later"]
    assert not caplog.records


def test_readers_see_truncated_contents_as_removed_by_retention(rig: Rig, client: Client) -> None:
    """A reader at the end misses no content; one behind sees a jump, or its start is refused."""
    client.fill("a", [b"1", b"2"])
    client.ask(control.CursorOpen(group="g", resource="a", from_=2), control.CursorOpened)
    client.reader("a", group="held", holder="h", start=1)
    ahead, behind = (client.flow(client.reader("a", window=control.Window(contents=n))) for n in (10, 1))
    for flow in (ahead, behind):
        flow.summon("a")
    assert (ahead.numbers(), behind.numbers()) == ([1, 2], [1])
    replace(client, 1, client.staged("app", 1, "a", [b"3"]))
    behind.confirm(1)
    assert (ahead.numbers(), behind.numbers()) == ([3], [3])
    for gone in (
        control.ConnectionReader(resources=["a"], from_=1),
        control.ConnectionReader(resources=["a"], group="g", confirm="full"),
    ):
        refused = client.refused(gone)
        assert isinstance(refused, DataLoss)
        assert refused.end == 3


def test_truncate_of_an_unknown_or_stopped_resource_is_refused(rig: Rig, client: Client) -> None:
    assert client.refused(commit(1, truncate=["nowhere"])).reason == control.UNKNOWN_RESOURCE
    found = rig.broker.parts.resources.find("/", "a")
    assert found is not None
    found.intake.stop(refuse(full=True))
    assert client.refused(commit(1, truncate=["a"])).reason == control.STORAGE
    assert applications(client) == {}


def test_a_commit_into_a_stopped_resource_is_refused(rig: Rig, client: Client) -> None:
    stage = client.staged("app", 1, "a", [b"x"])
    found = rig.broker.parts.resources.find("/", "a")
    assert found is not None
    found.intake.stop(refuse(full=True))
    refused = client.refused(commit(1, stage))
    assert (refused.status, refused.reason) == (503, control.STORAGE)
    assert applications(client) == {}


# --- once per version ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["", "restart", "crash"])
def test_a_repeated_version_gets_the_same_answer_without_effect(rig: Rig, client: Client, how: str) -> None:
    first = client.commit("app", 1, client.staged("app", 1, "a", [b"x"]), query="q")
    if how:
        getattr(rig, how)()
        client = rig.client()
    again = client.commit("app", 1, client.staged("app", 1, "a", [b"x"]), query="q")
    assert (again.already, again.resources) == (True, first.resources)
    assert client.read("a") == [b"x"]
    assert leavings(rig) == []
    assert applications(client)["app"].replays == 1


def test_a_replay_ends_the_lease_of_an_open_stage(rig: Rig, client: Client) -> None:
    client.commit("app", 1)
    lease = client.stage("app", 1, "a", "b")
    flow = client.flow(lease)
    flow.content(1, b"x", "a")
    flow.sent()
    assert lease.stage is not None
    client.commit("app", 1, lease.stage)
    flow.content(2, b"y", "b")
    assert flow.sent() == []
    assert leavings(rig) == []


@pytest.mark.parametrize(
    ("version", "query", "status"),
    [(4, "q", 409), (3, "q", 409), (5, "other", 409), (4, "other", 409), (5, None, 0), (6, "other", 0)],
)
def test_older_versions_and_reused_names_are_refused(
    client: Client, version: int, query: str | None, status: int
) -> None:
    client.commit("app", 5, client.staged("app", 5, "a", [b"x"]), query="q")
    if status:
        refused = client.refused(commit(version, query=query))
        assert (refused.status, refused.reason) == (409, control.ROLLED_BACK)
        assert refused.members["version"] == 5
        assert "mtl stages forget" in refused.message
    else:
        assert client.commit("app", version, query=query).already is (version == 5)


# --- refusals change nothing --------------------------------------------------------------------------------


def test_refusals_change_nothing(rig: Rig, client: Client) -> None:
    good = staged(client, 1, {"a": [b"x"], "b": [b"y"]})
    other = staged(client, 2, {"a": [b"x"]})
    foreign = staged(client, 1, {"a": [b"x"]}, application="foreign")
    unfinished = client.stage("app", 1, "a")
    writer = client.flow(unfinished)
    rig.hold(Append)
    writer.content(1, b"z")
    assert unfinished.stage is not None
    for request, status, reason in (
        (commit(1, good, "unknown"), 404, control.UNKNOWN_STAGE),
        (commit(1, good, good), 400, control.BAD_ARGUMENTS),
        (commit(1, good, other), 400, control.BAD_ARGUMENTS),
        (commit(1, good, foreign), 400, control.BAD_ARGUMENTS),
        (commit(1, good, unfinished.stage), 409, control.UNSEALED),
    ):
        refused = client.refused(request)
        assert (refused.status, refused.reason) == (status, reason)
    rig.let_go()
    assert visible(client) == {"a": [], "b": []}
    assert applications(client) == {}
    client.commit("app", 1, good)


def test_a_commit_into_another_incarnation_is_refused(rig: Rig, client: Client) -> None:
    client.create("os")
    stage = client.staged("app", 1, "os", [b"x"])
    rig.reincarnate("os")
    refused = rig.client().refused(commit(1, stage))
    assert (refused.status, refused.reason) == (409, control.INCARNATION)


def test_a_commit_into_a_deleted_resource_is_refused(client: Client) -> None:
    stage = staged(client, 1, {"a": [b"x"], "b": [b"y"]})
    client.ask(control.ResourceDelete(resource="b"), control.Ok)
    assert client.refused(commit(1, stage)).status == 404
    assert client.read("a") == []


def test_conflicting_requests_during_a_commit_are_refused(rig: Rig, client: Client) -> None:
    stage = staged(client, 1, {"a": [b"x"]})
    rig.hold(Publish)
    asked = begin(client, 1, stage)
    assert client.refused(control.ResourceDelete(resource="a")).status == 503
    assert client.refused(control.StageForget(application="app")).status == 503
    assert client.refused(commit(2)).status == 503
    assert client.refused(commit(1, stage, application="other")).status == 400
    spec = control.StageSpec(application="app", version=1, id=stage)
    assert (
        client.refused(control.ConnectionWriter(resources=["a"], confirm="full", stage=spec)).reason
        == control.CLOSED
    )
    client.ask(control.StageAbort(stages=[stage]), control.Ok)  # left alone
    rig.let_go()
    assert not asked.reply(control.Committed).already
    assert client.read("a") == [b"x"]


def test_a_repeated_request_during_a_commit_gets_its_result(rig: Rig, client: Client) -> None:
    stage, spare = staged(client, 1, {"a": [b"x"]}), staged(client, 1, {"a": [b"x"]})
    rig.hold(Save)
    asked = [begin(client, 1, stage, query="q"), begin(client, 1, spare, query="q"), begin(client, 1)]
    refused = client.refused(commit(1, query="another"))
    assert refused.reason == control.ROLLED_BACK
    rig.let_go()
    replies = [x.reply(control.Committed) for x in asked]
    assert replies[0] == replies[1] == replies[2]
    assert client.read("a") == [b"x"]
    assert leavings(rig) == [], "the stages named only by the second request are discarded as well"


def test_commits_into_the_same_resources_wait_for_each_other(rig: Rig, client: Client) -> None:
    """Concurrent commits would use the same base sequence, and the second would cut away the first."""
    rig.hold(Save, Publish)
    rig.hold()
    stages = {
        app: staged(client, 1, {"b": [app.encode()], "a": [app.encode()]}, app) for app in ("x", "y", "z")
    }
    rig.hold(Save, Publish)
    asked = [client.begin(commit(1, stage, application=app)) for app, stage in stages.items()]
    rig.let_go()
    assert [x.reply(control.Committed).resources["a"].first for x in asked] == [1, 2, 3]
    assert visible(client) == {"a": [b"x", b"y", b"z"], "b": [b"x", b"y", b"z"]}


def test_appends_during_a_commit_follow_its_contents(rig: Rig, client: Client) -> None:
    stage = staged(client, 1, {"a": [b"staged"]})
    flow = client.flow(client.writer("a"))
    rig.hold(Append)
    flow.content(1, b"with the disk")
    flow.content(2, b"waits")
    asked = begin(client, 1, stage)
    assert not asked.answered
    rig.let_go()
    asked.reply(control.Committed)
    assert client.read("a") == [b"with the disk", b"staged", b"waits"]


def test_actions_of_one_log_never_overlap(rig: Rig, client: Client) -> None:
    """All kinds of actions on one log, in every order of completion: the intake asserts one action at a time."""
    client.create("busy", retention=control.Retention(contents=1, age=1.0))
    stages = [client.staged(f"app{n}", 1, "busy", [b"s"]) for n in range(3)]
    flow = client.flow(client.writer("busy", writer="w"))
    actions: list[Callable[[], object]] = [
        lambda: flow.content(1, b"x"),
        lambda: rig.sleep(broker_limits.RETENTION_CHECK_S),
        *(
            lambda n=n, stage=stage: client.begin(commit(1, stage, application=f"app{n}"))
            for n, stage in enumerate(stages)
        ),
        lambda: client.begin(control.ConnectionWriter(resources=["busy"], confirm="full", writer="w")),
        lambda: client.begin(control.ResourceDelete(resource="busy")),
    ]
    for number in range(len(actions)):
        rig.hold(Append, Publish, Save, Trim, Roll)
        for action in actions[number:] + actions[:number]:
            action()
            rig.let_go(1)
        rig.let_go()
        client.ask(control.ResourceCreate(resource="busy", exist_ok=True), control.ResourceCreated)


# --- stages of others ---------------------------------------------------------------------------------------


def test_a_repetition_that_names_the_stage_of_another_application_is_refused(client: Client) -> None:
    """It discards its own stages, and must not discard the stage of another user."""
    client.commit("mine", 1)
    theirs = client.staged("theirs", 1, "a", [b"x"])
    refused = client.refused(control.StageCommit(application="mine", version=1, stages=[theirs]))
    assert (refused.status, refused.reason) == (400, control.BAD_ARGUMENTS)
    assert "belongs to version 1 of 'theirs'" in refused.message
    client.commit("theirs", 1, theirs)
    assert client.read("a") == [b"x"]


def test_a_repetition_that_names_a_stage_of_another_version_is_refused(client: Client) -> None:
    client.commit("app", 1)
    later = client.staged("app", 2, "a", [b"x"])
    assert client.refused(control.StageCommit(application="app", version=1, stages=[later])).status == 400
    client.commit("app", 2, later)
    assert client.read("a") == [b"x"]


def test_a_request_that_joins_a_commit_with_the_stage_of_another_application_is_refused(
    rig: Rig, client: Client
) -> None:
    theirs = client.staged("theirs", 1, "b", [b"y"])
    stage = staged(client, 1, {"a": [b"x"]})
    rig.hold(Publish)
    asked = begin(client, 1, stage)
    refused = rig.client().refused(control.StageCommit(application="app", version=1, stages=[stage, theirs]))
    assert (refused.status, refused.reason) == (400, control.BAD_ARGUMENTS)
    rig.let_go()
    asked.reply(control.Committed)
    client.commit("theirs", 1, theirs)
    assert visible(client) == {"a": [b"x"], "b": [b"y"]}
