"""A repeated Stage.Commit has to have the digest of the first one. PROTOCOL.md 5.5."""

from __future__ import annotations

import logging

import pytest

from mtl.errors import Refused
from mtl.storage.api import Publish
from mtl.wire import control
from tests.support.commits import applications, commit, leavings
from tests.support.core import Client, Rig

FIRST = {"rows": "1", "contents": "aa"}


@pytest.fixture(autouse=True)
def resource(client: Client) -> None:
    client.create("a")


def first_commit(client: Client, version: int = 1) -> control.Committed:
    stage = client.staged("app", version, "a", [b"first"])
    return client.ask(commit(version, stage, digest=FIRST, query="q"), control.Committed)


@pytest.mark.parametrize("restart", [False, True])
def test_the_digest_is_kept_and_repeated(rig: Rig, client: Client, restart: bool) -> None:
    assert first_commit(client).digest == FIRST
    if restart:
        rig.crash()
        client = rig.client()
    again = client.ask(commit(1, client.staged("app", 1, "a", [b"first"]), digest=FIRST), control.Committed)
    assert (again.already, again.digest) == (True, FIRST)
    assert applications(client)["app"].digest == FIRST
    assert client.read("a") == [b"first"]
    assert leavings(rig) == []


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("digest", [{"rows": "1", "contents": "bb"}, {"rows": "2", "contents": "aa"}])
def test_other_contents_are_refused(rig: Rig, client: Client, restart: bool, digest: dict[str, str]) -> None:
    """Nothing changes: the stage stays, and the same request again is refused, too."""
    first_commit(client)
    if restart:
        rig.crash()
        client = rig.client()
    other = client.staged("app", 1, "a", [b"other"])
    requests = [commit(1, other, digest=digest)] * 2
    for refused in map(client.refused, requests):
        assert (refused.status, refused.reason) == (409, control.OTHER_CONTENTS)
        assert (refused.members["version"], refused.members["digest"]) == (1, FIRST)
        assert "mtl stages forget app" in refused.message
        changed = next(name for name in FIRST if FIRST[name] != digest[name])
        assert f"{changed} {FIRST[changed]}, now {digest[changed]}" in refused.message
    assert client.read("a") == [b"first"]
    assert [s.stage for s in client.ask(control.StageDescribe(), control.StageList).stages] == [other]
    assert applications(client)["app"].replays == 0


@pytest.mark.parametrize("digest", [{}, {"rows": "1"}, {"contents-2": "cc", "rows": "1"}])
def test_only_names_that_both_have_are_compared(client: Client, digest: dict[str, str]) -> None:
    """A client that counts only, and a later version of a client with another hash."""
    first_commit(client)
    assert client.ask(commit(1, digest=digest), control.Committed).already


def test_a_commit_without_digest_is_repeated_with_any(client: Client) -> None:
    client.commit("app", 1)
    assert client.ask(commit(1, digest=FIRST), control.Committed).already


def test_an_empty_batch_is_not_repeated_with_rows(client: Client) -> None:
    client.ask(commit(1, digest={"rows": "0"}), control.Committed)
    stage = client.staged("app", 1, "a", [b"x"])
    assert client.refused(commit(1, stage, digest={"rows": "1"})).reason == control.OTHER_CONTENTS


def test_the_next_version_and_a_forgotten_one_have_another_digest(client: Client) -> None:
    first_commit(client)
    assert client.ask(commit(2, digest={"rows": "0"}), control.Committed).digest == {"rows": "0"}
    client.ask(control.StageForget(application="app"), control.Ok)
    stage = client.staged("app", 1, "a", [b"other"])
    assert not client.ask(commit(1, stage, digest={"rows": "1", "contents": "bb"}), control.Committed).already


@pytest.mark.parametrize("same", [True, False])
def test_a_request_joins_a_commit_under_way_with_the_same_digest(
    rig: Rig, client: Client, same: bool
) -> None:
    stage = client.staged("app", 1, "a", [b"first"])
    again = client.staged("app", 1, "a", [b"again"])
    rig.hold(Publish)
    running = client.begin(commit(1, stage, digest=FIRST))
    joined = client.begin(commit(1, again, digest=FIRST if same else {"contents": "bb"}))
    rig.let_go()
    assert not running.reply(control.Committed).already
    if same:
        assert joined.reply(control.Committed).digest == FIRST
        assert leavings(rig) == []
    else:
        with pytest.raises(Refused, match=control.OTHER_CONTENTS):
            joined.reply(control.Committed)
    assert client.read("a") == [b"first"]


def test_a_commit_that_a_start_continues_keeps_its_digest(rig: Rig, client: Client) -> None:
    stage = client.staged("app", 1, "a", [b"first"])
    rig.hold(Publish)
    client.begin(commit(1, stage, digest=FIRST))
    rig.crash()
    client = rig.client()
    assert client.refused(commit(1, digest={"contents": "bb"})).reason == control.OTHER_CONTENTS
    assert client.ask(commit(1, digest=FIRST), control.Committed).already
    assert client.read("a") == [b"first"]


def test_another_count_without_digest_is_logged(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    client.commit("app", 1, client.staged("app", 1, "a", [b"x"]))
    with caplog.at_level(logging.WARNING, "mtl.broker"):
        client.commit("app", 1, client.staged("app", 1, "a", [b"x"]))
        assert not caplog.records
        client.commit("app", 1, client.staged("app", 1, "a", [b"x", b"y"]))
    assert "repeats version 1" in caplog.text


@pytest.mark.parametrize(
    "digest", [{str(n): "" for n in range(17)}, {"x" * 256: "1"}, {"x": "1" * 256}, {"x": 1}]
)
def test_a_digest_is_small(client: Client, digest: dict[str, str]) -> None:
    refused = client.refused(commit(1, digest=digest))
    assert (refused.status, refused.reason) == (400, control.BAD_ARGUMENTS)
    assert client.ask(commit(1, digest={str(n): "1" * 255 for n in range(16)}), control.Committed).digest
