"""Long polls: Resource.Describe whose answer waits for a change. PROTOCOL.md 5.1."""

from __future__ import annotations

import pytest
from msgspec import structs

from mtl.broker import limits as broker_limits
from mtl.broker.access.caller import Caller
from mtl.wire import control
from tests.support.core import Client, Rig
from tests.support.core_client import Waiting


@pytest.fixture
def filled(client: Client) -> Client:
    client.create("a", "b", "c")
    client.fill("a", [b"x"])
    return client


ASKED = [
    control.ResourceDescribe(resource="a", wait=1_000),
    control.ResourceDescribe(resources=["a", "b"], wait=1_000),
    control.ResourceDescribe(pattern="a|b", wait=1_000),
    control.ResourceDescribe(wait=1_000),
]


def state(client: Client) -> str:
    return client.ask(control.ResourceDescribe(pattern="none"), control.DescriptionList).state or ""


def since(
    client: Client, request: control.ResourceDescribe, before: str | None = None
) -> control.ResourceDescribe:
    """The request with a state: the present one if no other is given."""
    return structs.replace(request, since=state(client) if before is None else before)


def changes(answer: Waiting) -> tuple[dict[str, int], list[str] | None]:
    """The changed resources with their ends, and the removed ones."""
    found = answer.reply(control.DescriptionList)
    return {x.resource: x.next for x in found.resources}, found.removed


@pytest.mark.parametrize("request_", ASKED)
def test_a_long_poll_is_answered_by_new_contents(filled: Client, request_: control.ResourceDescribe) -> None:
    asked = filled.begin(since(filled, request_))
    assert not asked.answered
    filled.fill("a", [b"y"])
    assert changes(asked) == ({"a": 3}, [])


@pytest.mark.parametrize("request_", ASKED)
def test_a_long_poll_is_answered_after_its_wait(
    rig: Rig, filled: Client, request_: control.ResourceDescribe
) -> None:
    asked = filled.begin(since(filled, request_))
    rig.sleep(0.9, step=0.1)
    assert not asked.answered
    rig.sleep(0.2, step=0.1)
    assert changes(asked) == ({}, [])


@pytest.mark.parametrize("request_", ASKED[:3])
def test_a_long_poll_is_not_answered_by_changes_of_other_resources(
    filled: Client, request_: control.ResourceDescribe
) -> None:
    asked = filled.begin(since(filled, request_))
    filled.fill("c", [b"y"])
    filled.create("new")
    filled.ask(control.ResourceDelete(resource="c"), control.Ok)
    assert not asked.answered


@pytest.mark.parametrize("request_", ASKED)
def test_changes_since_a_state_are_answered_at_once(
    filled: Client, request_: control.ResourceDescribe
) -> None:
    before = state(filled)
    filled.fill("a", [b"y"])
    filled.fill("a", [b"z"])
    assert changes(filled.begin(since(filled, request_, before))) == ({"a": 4}, [])


@pytest.mark.parametrize("request_", ASKED)
@pytest.mark.parametrize(
    "before", ["", "1", "another.1", "{boot}.x", "{boot}.-1", "{boot}.999", "{boot}.", "{boot}.²"]
)
def test_an_unknown_state_is_answered_with_all_resources(
    filled: Client, request_: control.ResourceDescribe, before: str
) -> None:
    """After a restart of the broker, or from another broker."""
    unknown = before.replace("{boot}", state(filled).partition(".")[0])
    found = filled.ask(since(filled, request_, unknown), control.DescriptionList)
    assert found.resources
    assert (found.removed, found.state) == (None, state(filled))


def test_more_changes_than_a_page_come_in_several_answers(
    filled: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state(filled)
    names = [f"r{number}" for number in range(5)]
    filled.create(*names)
    filled.ask(control.ResourceDelete(resource="r1"), control.Ok)
    monkeypatch.setattr(broker_limits, "MAX_PAGE", 2)
    seen: list[str] = []
    for _ in range(3):
        found = filled.ask(control.ResourceDescribe(since=before, wait=1_000), control.DescriptionList)
        seen += [*(x.resource for x in found.resources), *(found.removed or ())]
        assert len(seen) <= 2 + len(seen) - len(found.resources)
        before = found.state or ""
    assert sorted(seen) == names
    assert not filled.begin(control.ResourceDescribe(since=before, wait=1_000)).answered


def test_a_long_poll_is_answered_by_a_created_resource(filled: Client) -> None:
    by_pattern = filled.begin(since(filled, control.ResourceDescribe(pattern="x.*", wait=1_000)))
    by_name = filled.begin(
        since(filled, control.ResourceDescribe(resources=["xyz"], missing_ok=True, wait=1_000))
    )
    filled.create("xyz")
    assert changes(by_pattern) == changes(by_name) == ({"xyz": 1}, [])


def test_a_long_poll_for_a_missing_name_is_refused(filled: Client) -> None:
    refused = filled.refused(since(filled, control.ResourceDescribe(resources=["xyz"], wait=1_000)))
    assert refused.reason == control.UNKNOWN_RESOURCE


def test_a_long_poll_is_refused_when_its_resource_is_deleted(filled: Client) -> None:
    asked = filled.begin(since(filled, ASKED[1]))
    filled.ask(control.ResourceDelete(resource="b"), control.Ok)
    with pytest.raises(Exception, match="404 unknown-resource"):
        asked.reply(control.DescriptionList)


def test_a_long_poll_is_answered_by_a_commit(filled: Client) -> None:
    asked = filled.begin(since(filled, ASKED[0]))
    filled.commit("app", 1, filled.staged("app", 1, "a", [b"y"]))
    assert asked.reply(control.DescriptionList).resources[0].next == 3


@pytest.mark.parametrize("missing_ok", [False, True])
@pytest.mark.parametrize("request_", ASKED[1:])
def test_a_long_poll_reports_a_deletion(
    filled: Client, request_: control.ResourceDescribe, missing_ok: bool
) -> None:
    if request_.resources and not missing_ok:
        return  # refused: see above
    before = state(filled)
    asked = filled.begin(since(filled, structs.replace(request_, missing_ok=missing_ok)))
    filled.ask(control.ResourceDelete(resource="b"), control.Ok)
    assert changes(asked) == ({}, ["b"])
    later = filled.begin(since(filled, structs.replace(request_, missing_ok=missing_ok), before))
    assert changes(later) == ({}, ["b"])


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("bodies", [[], [b"x"]])
def test_a_recreated_resource_is_a_change(
    filled: Client, asked: control.ResourceDescribe, bodies: list[bytes]
) -> None:
    """Also if it has as many contents as before, or fewer."""
    before = state(filled)
    filled.ask(control.ResourceDelete(resource="a"), control.Ok)
    filled.create("a")
    if bodies:
        filled.fill("a", bodies)
    assert changes(filled.begin(since(filled, asked, before))) == ({"a": 1 + len(bodies)}, [])


def test_removed_contents_are_in_the_next_answer_and_end_no_wait() -> None:
    rig = Rig(segment_bytes=1_200)
    client = rig.client()
    client.create("a", retention=control.Retention(contents=2))
    client.fill("a", [bytes(1_000)])
    before = state(client)
    for _ in range(4):
        client.fill("a", [bytes(1_000)])
    asked = client.begin(since(client, control.ResourceDescribe(resource="a", wait=30_000)))
    rig.sleep(2 * broker_limits.RETENTION_CHECK_S)
    assert not asked.answered
    [found] = client.ask(
        control.ResourceDescribe(resource="a", since=before), control.DescriptionList
    ).resources
    assert found.earliest > 1


def test_waiting_polls_are_bounded(rig: Rig, filled: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "MAX_WAITERS", 1)
    request = since(filled, control.ResourceDescribe(resource="a", wait=1 << 40))
    asked = filled.begin(request)
    refused = filled.refused(request)
    assert (refused.status, refused.reason) == (503, control.OVERLOADED)
    rig.sleep(broker_limits.MAX_WAIT_S + 1)
    assert asked.answered


def test_names_in_waiting_polls_are_bounded(filled: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "MAX_WAITING_NAMES", 3)
    request = since(filled, control.ResourceDescribe(resources=["a", "b"], wait=1_000))
    asked = filled.begin(request)
    refused = filled.refused(structs.replace(request))
    assert (refused.status, refused.reason, asked.answered) == (503, control.OVERLOADED, False)
    filled.rig.sleep(2)
    assert asked.answered
    assert not filled.begin(request).answered


def test_patterns_in_waiting_polls_are_bounded(filled: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "MAX_WAITING_PATTERNS", 1)
    request = since(filled, control.ResourceDescribe(pattern="a", wait=1_000))
    assert not filled.begin(request).answered
    assert not filled.begin(request).answered  # the same pattern
    assert filled.refused(structs.replace(request, pattern="b")).reason == control.OVERLOADED
    assert not filled.begin(structs.replace(request, pattern=None, resource="b")).answered


@pytest.mark.parametrize("request_", ASKED)
def test_a_commit_checks_only_polls_of_its_resource(
    filled: Client, request_: control.ResourceDescribe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of clients may wait, and must not make a group commit slower."""
    others = [
        filled.begin(since(filled, control.ResourceDescribe(resource="b", wait=1_000))) for _ in range(50)
    ]
    asked = filled.begin(since(filled, request_))
    checked = []
    are_visible = filled.rig.broker.parts.polls._authorization.are_visible

    def record_check(caller: Caller, names: list[str]) -> bool:
        checked.append(names)
        return are_visible(caller, names)

    monkeypatch.setattr(filled.rig.broker.parts.polls._authorization, "are_visible", record_check)
    filled.fill("a", [b"y"])
    assert asked.answered
    assert checked == [["a"]]
    assert not any(x.answered for x in others)


def test_answered_polls_leave_no_state(rig: Rig, filled: Client) -> None:
    for request in ASKED:
        filled.begin(since(filled, request))
    filled.create("new")
    filled.ask(control.ResourceDelete(resource="a"), control.Ok)
    rig.sleep(2)
    polls = rig.broker.parts.polls
    assert (polls._polls, polls._named, polls._open) == ({}, {}, {})
    assert [pool.used for pool in (polls._pool, polls._names, polls._patterns)] == [0, 0, 0]
    assert not polls._patterns_of
