"""The last commits of applications: names, Stage.Forget, and their bounds. PROTOCOL.md 5.5."""

from __future__ import annotations

import pytest

from mtl.broker import limits as broker_limits
from mtl.storage.records import record_key
from mtl.wire import control
from tests.support.commits import applications, commit, staged, visible
from tests.support.core import Client, Rig
from tests.support.faulty_store import refuse


@pytest.fixture(autouse=True)
def resources(client: Client) -> None:
    client.create("a", "b")


def test_applications_are_limited(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "MAX_APPLICATIONS", 2)
    for application in ("one", "two"):
        client.commit(application, 1)
    stage = client.staged("three", 1, "a", [b"x"])
    refused = client.refused(control.StageCommit(application="three", version=1, stages=[stage]))
    assert (refused.status, refused.reason) == (503, control.OVERLOADED)
    assert "has 2 applications, and its limit MAX_APPLICATIONS is 2" in refused.message
    assert client.commit("two", 2).already is False
    client.ask(control.StageForget(application="one"), control.Ok)
    client.commit("three", 1, stage)
    assert client.read("a") == [b"x"]


def test_forget_allows_an_application_to_start_over(rig: Rig, client: Client) -> None:
    client.commit("app", 5, client.staged("app", 5, "a", [b"x"]))
    client.ask(control.StageForget(application="app"), control.Ok)
    refused = client.refused(control.StageForget(application="app"))
    assert (refused.status, refused.reason) == (404, control.UNKNOWN_APPLICATION)
    rig.crash()
    client = rig.client()
    client.commit("app", 1, client.staged("app", 1, "a", [b"y"]))
    assert client.read("a") == [b"x", b"y"]


def test_a_forget_whose_save_fails_is_refused(rig: Rig, client: Client) -> None:
    client.commit("app", 5)

    def full(when: str) -> None:
        raise refuse(full=True)

    rig.store.hook = full
    assert client.refused_in_time(control.StageForget(application="app")).status == 503
    for unknown in (commit(4), control.StageForget(application="app")):
        assert client.refused(unknown).status == 503
    rig.store.hook = lambda _: None
    rig.sleep(2 * broker_limits.SAVE_RETRY_S)
    assert client.refused(commit(4)).reason == control.ROLLED_BACK


def test_a_forget_whose_save_fails_has_no_effect_after_a_crash(rig: Rig, client: Client) -> None:
    """The failed transaction may be on the disk; the repeated last commit would then be published twice."""
    client.commit("app", 5)
    failures = iter([True])

    def once(when: str) -> None:
        if when == "commit" and next(failures, False):
            raise refuse(full=False)

    rig.store.hook = once
    assert client.refused(control.StageForget(application="app")).status == 503
    rig.crash(landed=True)
    assert rig.client().refused(commit(4)).reason == control.ROLLED_BACK


def test_describe_gives_the_last_commit_of_an_application(rig: Rig, client: Client) -> None:
    client.commit("app", 7, client.staged("app", 7, "a", [b"x"]), query="q")
    client.commit("other", 1)
    info = applications(client)["app"]
    assert (info.version, info.query, info.committed) == (7, "q", rig.wall_us)
    assert info.resources == {"a": control.Published(first=1, contents=1)}
    only = client.ask(control.StageDescribe(application="other"), control.StageList).applications
    assert [x.application for x in only] == ["other"]


def test_a_query_continues_under_a_name_prefixed_by_its_user(rig: Rig, client: Client) -> None:
    """The broker had no users before: the query's commits are recognised."""
    client.commit("q", 5, client.staged("q", 5, "a", [b"x"]), query="q")
    rig.restart()
    client = rig.client()
    again = client.commit("etl.q", 5, client.staged("etl.q", 5, "a", [b"x"]), query="q")
    assert (again.already, again.resources) == (True, {"a": control.Published(first=1, contents=1)})
    old = control.StageCommit(application="etl.q", version=4, stages=[], query="q")
    assert client.refused(old).reason == control.ROLLED_BACK
    client.commit("etl.q", 6, client.staged("etl.q", 6, "a", [b"y"]), query="q")
    assert client.read("a") == [b"x", b"y"]
    assert client.commit("q", 5, query="q").already, "the former name is left as it was"
    rig.restart()
    assert rig.client().commit("etl.q", 6, query="q").already


def test_a_query_whose_commits_under_its_former_name_are_unknown_is_refused(rig: Rig, client: Client) -> None:
    """Its version may have been committed already."""
    client.commit("q", 5, client.staged("q", 5, "a", [b"x"]), query="q")
    rig.store.damage("application", record_key("/", "q"))
    rig.restart()
    client = rig.client()
    refused = client.refused(commit(5, query="q", application="etl.q"))
    assert (refused.status, refused.reason) == (503, control.STORAGE)
    assert applications(client) == {}


def test_other_names_start_without_commits(client: Client) -> None:
    client.commit("q", 5, client.staged("q", 5, "a", [b"x"]), query="q")
    client.commit("other", 5, client.staged("other", 5, "a", [b"x"]), query="p")
    for application, query in (("etl.q", None), ("etl.q2", "q"), ("etl.other", "other"), ("etlq", "q")):
        assert not client.commit(application, 1, query=query).already


def test_the_answer_to_a_commit_of_many_resources_fits_a_reply(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit has taken effect: a refusal for its size would be wrong, and would be repeated for ever."""
    monkeypatch.setattr(broker_limits, "PAGE_OCTETS", 100)
    done = client.commit("app", 1, staged(client, 1, {"a": [b"x"], "b": [b"y"]}))
    assert (done.resources, done.omitted) == ({"a": control.Published(first=1, contents=1)}, 1)
    again = client.commit("app", 1)
    assert (again.already, again.resources, again.omitted) == (True, done.resources, 1)
    [described] = client.ask(control.StageDescribe(application="app"), control.StageList).applications
    assert (described.resources, described.omitted) == (done.resources, 1)
    assert visible(client) == {"a": [b"x"], "b": [b"y"]}
