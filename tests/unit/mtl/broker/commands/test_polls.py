"""Long polls: Resource.Describe whose answer waits for a change. PROTOCOL.md 5.1."""

from __future__ import annotations

import pytest
from msgspec import structs

from mtl.broker import limits as broker_limits
from mtl.broker.commands.polls import _Poll
from mtl.broker.writing.resource import Resource
from mtl.wire import control as w
from tests.support.core import Client, Rig


@pytest.fixture
def filled(client: Client) -> Client:
    client.create("a", "b", "c")
    client.fill("a", [b"x"])
    return client


ASKED = [
    w.ResourceDescribe(resource="a", after={"a": 2}, wait=1_000),
    w.ResourceDescribe(resources=["a", "b"], after={"a": 2, "b": 1}, wait=1_000),
    w.ResourceDescribe(pattern="a|b", after={"a": 2, "b": 1}, wait=1_000),
    w.ResourceDescribe(after={"a": 2, "b": 1, "c": 1}, wait=1_000),
]


@pytest.mark.parametrize("request_", ASKED)
def test_a_long_poll_is_answered_by_new_contents(filled: Client, request_: w.ResourceDescribe) -> None:
    asked = filled.begin(request_)
    assert not asked.answered
    filled.fill("a", [b"y"])
    found = {x.resource: x.next for x in asked.reply(w.DescriptionList).resources}
    assert found["a"] == 3


@pytest.mark.parametrize("request_", ASKED)
def test_a_long_poll_is_answered_after_its_wait(
    rig: Rig, filled: Client, request_: w.ResourceDescribe
) -> None:
    asked = filled.begin(request_)
    rig.sleep(0.9, step=0.1)
    assert not asked.answered
    rig.sleep(0.2, step=0.1)
    assert {x.resource: x.next for x in asked.reply(w.DescriptionList).resources}["a"] == 2


@pytest.mark.parametrize("request_", ASKED[:3])
def test_a_long_poll_is_not_answered_by_changes_of_other_resources(
    filled: Client, request_: w.ResourceDescribe
) -> None:
    asked = filled.begin(request_)
    filled.fill("c", [b"y"])
    filled.create("new")
    filled.ask(w.ResourceDelete(resource="c"), w.Ok)
    assert not asked.answered


@pytest.mark.parametrize(
    ("request_", "at_once"),
    [
        (w.ResourceDescribe(after={"a": 1, "b": 1, "c": 1}, wait=1_000), True),
        (w.ResourceDescribe(after={"a": 2}, wait=1_000), True),
        (w.ResourceDescribe(resource="b", after={"a": 2}, wait=1_000), True),
        (w.ResourceDescribe(after={"a": 2, "b": 1, "c": 1}), True),
        (w.ResourceDescribe(wait=1_000), True),
        (w.ResourceDescribe(pattern="x.*", after={}, wait=1_000), False),
    ],
)
def test_a_long_poll_with_news_is_answered_at_once(
    filled: Client, request_: w.ResourceDescribe, at_once: bool
) -> None:
    assert filled.begin(request_).answered is at_once


def test_a_long_poll_is_answered_by_a_created_resource(filled: Client) -> None:
    by_pattern = filled.begin(w.ResourceDescribe(pattern="x.*", after={}, wait=1_000))
    filled.create("xyz")
    assert [x.resource for x in by_pattern.reply(w.DescriptionList).resources] == ["xyz"]


def test_a_long_poll_is_refused_when_its_resource_is_deleted(filled: Client) -> None:
    asked = filled.begin(ASKED[1])
    filled.ask(w.ResourceDelete(resource="b"), w.Ok)
    with pytest.raises(Exception, match="404 unknown-resource"):
        asked.reply(w.DescriptionList)


def test_a_long_poll_is_answered_by_a_commit(filled: Client) -> None:
    asked = filled.begin(ASKED[0])
    filled.commit("app", 1, filled.staged("app", 1, "a", [b"y"]))
    assert asked.reply(w.DescriptionList).resources[0].next == 3


@pytest.mark.parametrize("request_", ASKED[2:])
def test_a_long_poll_by_pattern_is_answered_when_a_known_resource_is_deleted(
    filled: Client, request_: w.ResourceDescribe
) -> None:
    asked = filled.begin(request_)
    filled.ask(w.ResourceDelete(resource="b"), w.Ok)
    assert "b" not in {x.resource for x in asked.reply(w.DescriptionList).resources}


@pytest.mark.parametrize(
    ("request_", "at_once"),
    [
        (w.ResourceDescribe(pattern="a|gone", after={"a": 2, "gone": 1}, wait=1_000), True),
        (w.ResourceDescribe(after={"a": 2, "b": 1, "c": 1, "gone": 1}, wait=1_000), True),
        (w.ResourceDescribe(pattern="a", after={"a": 2, "gone": 1}, wait=1_000), False),
        (w.ResourceDescribe(resource="a", after={"a": 2, "gone": 1}, wait=1_000), False),
        (w.ResourceDescribe(pattern="a", after={"a": 2, "b": 1}, wait=1_000), False),
    ],
)
def test_a_long_poll_is_answered_at_once_if_a_known_resource_is_deleted(
    filled: Client, request_: w.ResourceDescribe, at_once: bool
) -> None:
    """No later event would answer the poll. A name outside the request does not count."""
    assert filled.begin(request_).answered is at_once


@pytest.mark.parametrize("asked", ASKED)
def test_a_long_poll_is_answered_when_its_resource_was_recreated(
    filled: Client, asked: w.ResourceDescribe
) -> None:
    """Then it has fewer contents, or as many."""
    known = filled.ask(w.ResourceDescribe(), w.DescriptionList).resources
    request = structs.replace(
        asked, incarnations={description.resource: description.incarnation for description in known}
    )
    waiting = filled.begin(request)
    before_that = waiting.answered
    filled.ask(w.ResourceDelete(resource="a"), w.Ok)
    assert (before_that, waiting.answered) == (False, True)
    for bodies in ([], [b"x"]):
        filled.create("a")
        if bodies:
            filled.fill("a", bodies)
        found = {
            resource.resource: resource.next for resource in filled.ask(request, w.DescriptionList).resources
        }
        assert found["a"] == 1 + len(bodies)
        filled.ask(w.ResourceDelete(resource="a"), w.Ok)


def test_waiting_polls_are_bounded(rig: Rig, filled: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "MAX_WAITERS", 1)
    request = w.ResourceDescribe(resource="a", after={"a": 2}, wait=1 << 40)
    asked = filled.begin(request)
    refused = filled.refused(request)
    assert (refused.status, refused.reason) == (503, w.OVERLOADED)
    rig.sleep(broker_limits.MAX_WAIT_S + 1)
    assert asked.answered


def test_names_in_waiting_polls_are_bounded(filled: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "MAX_WAITING_NAMES", 6)  # in `resources`, in `after`, and those found
    request = w.ResourceDescribe(resources=["a", "b"], after={"a": 9, "b": 9}, wait=1_000)
    asked = filled.begin(request)
    refused = filled.refused(structs.replace(request))
    assert (refused.status, refused.reason, asked.answered) == (503, w.OVERLOADED, False)
    filled.rig.sleep(2)
    assert asked.answered
    assert not filled.begin(request).answered


def test_more_resources_than_fit_into_an_answer_are_refused(
    filled: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_limits, "MAX_DESCRIBED", 1)
    for request in (w.ResourceList(), w.ResourceDescribe()):
        assert (filled.refused(request).status, filled.refused(request).reason) == (413, w.TOO_LARGE)
    assert filled.ask(w.ResourceList(pattern="a"), w.DescriptionList).resources


@pytest.mark.parametrize("request_", ASKED)
def test_a_commit_checks_only_polls_of_its_resource(
    filled: Client, request_: w.ResourceDescribe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of clients may wait, and must not make a group commit slower."""
    others = [filled.begin(w.ResourceDescribe(resource="b", after={"b": 1}, wait=1_000)) for _ in range(50)]
    asked = filled.begin(request_)
    checked = []
    is_news = _Poll.is_changed

    def record_check(poll: _Poll, resource: Resource) -> bool:
        checked.append(poll)
        return is_news(poll, resource)

    monkeypatch.setattr(_Poll, "is_changed", record_check)
    filled.fill("a", [b"y"])
    assert asked.answered
    assert len(checked) == 1
    assert not any(x.answered for x in others)


def test_answered_polls_leave_no_state(rig: Rig, filled: Client) -> None:
    for request in ASKED:
        filled.begin(request)
    filled.create("new")
    filled.ask(w.ResourceDelete(resource="a"), w.Ok)
    rig.sleep(2)
    polls = rig.broker.parts.polls
    assert (polls._polls, polls._by_resource, polls._open) == ({}, {}, {})
