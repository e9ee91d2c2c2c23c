"""Grants: every command with and without the right, lists, leases, and grants that change."""

from __future__ import annotations

import pytest

from mtl.broker.authorization import Authorization
from mtl.errors import Refused
from mtl.wire import control as w
from tests.support.core import Client, Rig
from tests.support.users import logged_in, rig_with, user

ADMIN = user("admin", "secret")


def client_with(*grants: str) -> tuple[Client, Client]:
    """A client with these grants and one that may do everything; resources a and b are there."""
    rig = rig_with(ADMIN, user("me", "secret", *grants))
    admin = logged_in(rig, "admin")
    admin.create("a", "b")
    return logged_in(rig, "me"), admin


def test_every_command_has_a_row() -> None:
    """Say in NEEDS which right a new command needs."""
    assert set(Authorization.NEEDS) == set(w.REQUESTS.values())


@pytest.mark.parametrize(
    ("right", "request_"),
    [
        ("read", w.Reader(resources=["a"])),
        ("read", w.ResourceLocate(resource="a", timestamp=0)),
        ("read", w.CursorOpen(group="g", resource="a")),
        ("read", w.CursorReset(group="g", resource="a", to="latest")),
        ("read", w.CursorDelete(group="g", resource="a")),
        ("write", w.Writer(resources=["a"])),
        ("write", w.Writer(resources=["a"], confirm="full", writer="w")),
        (
            "write",
            w.Writer(resources=["a"], confirm="full", stage=w.StageSpec(application="app", version=1)),
        ),
        ("manage", w.ResourceCreate(resource="a", exist_ok=True)),
        ("manage", w.ResourceDelete(resource="a")),
        ("manage", w.QueueDelete(group="default", resource="a")),
    ],
    ids=lambda x: x.command if isinstance(x, w.Request) else x,
)
def test_a_command_needs_its_right_on_its_resources(right: str, request_: w.Request) -> None:
    others = [f"{r} .*" for r in ("read", "write", "manage") if r != right]
    client, admin = client_with(*others, f"{right} b")
    if isinstance(request_, w.CursorReset | w.CursorDelete):
        admin.ask(w.CursorOpen(group="g", resource="a"), w.CursorOpened)
    if isinstance(request_, w.QueueDelete):
        admin.ask(w.Profile(profile="queue"), w.Ok)
        admin.ask(w.Reader(resources=["a"]), w.DataLease)
    refused = client.refused(request_)
    assert (refused.status, refused.reason) == (403, w.NOT_AUTHORIZED)
    assert refused.members["resources"] == ["a"]
    client.rig.broker.users([ADMIN, user("me", "secret", f"{right} a")], client.rig.now())
    client.ask(request_, w.Reply)


@pytest.mark.requirement("MTL-46")
def test_a_consumer_of_any_and_all_consumes_what_it_may_read() -> None:
    client, admin = client_with("read a")
    client.ask(w.Profile(profile="queue"), w.Ok)
    for name in ("a", "b"):
        admin.fill(name, [name.encode()])
    assert client.refused(w.Reader(resources=["a", "b"])).status == 403
    flow = client.flow(client.ask(w.Reader(resources=[], confirm="full"), w.DataLease))
    assert flow.summon("b") == 400
    assert flow.summon("a") == 200
    assert flow.bodies() == [b"a"]
    admin.ask(w.Profile(profile="queue"), w.Ok)
    admin.ask(w.Reader(resources=["b"]), w.DataLease)
    assert [q.resource for q in client.ask(w.QueueDescribe(), w.Queues).queues] == ["a"]
    assert client.refused(w.QueueDescribe(resource="b")).status == 403


def test_whoever_names_dead_letters_must_be_allowed_to_manage_them() -> None:
    client, _ = client_with("manage mine.*")
    client.create("mine", dead_letter="mine.failed")
    refused = client.refused(w.ResourceCreate(resource="mine2", dead_letter="a"))
    assert (refused.status, refused.members["resources"]) == (403, ["a"])


@pytest.mark.parametrize("right", ["read", "write", "manage"])
def test_any_right_shows_a_resource(right: str) -> None:
    client, _ = client_with(f"{right} a")
    assert client.describe("a").resource == "a"
    assert client.refused(w.ResourceDescribe(resource="b")).status == 403
    assert client.refused(w.ResourceDescribe(resource="none")).status == 403, "nor whether there is one"
    assert client.refused(w.ResourceDescribe(resources=["a", "b"])).status == 403


def test_lists_show_what_may_be_seen() -> None:
    client, admin = client_with("read a")
    for name in ("a", "b"):
        admin.ask(w.CursorOpen(group="g", resource=name), w.CursorOpened)
        admin.commit(name, 1, admin.staged(name, 1, name, [b"x"]))
        admin.staged(name, 2, name, [b"x"])
    assert [r.resource for r in client.ask(w.ResourceList(), w.Resources).resources] == ["a"]
    assert [r.resource for r in client.ask(w.ResourceDescribe(pattern=".*"), w.Resources).resources] == ["a"]
    assert [r.resource for r in client.ask(w.ResourceDescribe(), w.Resources).resources] == ["a"]
    assert [x.resource for x in client.ask(w.CursorDescribe(), w.Cursors).cursors] == ["a"]
    stages = client.ask(w.StageDescribe(), w.Stages)
    assert [s.application for s in stages.stages] == ["a"]
    assert [x.application for x in stages.applications] == ["a"]
    assert len(admin.ask(w.StageDescribe(), w.Stages).stages) == 2


def test_a_stage_needs_the_right_to_write_to_all_its_resources() -> None:
    client, admin = client_with("write a")
    stage = admin.staged("app", 1, "b", [b"x"])
    for request in (
        w.StageCommit(application="app", version=1, stages=[stage]),
        w.StageAbort(stages=[stage]),
    ):
        assert client.refused(request).status == 403
    admin.commit("app", 1, stage)
    assert client.refused(w.StageForget(application="app")).status == 403
    assert client.refused(w.StageCommit(application="app", version=1, stages=[])).status == 403
    mine = client.staged("mine", 1, "a", [b"x"])
    client.commit("mine", 1, mine)
    client.ask(w.StageForget(application="mine"), w.Ok)


def test_to_take_the_place_of_what_is_there_needs_the_right_to_delete_it() -> None:
    client, admin = client_with("write a", "manage b")
    admin.fill("a", [b"x"])
    stage = client.staged("app", 1, "a", [b"y"])
    refused = client.refused(w.StageCommit(application="app", version=1, stages=[stage], truncate=["a"]))
    assert (refused.status, refused.members["resources"]) == (403, ["a"])
    assert admin.read("a") == [b"x"]
    client.ask(w.StageCommit(application="app", version=1, stages=[stage], truncate=["b"]), w.Committed)
    assert admin.read("a") == [b"x", b"y"]


def test_whoever_waits_for_news_hears_only_of_what_may_be_seen() -> None:
    client, admin = client_with("read a", "read later")
    waiting = client.begin(w.ResourceDescribe(after={"a": 1}, wait=20_000))
    admin.fill("b", [b"x"])
    admin.create("another")
    assert not waiting.answered
    admin.create("later")
    assert [r.resource for r in waiting.reply(w.Resources).resources] == ["a", "later"]


def test_whoever_waits_and_loses_the_right_is_told_so() -> None:
    client, _ = client_with("read a")
    waiting = client.begin(w.ResourceDescribe(resource="a", after={"a": 1}, wait=2_000))
    client.rig.broker.users([ADMIN, user("me", "secret", "read b")], client.rig.now())
    client.rig.sleep(3)
    with pytest.raises(Refused, match="may not"):
        waiting.reply(w.Resources)


def test_a_lease_of_any_and_all_has_what_may_be_written() -> None:
    client, admin = client_with("write a", "write later")
    flow = client.flow(client.writer())
    for number, name in enumerate(("a", "b", "later"), 1):
        if name == "later":
            admin.create(name)
        flow.content(number, b"x", name)
    assert [admin.describe(n).next for n in ("a", "b", "later")] == [2, 1, 2]


def test_a_lease_ends_with_the_right_that_it_was_granted_for() -> None:
    client, admin = client_with("write a", "read b", "write b")
    rig: Rig = client.rig
    both, kept, any_ = client.writer("a", "b"), client.writer("b"), client.writer()
    reader = client.reader("b")
    others = admin.writer("a")
    rig.broker.users([ADMIN, user("me", "secret", "write b")], rig.now())
    alive = [rig.broker.leases.find(x.lease) is not None for x in (both, kept, any_, reader, others)]
    assert alive == [False, True, False, False, True]
    client.ask(w.ResourceList(), w.Resources)


def test_the_leases_of_others_are_nobodys_business() -> None:
    client, admin = client_with("read a")
    lease = admin.writer("a")
    assert client.refused(w.LeaseClose(lease=lease.lease)).status == 404
