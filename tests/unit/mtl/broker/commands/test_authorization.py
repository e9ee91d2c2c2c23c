"""Grants: every command with and without the right, lists, leases, and grants that change."""

from __future__ import annotations

import shlex
from collections.abc import Callable

import pytest

from mtl.broker.access.accounts import ON_RESOURCES, Right
from mtl.errors import Refused
from mtl.protocol.sasl.client import Credentials
from mtl.wire import control
from tests.support.core import Client, Rig
from tests.support.users import logged_in, login, rig_with, user

ADMIN = user("admin", "secret")


def client_with(*grants: str) -> tuple[Client, Client]:
    """A client with these grants and an administrator; resources a and b exist."""
    rig = rig_with(ADMIN, user("me", "secret", *grants))
    admin = logged_in(rig, "admin")
    admin.create("a", "b")
    return logged_in(rig, "me"), admin


STAGE = control.StageSpec(application="app", version=1)


@pytest.mark.parametrize(
    ("grants", "profile", "request_"),
    [
        (["read a"], "log", control.ConnectionReader(resources=["a"])),
        (["read a"], "log", control.ResourceLocate(resource="a", timestamp=0)),
        (
            ["read a", "group g"],
            "log",
            control.ConnectionReader(resources=["a"], confirm="full", group="g", holder="h"),
        ),
        (
            ["read a", "group g"],
            "log",
            control.ConnectionReader(resources=["a"], confirm="full", group="g", epoch=1),
        ),
        (["read a", "group g"], "log", control.CursorOpen(group="g", resource="a")),
        (["read a", "group g"], "log", control.CursorReset(group="g", resource="a", to="latest")),
        (["read a", "group g"], "log", control.CursorDelete(group="g", resource="a")),
        (["read a", "queue default"], "queue", control.ConnectionReader(resources=["a"])),
        (["read a", "queue g"], "queue", control.ConnectionReader(resources=["a"], group="g")),
        (
            ["read a", "queue g", "write a.dead"],
            "queue",
            control.ConnectionReader(resources=["a"], confirm="full", group="g"),
        ),
        (["read a", "queue default"], "log", control.QueueDelete(group="default", resource="a")),
        (["write a"], "log", control.ConnectionWriter(resources=["a"])),
        (
            ["write a", "writer w"],
            "log",
            control.ConnectionWriter(resources=["a"], confirm="full", writer="w"),
        ),
        (
            ["write a", "application app"],
            "log",
            control.ConnectionWriter(resources=["a"], confirm="full", stage=STAGE),
        ),
        (["application app"], "log", control.StageCommit(application="app", version=1, stages=[])),
        (
            ["write a", "application done"],
            "log",
            control.StageCommit(application="done", version=2, stages=[]),
        ),
        (["write a", "application done"], "log", control.StageForget(application="done")),
        (["manage a"], "log", control.ResourceCreate(resource="a", exist_ok=True)),
        (["manage a"], "log", control.ResourceDelete(resource="a")),
    ],
    ids=lambda x: x.command if isinstance(x, control.Request) else None,
)
def test_a_command_needs_each_of_its_rights_on_its_names(
    grants: list[str], profile: str, request_: control.Request
) -> None:
    """A command that lacks one of its rights is refused, whatever other grants exist."""
    client, admin = client_with("read other")
    rig = client.rig
    client.ask(control.ConnectionProfile(profile=profile), control.Ok)
    admin.commit("done", 1, admin.staged("done", 1, "a", [b"x"]))
    if isinstance(request_, control.CursorReset | control.CursorDelete):
        admin.ask(control.CursorOpen(group="g", resource="a"), control.CursorOpened)
    if isinstance(request_, control.ConnectionReader) and request_.epoch is not None:
        admin.ask(
            control.ConnectionReader(resources=["a"], confirm="full", group="g", holder="h"),
            control.DataLease,
        )
    if isinstance(request_, control.QueueDelete):
        admin.ask(control.ConnectionProfile(profile="queue"), control.Ok)
        admin.ask(control.ConnectionReader(resources=["a"]), control.DataLease)
    for missing in grants:
        right, name = missing.split(" ")
        others = [f"{r} .*" for r in Right if r != right]
        rig.broker.users([ADMIN, user("me", "secret", *others, f"{right} b")], rig.now())
        refused = client.refused(request_)
        assert (refused.status, refused.reason) == (403, control.NOT_AUTHORIZED), missing
        assert refused.members["right"] == right
        assert refused.members["resources" if right in ON_RESOURCES else "names"] == [name]
        assert f"`mtl grant me --{right} {shlex.quote(name.replace('.', chr(92) + '.'))}`" in refused.message
    rig.broker.users([ADMIN, user("me", "secret", *grants, "read other")], rig.now())
    client.ask(request_, control.Reply)


@pytest.mark.parametrize(
    ("grant", "profile", "make"),
    [
        (
            "read a",
            "log",
            lambda own: control.ConnectionReader(resources=["a"], confirm="full", group=own, holder="h"),
        ),
        ("read a", "log", lambda own: control.CursorOpen(group=own, resource="a")),
        ("read a", "queue", lambda own: control.ConnectionReader(resources=["a"], group=own)),
        ("write a", "log", lambda own: control.ConnectionWriter(resources=["a"], confirm="full", writer=own)),
        (
            "write a",
            "log",
            lambda own: control.ConnectionWriter(
                resources=["a"], confirm="full", stage=control.StageSpec(application=own, version=1)
            ),
        ),
        ("write a", "log", lambda own: control.StageCommit(application=own, version=1, stages=[])),
    ],
    ids=["holder", "cursor", "queue", "writer", "stage", "commit"],
)
def test_names_that_begin_with_the_users_name_need_no_grant(
    grant: str, profile: str, make: Callable[[str], control.Request]
) -> None:
    client, _ = client_with(grant)
    client.ask(control.ConnectionProfile(profile=profile), control.Ok)
    client.ask(make("me.x"), control.Reply)
    for other in ("me", "mex", "you.x", "admin.x", ".me.x", "ME.x"):
        refused = client.refused(make(other))
        assert (refused.status, refused.members["names"]) == (403, [other])
        assert "its own names begin with 'me.'" in refused.message


def test_a_broker_without_users_allows_every_name() -> None:
    client = Rig().client()
    client.create("a")
    client.ask(control.CursorOpen(group="g", resource="a"), control.CursorOpened)
    client.ask(control.ConnectionWriter(resources=["a"], confirm="full", writer="w"), control.DataLease)
    client.commit("app", 1, client.staged("app", 1, "a", [b"x"]))
    assert client.ask(control.ConnectionOpen(protocol=control.Protocol()), control.Ready).user is None


def test_the_201_names_the_user() -> None:
    rig = rig_with(ADMIN, user("me", "secret", "read a"))
    assert login(Client(rig), Credentials("me", "secret")).user == "me"
    rig = rig_with(user("anonymous", None, "read a"), anonymous="granted")
    assert login(Client(rig), Credentials()).user == "anonymous"


def test_a_lease_ends_with_the_grant_of_its_name() -> None:
    client, admin = client_with("read a", "group g", "write a", "writer w")
    rig = client.rig
    granted = [
        client.ask(
            control.ConnectionReader(resources=["a"], confirm="full", group="g", holder="h"),
            control.DataLease,
        ),
        client.ask(control.ConnectionWriter(resources=["a"], confirm="full", writer="w"), control.DataLease),
        client.reader("a"),
        client.writer("a"),
        admin.ask(
            control.ConnectionWriter(resources=["a"], confirm="full", writer="admins"), control.DataLease
        ),
    ]
    rig.broker.users([ADMIN, user("me", "secret", "read a", "write a")], rig.now())
    alive = [rig.broker.parts.leases.find(x.lease) is not None for x in granted]
    assert alive == [False, False, True, True, True]


def test_resuming_a_stage_needs_the_right_to_write_to_all_its_resources() -> None:
    client, admin = client_with("write a", "application app")
    spec = control.StageSpec(application="app", version=1)
    stage = admin.ask(
        control.ConnectionWriter(resources=["a", "b"], confirm="full", stage=spec), control.DataLease
    ).stage
    again = control.StageSpec(application="app", version=1, id=stage)
    refused = client.refused(control.ConnectionWriter(resources=["a"], confirm="full", stage=again))
    assert (refused.status, refused.members["resources"]) == (403, ["b"])


def test_a_right_on_a_resource_does_not_affect_other_users_names() -> None:
    """One grant on an unrelated resource once allowed to fence, to block and to forget them."""
    client, admin = client_with("read b", "write b")
    writer = admin.ask(
        control.ConnectionWriter(resources=["a"], confirm="full", writer="w"), control.DataLease
    )
    admin.commit("app", 1, admin.staged("app", 1, "a", [b"x"]))
    for request in (
        control.ConnectionWriter(resources=["b"], confirm="full", writer="w", holder="thief"),
        control.StageCommit(application="app", version=1 << 60, stages=[]),
        control.StageCommit(application="new", version=1 << 60, stages=[]),
        control.StageForget(application="app"),
    ):
        assert client.refused(request).status == 403
    assert admin.rig.broker.parts.leases.find(writer.lease) is not None
    admin.commit("app", 2, admin.staged("app", 2, "a", [b"y"]))


@pytest.mark.requirement("MTL-46")
def test_a_consumer_of_all_resources_consumes_only_readable_ones() -> None:
    client, admin = client_with("read a", "read c", "queue default", "write a.dead")
    admin.create("c")
    client.ask(control.ConnectionProfile(profile="queue"), control.Ok)
    for name in ("a", "b", "c"):
        admin.fill(name, [name.encode()])
    assert client.refused(control.ConnectionReader(resources=["a", "b"])).status == 403
    flow = client.flow(client.ask(control.ConnectionReader(resources=[], confirm="full"), control.DataLease))
    assert flow.summon("b") == 400
    assert flow.summon("c") == 400, "its rejected contents would be written to c.dead"
    assert flow.summon("a") == 200
    assert flow.bodies() == [b"a"]
    admin.ask(control.ConnectionProfile(profile="queue"), control.Ok)
    admin.ask(control.ConnectionReader(resources=["b"]), control.DataLease)
    assert [q.resource for q in client.ask(control.QueueDescribe(), control.QueueList).queues] == ["a"]
    assert client.refused(control.QueueDescribe(resource="b")).status == 403


def test_naming_a_dead_letter_resource_needs_the_right_to_manage_it() -> None:
    client, _ = client_with("manage mine.*")
    client.create("mine", dead_letter="mine.failed")
    refused = client.refused(control.ResourceCreate(resource="mine2", dead_letter="a"))
    assert (refused.status, refused.members["resources"]) == (403, ["a"])


@pytest.mark.parametrize("right", ["read", "write", "manage"])
def test_any_right_on_a_resource_makes_it_visible(right: str) -> None:
    client, _ = client_with(f"{right} a")
    assert client.describe("a").resource == "a"
    assert client.refused(control.ResourceDescribe(resource="b")).status == 403
    assert client.refused(control.ResourceDescribe(resource="none")).status == 403, "nor whether there is one"
    assert client.refused(control.ResourceDescribe(resources=["a", "b"])).status == 403


def test_lists_contain_only_visible_names() -> None:
    client, admin = client_with("read a", "application [ab]")
    for name in ("a", "b"):
        admin.ask(control.CursorOpen(group="g", resource=name), control.CursorOpened)
        admin.commit(name, 1, admin.staged(name, 1, name, [b"x"]))
        admin.staged(name, 2, name, [b"x"])
    assert [r.resource for r in client.ask(control.ResourceList(), control.DescriptionList).resources] == [
        "a"
    ]
    assert [
        r.resource
        for r in client.ask(control.ResourceDescribe(pattern=".*"), control.DescriptionList).resources
    ] == ["a"]
    assert [
        r.resource for r in client.ask(control.ResourceDescribe(), control.DescriptionList).resources
    ] == ["a"]
    assert [x.resource for x in client.ask(control.CursorDescribe(), control.CursorList).cursors] == ["a"]
    stages = client.ask(control.StageDescribe(), control.StageList)
    assert [s.application for s in stages.stages] == ["a"]
    assert [x.application for x in stages.applications] == ["a"]
    assert len(admin.ask(control.StageDescribe(), control.StageList).stages) == 2


def test_stages_and_applications_are_visible_with_the_right_on_the_application() -> None:
    """Also those without resources, which no right on resources would hide."""
    client, admin = client_with("write .*", "application nightly-.*")
    for name in ("nightly-1", "etl", "me.copy", "admin.x"):
        admin.commit(name, 1)
        admin.staged(name, 2, "a", [b"x"])
    found = client.ask(control.StageDescribe(), control.StageList)
    assert [x.application for x in found.applications] == ["me.copy", "nightly-1"]
    assert [x.application for x in found.stages] == ["me.copy", "nightly-1"]
    (hidden,) = admin.ask(control.StageDescribe(application="etl"), control.StageList).stages
    for request in (control.StageDescribe(application="etl"), control.StageDescribe(stage=hidden.stage)):
        found = client.ask(request, control.StageList)
        assert (found.stages, found.applications) == ([], [])


def test_the_right_on_an_application_of_another_user_allows_to_forget_it() -> None:
    client, admin = client_with("write b", r"application admin\..*")
    for name, resource in (("admin.old", "b"), ("admin.other", "a"), ("etl", "b")):
        admin.commit(name, 1, admin.staged(name, 1, resource, [b"x"]))
    client.ask(control.StageForget(application="admin.old"), control.Ok)
    assert client.refused(control.StageForget(application="admin.other")).members["resources"] == ["a"]
    assert client.refused(control.StageForget(application="etl")).members["names"] == ["etl"]
    found = admin.ask(control.StageDescribe(), control.StageList)
    assert [x.application for x in found.applications] == ["admin.other", "etl"]


def test_a_stage_needs_the_right_to_write_to_all_its_resources() -> None:
    client, admin = client_with("write a", "application .*")
    stage = admin.staged("app", 1, "b", [b"x"])
    for request in (
        control.StageCommit(application="app", version=1, stages=[stage]),
        control.StageAbort(stages=[stage]),
    ):
        assert client.refused(request).status == 403
    admin.commit("app", 1, stage)
    assert client.refused(control.StageForget(application="app")).status == 403
    assert client.refused(control.StageCommit(application="app", version=1, stages=[])).status == 403
    mine = client.staged("mine", 1, "a", [b"x"])
    client.commit("mine", 1, mine)
    client.ask(control.StageForget(application="mine"), control.Ok)


def test_a_truncating_commit_needs_the_right_to_manage_the_resource() -> None:
    client, admin = client_with("write a", "manage b", "application app")
    admin.fill("a", [b"x"])
    stage = client.staged("app", 1, "a", [b"y"])
    refused = client.refused(
        control.StageCommit(application="app", version=1, stages=[stage], truncate=["a"])
    )
    assert (refused.status, refused.members["resources"]) == (403, ["a"])
    assert admin.read("a") == [b"x"]
    client.ask(
        control.StageCommit(application="app", version=1, stages=[stage], truncate=["b"]), control.Committed
    )
    assert admin.read("a") == [b"x", b"y"]


def test_a_long_poll_reports_only_visible_resources() -> None:
    client, admin = client_with("read a", "read later")
    state = client.ask(control.ResourceDescribe(), control.DescriptionList).state
    waiting = client.begin(control.ResourceDescribe(since=state, wait=20_000))
    admin.fill("b", [b"x"])
    admin.create("another")
    assert not waiting.answered
    admin.create("later")
    assert [r.resource for r in waiting.reply(control.DescriptionList).resources] == ["later"]


def test_a_long_poll_is_refused_when_its_right_is_revoked() -> None:
    client, _ = client_with("read a")
    state = client.ask(control.ResourceDescribe(resource="a"), control.DescriptionList).state
    waiting = client.begin(control.ResourceDescribe(resource="a", since=state, wait=2_000))
    client.rig.broker.users([ADMIN, user("me", "secret", "read b")], client.rig.now())
    client.rig.sleep(3)
    with pytest.raises(Refused, match="may not"):
        waiting.reply(control.DescriptionList)


def test_a_writer_of_all_resources_writes_only_to_permitted_ones() -> None:
    client, admin = client_with("write a", "write later")
    flow = client.flow(client.writer())
    for number, name in enumerate(("a", "b", "later"), 1):
        if name == "later":
            admin.create(name)
        flow.content(number, b"x", name)
    assert [admin.describe(n).next for n in ("a", "b", "later")] == [2, 1, 2]


def test_a_lease_ends_when_its_right_is_revoked() -> None:
    client, admin = client_with("write a", "read b", "write b")
    rig: Rig = client.rig
    both, kept, any_ = client.writer("a", "b"), client.writer("b"), client.writer()
    reader = client.reader("b")
    others = admin.writer("a")
    rig.broker.users([ADMIN, user("me", "secret", "write b")], rig.now())
    alive = [rig.broker.parts.leases.find(x.lease) is not None for x in (both, kept, any_, reader, others)]
    assert alive == [False, True, False, False, True]
    client.ask(control.ResourceList(), control.DescriptionList)


def test_the_lease_of_another_user_cannot_be_closed() -> None:
    client, admin = client_with("read a")
    lease = admin.writer("a")
    assert client.refused(control.LeaseClose(lease=lease.lease)).status == 404
