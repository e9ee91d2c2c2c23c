from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
from msgspec import structs

from mtl.client.client_requests import Blocking, ClientRequest
from mtl.client.resources import Administration
from mtl.errors import Malformed, Refused
from mtl.wire import control

T = TypeVar("T")

FOUND = control.Description(resource="a", incarnation="i", known_earliest=1, known_next=5)


class Scripted(Blocking, Administration):
    """Gives prepared answers, and records the requests."""

    def __init__(self, *outcomes: control.Reply | Refused, attempts: int = 1) -> None:
        self.outcomes = list(outcomes)
        self.attempts = attempts
        self.asked: list[control.Request] = []
        self.patience = 0.0

    def _answer(self, asked: ClientRequest[T]) -> T:
        answer: T | ClientRequest[T] = asked
        while isinstance(answer, ClientRequest):
            assert answer.request is not None
            self.asked.append(answer.request)
            self.patience = max(self.patience, answer.patience)
            answer = answer.conclude(self.outcomes.pop(0), self.attempts)
        return answer


def refused(reason: str) -> Refused:
    return Refused(409, reason)


def test_resources_are_created_and_described() -> None:
    retention = control.Retention(bytes=5)
    there = Scripted(
        control.ResourceCreated(resource=FOUND),
        control.DescriptionList(resources=[FOUND]),
        control.DescriptionList(resources=[FOUND]),
    )
    assert there.create_resource("a", durability="os", retention=retention, exist_ok=True) == FOUND
    assert there.describe(["a"], since="b.5", wait=0.25) == {"a": FOUND}
    assert there.patience == 0.25
    assert there.list_resources("a.*") == [FOUND]
    assert there.asked == [
        control.ResourceCreate(resource="a", durability="os", retention=retention, exist_ok=True),
        control.ResourceDescribe(resources=["a"], since="b.5", wait=250),
        control.ResourceList(pattern="a.*"),
    ]


def test_all_pages_of_a_list_are_requested() -> None:
    pages = [
        control.DescriptionList(
            resources=[structs.replace(FOUND, resource=name)], state=state, continue_=following
        )
        for name, state, following in (("a", "b.1", ["a"]), ("b", None, ["b"]), ("c", None, None))
    ]
    there = Scripted(*pages, *pages)
    found = there.describe(pattern=".*", since="x.1", wait=1.0)
    assert (list(found), found.state, found.removed) == (["a", "b", "c"], "b.1", None)
    assert [x.resource for x in there.list_resources()] == ["a", "b", "c"]
    assert [x.continue_ for x in there.asked if isinstance(x, control.ResourceDescribe)] == [
        None,
        ["a"],
        ["b"],
    ]


def test_more_names_than_fit_a_request_are_described_in_several() -> None:
    names = [f"r{number:04}" for number in range(1_001)]
    lists = [
        control.DescriptionList(
            resources=[structs.replace(FOUND, resource=name) for name in part], state=state
        )
        for part, state in ((names[:1_000], "b.1"), (names[1_000:], "b.2"))
    ]
    there = Scripted(*lists)
    found = there.describe(names, missing_ok=True)
    assert (list(found), found.state) == (names, "b.1")
    assert there.asked == [
        control.ResourceDescribe(resources=part, missing_ok=True) for part in (names[:1_000], names[1_000:])
    ]


def test_changes_of_more_names_than_fit_a_request_are_chosen_from_all() -> None:
    names = [f"r{number:04}" for number in range(1_001)]
    changed = [structs.replace(FOUND, resource=name) for name in ("r0007", "other")]
    there = Scripted(control.DescriptionList(resources=changed, state="b.9", removed=["r0001", "another"]))
    found = there.describe(names, missing_ok=True, since="b.1", wait=0.25)
    assert (list(found), found.removed, found.state) == (["r0007"], ["r0001"], "b.9")
    assert there.asked == [control.ResourceDescribe(missing_ok=True, since="b.1", wait=250)]


def test_a_string_argument_is_one_name() -> None:
    done = control.Committed()
    there = Scripted(control.DescriptionList(resources=[FOUND]), done, control.Ok())
    there.describe(FOUND.resource)
    there.stage_commit("app", 1, "stage", truncate="orders")
    there.stage_abort("stage")
    assert there.asked == [
        control.ResourceDescribe(resources=[FOUND.resource]),
        control.StageCommit(application="app", version=1, stages=["stage"], truncate=["orders"]),
        control.StageAbort(stages=["stage"]),
    ]


def test_positions_are_located() -> None:
    there = Scripted(control.Located(sequence=7, match=False), control.Located(sequence=9))
    assert there.locate_time("a", 5, incarnation="i") == (7, False)
    assert there.locate_end("a", 3, contents=4, bytes=5) == 9
    assert there.asked == [
        control.ResourceLocate(resource="a", timestamp=5, incarnation="i"),
        control.ResourceLocate(resource="a", start=3, contents=4, bytes=5),
    ]


def test_unread_contents_are_measured_in_octets_and_age() -> None:
    there = Scripted(control.Located(sequence=9, timestamp=5, bytes=80))
    assert there.unread("a", 3, 6, incarnation="i").bytes == 80
    assert there.asked == [control.ResourceLocate(resource="a", start=3, contents=6, incarnation="i")]


def test_a_cursor_is_reset_to_a_position_or_a_time() -> None:
    moved = control.CursorWasReset(position=1, before=2)
    there = Scripted(moved, moved)
    assert there.cursor_reset("g", "a", "earliest") == moved
    assert there.cursor_reset("g", "a", timestamp_us=5, force=True) == moved
    assert there.asked == [
        control.CursorReset(group="g", resource="a", to="earliest"),
        control.CursorReset(group="g", resource="a", timestamp=5, force=True),
    ]


def test_requests_for_groups_and_stages() -> None:
    opened, committed = control.CursorOpened(position=3, created=True), control.Committed(digest={"d": "1"})
    stages = control.StageList(stages=[], applications=[])
    there = Scripted(opened, control.CursorList(cursors=[]), committed, committed, control.Ok(), stages)
    assert there.cursor_open("g", "a", start="latest") == opened
    assert there.cursors("g") == []
    assert there.stage_commit("app", 3, ["s", "t"], query="q") == committed
    assert there.stage_commit("app", 4, [], truncate=["a"]) == committed
    there.stage_abort(["s"])
    assert there.stages("app") == stages
    assert there.asked == [
        control.CursorOpen(group="g", resource="a", from_="latest"),
        control.CursorDescribe(group="g"),
        control.StageCommit(application="app", version=3, stages=["s", "t"], query="q"),
        control.StageCommit(application="app", version=4, stages=[], truncate=["a"]),
        control.StageAbort(stages=["s"]),
        control.StageDescribe(application="app"),
    ]


@pytest.mark.parametrize("attempts", [1, 2])
def test_an_effect_of_an_unanswered_attempt_is_not_an_error(attempts: int) -> None:
    def there(reason: str, *more: control.Reply) -> Scripted:
        return Scripted(refused(reason), *more, attempts=attempts)

    actions: list[Callable[[], object]] = [
        lambda: there(control.EXISTS, control.DescriptionList(resources=[FOUND])).create_resource("a"),
        lambda: there(control.UNKNOWN_RESOURCE).delete_resource("a"),
        lambda: there(control.UNKNOWN_CURSOR).cursor_delete("g", "a"),
        lambda: there(control.UNKNOWN_APPLICATION).stage_forget("app"),
    ]
    for action in actions:
        if attempts == 1:
            with pytest.raises(Refused):
                action()
        else:
            action()


def test_any_other_refusal_is_raised() -> None:
    for action in (
        lambda: Scripted(refused("no"), attempts=2).create_resource("a"),
        lambda: Scripted(refused("no"), attempts=2).delete_resource("a"),
        lambda: Scripted(refused("no"), attempts=2).describe(),
    ):
        with pytest.raises(Refused):
            action()


def test_an_answer_of_another_kind_is_malformed() -> None:
    with pytest.raises(Malformed):
        Scripted(control.Ok()).describe()
    with pytest.raises(Malformed):
        Scripted(control.Ok()).create_resource("a")


def test_a_description_that_is_missing_is_named() -> None:
    with pytest.raises(Malformed, match="'orders'"):
        Scripted(control.DescriptionList(resources=[FOUND])).describe([FOUND.resource, "orders"])
