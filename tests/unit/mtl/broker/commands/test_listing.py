"""Lists in pages, bounded by entries and octets. PROTOCOL.md 2.4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import json, structs

from mtl.broker import limits as broker_limits
from mtl.broker import sorted_keys
from mtl.broker.access import patterns
from mtl.broker.access.accounts import Accounts
from mtl.broker.commands import authorization
from mtl.broker.stages import applications
from mtl.limits import MAX_CONTROL_FRAME
from mtl.storage.records import ApplicationRecord, StageRecord
from mtl.wire import control
from tests.support.core import Client, Rig
from tests.support.users import logged_in, rig_with, user

NAMES = [f"r{number}" for number in range(7)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of two entries."""
    monkeypatch.setattr(sorted_keys, "MAX_PAGE", 2)


@pytest.fixture
def filled(client: Client) -> Client:
    client.create(*NAMES)
    return client


def walk(client: Client, request: Any, kind: Any, entries: Callable[[Any], list[Any]]) -> list[list[Any]]:
    """The entries of each page."""
    pages = []
    while True:
        page = client.ask(request, kind)
        pages.append(entries(page))
        if page.continue_ is None:
            return pages
        request = structs.replace(request, continue_=page.continue_)


def names(page: control.DescriptionList) -> list[str]:
    return [description.resource for description in page.resources]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", [control.ResourceList, control.ResourceDescribe])
def test_resources_are_listed_in_pages(
    filled: Client, kind: type[control.ResourceList | control.ResourceDescribe]
) -> None:
    assert walk(filled, kind(), control.DescriptionList, names) == [
        NAMES[:2],
        NAMES[2:4],
        NAMES[4:6],
        NAMES[6:],
    ]
    by_pattern = walk(filled, kind(pattern="r[0246]"), control.DescriptionList, names)
    assert by_pattern == [["r0", "r2"], ["r4", "r6"]]


@pytest.mark.usefixtures("small")
def test_only_the_first_page_has_the_state(filled: Client) -> None:
    pages = walk(filled, control.ResourceDescribe(), control.DescriptionList, lambda page: [page.state])
    assert pages[0] != [None]
    assert pages[1:] == [[None]] * 3


@pytest.mark.usefixtures("small")
def test_pages_have_only_visible_names() -> None:
    rig = rig_with(user("admin", "secret"), user("me", "secret", "read r[36]"))
    logged_in(rig, "admin").create(*NAMES)
    found = walk(logged_in(rig, "me"), control.ResourceList(), control.DescriptionList, names)
    assert found == [["r3", "r6"]]


@pytest.mark.parametrize("by_name", [False, True])
def test_large_entries_are_divided_by_their_octets(
    filled: Client, monkeypatch: pytest.MonkeyPatch, by_name: bool
) -> None:
    monkeypatch.setattr(broker_limits, "PAGE_OCTETS", 500)
    request = control.ResourceDescribe(resources=NAMES[::-1] if by_name else None)
    pages = walk(filled, request, control.DescriptionList, names)
    assert [name for page in pages for name in page] == NAMES
    assert list(map(len, pages)) == [3, 3, 1]
    monkeypatch.setattr(broker_limits, "PAGE_OCTETS", 1)
    assert walk(filled, request, control.DescriptionList, names) == [[name] for name in NAMES]


def test_a_page_of_the_largest_entries_fits_a_frame(client: Client) -> None:
    groups = tuple(f"{number:03}" + "g" * 252 for number in range(100))
    client.create(
        *(f"{number:02}" + "r" * 253 for number in range(50)), retention=control.Retention(groups=groups)
    )
    first = client.ask(control.ResourceList(), control.DescriptionList)
    assert broker_limits.PAGE_OCTETS - (100 << 10) < len(json.encode(first)) < MAX_CONTROL_FRAME
    assert sum(map(len, walk(client, control.ResourceList(), control.DescriptionList, names))) == 50


@pytest.mark.usefixtures("small")
def test_missing_names_are_left_out_if_asked(filled: Client) -> None:
    asked = ["r3", "none", "r1"]
    found = filled.ask(control.ResourceDescribe(resources=asked, missing_ok=True), control.DescriptionList)
    assert names(found) == ["r1", "r3"]
    assert filled.refused(control.ResourceDescribe(resources=asked)).members["missing"] == ["none"]
    assert (
        names(filled.ask(control.ResourceDescribe(resource="none", missing_ok=True), control.DescriptionList))
        == []
    )


@pytest.mark.usefixtures("small")
def test_cursors_are_listed_in_pages(filled: Client) -> None:
    pairs = [(group, name) for group in ("f", "g") for name in NAMES[:3]]
    for group, name in reversed(pairs):
        filled.ask(control.CursorOpen(group=group, resource=name), control.CursorOpened)

    def found(request: control.CursorDescribe) -> list[list[tuple[str, str]]]:
        return walk(
            filled, request, control.CursorList, lambda page: [(x.group, x.resource) for x in page.cursors]
        )

    assert found(control.CursorDescribe()) == [pairs[:2], pairs[2:4], pairs[4:]]
    assert found(control.CursorDescribe(group="g")) == [pairs[3:5], pairs[5:]]
    assert found(control.CursorDescribe(resource="r1")) == [[("f", "r1"), ("g", "r1")]]
    assert found(control.CursorDescribe(group="g", resource="r1")) == [[("g", "r1")]]
    filled.ask(control.CursorDelete(group="g", resource="r1"), control.Ok)
    assert found(control.CursorDescribe(group="g")) == [[("g", "r0"), ("g", "r2")]]


@pytest.mark.usefixtures("small")
def test_queues_are_listed_in_pages(rig: Rig, filled: Client) -> None:
    consumer = rig.client("queue")
    pairs = [(name, queue) for name in NAMES[:2] for queue in ("p", "q")]
    for name, queue in pairs:
        consumer.ask(
            control.ConnectionReader(resources=[name], group=queue, confirm="full"), control.DataLease
        )

    def found(request: control.QueueDescribe) -> list[list[tuple[str, str]]]:
        return walk(
            filled, request, control.QueueList, lambda page: [(x.resource, x.group) for x in page.queues]
        )

    assert found(control.QueueDescribe()) == [pairs[:2], pairs[2:]]
    assert found(control.QueueDescribe(group="q")) == [[("r0", "q"), ("r1", "q")]]
    assert found(control.QueueDescribe(resource="r1")) == [pairs[2:]]


def both(page: control.StageList) -> list[str]:
    return [*(x.stage for x in page.stages), *(x.application for x in page.applications)]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("octets", [broker_limits.PAGE_OCTETS, 1], ids=["entries", "octets"])
def test_stages_and_then_applications_are_listed_in_pages(
    filled: Client, monkeypatch: pytest.MonkeyPatch, octets: int
) -> None:
    for number in range(3):
        filled.commit(f"app{number}", 1, filled.staged(f"app{number}", 1, "r0", [b"x"]))
    stages = [filled.staged(f"app{number}", 2, "r0", [b"x"]) for number in range(3)]
    monkeypatch.setattr(broker_limits, "PAGE_OCTETS", octets)
    pages = walk(filled, control.StageDescribe(), control.StageList, both)
    found = [entry for page in pages for entry in page]
    assert (sorted(found[:3]), found[3:]) == (sorted(stages), ["app0", "app1", "app2"])
    assert max(map(len, pages)) == (3 if octets > 1 else 1)
    one = walk(filled, control.StageDescribe(application="app1"), control.StageList, both)
    assert [entry for page in one for entry in page] == [stages[1], "app1"]


def test_one_stage_is_described(filled: Client) -> None:
    stages = [filled.staged("app", 1, "r0", [b"x"]) for _ in range(2)]
    for stage in stages:
        assert walk(filled, control.StageDescribe(stage=stage), control.StageList, both) == [[stage]]
    assert walk(filled, control.StageDescribe(stage="none"), control.StageList, both) == [[]]


def test_listed_logs_are_opened_for_their_page_only(rig: Rig, filled: Client) -> None:
    """A broker that has just started serves a page when the logs on it are open."""
    rig.restart()
    assert [
        len(page) for page in walk(rig.client(), control.ResourceList(), control.DescriptionList, names)
    ] == [7]


def test_a_page_does_not_tell_names_that_the_client_may_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last name that was compared with its rights is not one of those that it sees."""
    monkeypatch.setattr(patterns, "MAX_PAGE_SCANNED", 2)
    rig = rig_with(user("me", "secret"), user("you", "secret", "read z"))
    owner, other = logged_in(rig, "me"), logged_in(rig, "you")
    owner.create("hidden-a", "hidden-b", "hidden-c", "z")
    monkeypatch.setattr(Accounts, "beginnings", lambda *_: [""])
    seen: list[str] = []
    pages, request = 0, control.ResourceList()
    while True:
        page = other.ask(request, control.DescriptionList)
        seen, pages = seen + names(page), pages + 1
        if page.continue_ is None:
            break
        assert "hidden" not in "".join(page.continue_)
        request = structs.replace(request, continue_=page.continue_)
    assert (seen, pages) == (["z"], 2)


def test_a_continue_that_the_broker_did_not_give_is_refused(client: Client) -> None:
    refused = client.refused(control.ResourceList(continue_=["orders"]))
    assert (refused.status, refused.reason) == (400, control.BAD_ARGUMENTS)


# --- what a page costs --------------------------------------------------------------------------------------


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every name for which a right was looked up since the list was cleared."""
    found: list[str] = []
    may = Accounts.may

    def recording(self: Accounts, principal: str, vhost: str, rights: Any, names: list[str]) -> list[bool]:
        found.extend(names)
        return may(self, principal, vhost, rights, names)

    monkeypatch.setattr(Accounts, "may", recording)
    return found


def test_a_page_costs_the_names_that_its_client_may_see(judged: list[str]) -> None:
    """Whatever else there is: resources, queues, applications and stages of others."""
    rig = rig_with(user("other", "secret"), user("me", "secret", "read mine", r"application shared\..*"))
    other, consumer = logged_in(rig, "other"), logged_in(rig, "other", profile="queue")
    other.create("mine", *(f"theirs{number}" for number in range(50)))
    stages, applications = rig.broker.parts.stages, rig.broker.parts.applications
    for number in range(3_000):
        name = f"other.{number}"
        applications.remember(ApplicationRecord("/", name, 1, "", {"theirs1": (1, 1)}, 1))
        stages.restore(StageRecord("/", f"{number:032}", name, 2, {}, number + 1))
    stages.restore(StageRecord("/", "a" * 32, "me.query", 2, {}, 1))
    applications.remember(ApplicationRecord("/", "shared.query", 1, "", {"mine": (1, 1)}, 1))
    for name in ("mine", "theirs1", "theirs2"):
        consumer.ask(control.ConnectionReader(resources=[name], confirm="none"), control.DataLease)
    me = logged_in(rig, "me")
    judged.clear()
    assert walk(me, control.StageDescribe(), control.StageList, both) == [["a" * 32, "shared.query"]]
    queues = walk(
        me, control.QueueDescribe(), control.QueueList, lambda page: [x.resource for x in page.queues]
    )
    assert queues == [["mine"]]
    assert walk(me, control.ResourceList(), control.DescriptionList, names) == [["mine"]]
    assert set(judged) == {"me.query", "shared.query", "mine"}


def test_a_page_of_commits_with_many_resources_is_bounded(
    client: Client, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rights on five resources are looked up for one page, or those of one commit."""
    monkeypatch.setattr(authorization, "MAX_PAGE_SCANNED", 5)
    for number in range(6):
        published = {f"r{x}": (1, 1) for x in range(3 if number else 20)}
        rig.broker.parts.applications.remember(ApplicationRecord("/", f"app{number}", 1, "", published, 1))
    pages = walk(client, control.StageDescribe(), control.StageList, both)
    assert pages == [["app0"], ["app1", "app2"], ["app3", "app4"], ["app5"]]


def test_only_the_entries_that_fit_a_page_are_described(
    client: Client, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry may be as large as the page: a thousand of them would take seconds."""
    described: list[str] = []
    info = applications._application_info

    def recording(record: ApplicationRecord) -> control.ApplicationInfo:
        described.append(record.application)
        return info(record)

    monkeypatch.setattr(applications, "_application_info", recording)
    monkeypatch.setattr(broker_limits, "PAGE_OCTETS", 500)
    for number in range(100):
        rig.broker.parts.applications.remember(ApplicationRecord("/", f"app{number:02}", 1, "", {}, 1))
    client.ask(control.StageDescribe(), control.StageList)
    assert len(described) < 10


# --- one above the largest page -----------------------------------------------------------------------------

COUNT = broker_limits.MAX_PAGE + 1


def numbered(prefix: str) -> list[str]:
    return [f"{prefix}{number:04}" for number in range(COUNT)]


def test_more_groups_and_queues_of_a_resource_than_a_page(rig: Rig, client: Client) -> None:
    client.create("a")
    consumer = rig.client("queue")
    for group in numbered("g"):
        client.ask(control.CursorOpen(group=group, resource="a"), control.CursorOpened)
        lease = consumer.ask(
            control.ConnectionReader(resources=["a"], group=group, confirm="full"), control.DataLease
        )
        consumer.close_lease(lease)
    cursors = walk(
        client, control.CursorDescribe(resource="a"), control.CursorList, lambda page: page.cursors
    )
    assert [cursor.group for page in cursors for cursor in page] == numbered("g")
    queues = walk(client, control.QueueDescribe(), control.QueueList, lambda page: page.queues)
    assert [queue.group for page in queues for queue in page] == numbered("g")


def test_more_stages_of_a_commit_and_more_applications_than_a_page(client: Client) -> None:
    client.create("a")
    stages = [client.staged("app", 1, "a", [b"x"]) for _ in range(COUNT)]
    pages = walk(client, control.StageDescribe(application="app"), control.StageList, both)
    assert sorted(name for page in pages for name in page) == sorted(stages)
    assert client.commit("app", 1, *stages).resources["a"].contents == COUNT
    for application in numbered("app"):
        client.commit(application, 1)
    pages = walk(client, control.StageDescribe(), control.StageList, both)
    assert [name for page in pages for name in page] == ["app", *numbered("app")]
