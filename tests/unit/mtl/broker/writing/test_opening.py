"""Logs opened while the broker serves: on demand, in the background, and again after a failure."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

import pytest

from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.broker import sorted_keys
from mtl.errors import Refused
from mtl.storage.api import OpenLog, Publish, Save
from mtl.storage.local import DiskAction
from mtl.wire import commands, control
from tests.support.commits import applications, begin, commit, leavings, staged, visible
from tests.support.core import Client, Rig, Waiting
from tests.support.faulty_store import refuse
from tests.support.users import logged_in, rig_with, user
from tests.unit.mtl.broker.queues.test_consumers import consumer

NAMES = [f"r{n:02d}" for n in range(20)]


@pytest.fixture
def many(rig: Rig) -> Client:
    """Twenty resources with one content each, and a broker that has opened none of their logs."""
    client = rig.client()
    client.create(*NAMES)
    for name in NAMES:
        client.fill(name, [name.encode()])
    rig.stop()
    rig.start(OpenLog)
    return rig.client()


def described(client: Client, name: str) -> Waiting:
    return client.begin(control.ResourceDescribe(resource=name))


def under_way(rig: Rig) -> list[str]:
    """The resources whose logs are being opened."""
    found = [rig.broker.parts.resources.of_log(x.log) for x in rig.held if isinstance(x, OpenLog)]
    return [x.name for x in found if x is not None]


def fail_opens(rig: Rig, name: str = "", error: int = errno.ENOSPC) -> None:
    """The disk refuses to open a log, or all of them."""
    found = rig.broker.parts.resources.find("/", name)
    place = "/data/resources/" if found is None else f"/data/{found.intake.key}/"
    rig.disk.fail("open", count=1_000_000, when=lambda path: path.startswith(place), error=error)


# --- order --------------------------------------------------------------------------------------------------


def test_a_broker_serves_before_its_logs_are_open(rig: Rig, many: Client) -> None:
    assert rig.broker.ready
    assert len(under_way(rig)) == 1, "no request waits for the others"
    asked = described(many, "r13")
    assert not asked.answered
    assert under_way(rig) == ["r00", "r13"]
    rig.let_go(2)
    assert asked.reply(control.DescriptionList).resources[0].next == 2
    assert under_way(rig) == ["r01"]
    rig.let_go()
    assert rig.broker.opening.unopened == 0
    assert [many.read(name) for name in NAMES] == [[name.encode()] for name in NAMES]


def test_a_request_for_one_log_precedes_one_for_all_logs(rig: Rig, many: Client) -> None:
    everything = many.begin(control.ResourceList())
    description = described(rig.client(), "r19")
    assert len(under_way(rig)) == limits.OPENINGS
    rig.let_go(limits.OPENINGS)
    assert "r19" in under_way(rig)
    rig.let_go(limits.OPENINGS)
    assert description.answered
    assert not everything.answered
    rig.let_go()
    found = everything.reply(control.DescriptionList).resources
    assert [(x.resource, x.next) for x in found] == [(name, 2) for name in NAMES]


def test_a_log_needed_by_several_requests_is_opened_once(rig: Rig, many: Client) -> None:
    asked = [described(rig.client(), "r05") for _ in range(3)]
    assert under_way(rig).count("r05") == 1
    rig.let_go(2)
    assert all(x.answered for x in asked)
    assert "r05" not in under_way(rig)


def test_a_stopping_broker_opens_no_more_logs(rig: Rig, many: Client) -> None:
    described(many, "r07")
    rig.broker.close(rig.now())
    rig.let_go()
    assert rig.broker.idle
    assert rig.broker.opening.unopened == len(NAMES) - 2
    rig.storage.close()
    rig.start()
    assert rig.client().read("r07") == [b"r07"]


# --- waiting requests ---------------------------------------------------------------------------------------

REQUESTS: dict[str, control.Request] = {
    "read": control.ConnectionReader(resources=["r13"], from_="earliest"),
    "write": control.ConnectionWriter(resources=["r13"]),
    "create": control.ResourceCreate(resource="r13", exist_ok=True),
    "list": control.ResourceList(pattern="r13|r14"),
    "describe": control.ResourceDescribe(resources=["r13", "r14"]),
    "match": control.ResourceDescribe(pattern="r13"),
    "locate": control.ResourceLocate(resource="r13", start=1),
    "open cursor": control.CursorOpen(group="g", resource="r13"),
    "delete": control.ResourceDelete(resource="r13"),
}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_requests_for_the_contents_of_a_log_wait_until_it_is_open(
    rig: Rig, many: Client, request_: control.Request
) -> None:
    asked = many.begin(request_)
    assert not asked.answered
    assert "r13" in under_way(rig)
    rig.let_go(3)
    asked.reply(object)


def test_cursors_and_queues_are_described_when_their_logs_are_open(rig: Rig) -> None:
    client = rig.client("queue")
    client.create("a")
    client.fill("a", [b"x", b"y"])
    rig.client().ask(control.CursorOpen(group="g", resource="a"), control.CursorOpened)
    consumer(client, "a")
    rig.sleep(1)
    rig.stop()
    rig.start(OpenLog)
    cursors = rig.client().begin(control.CursorDescribe())
    queues = rig.client("queue").begin(control.QueueDescribe())
    assert not cursors.answered
    assert not queues.answered
    rig.let_go()
    assert cursors.reply(control.CursorList).cursors[0].behind == 2
    assert queues.reply(control.QueueList).queues[0].next == 3


def test_contents_for_an_unopened_log_are_pushed_back_and_open_it(rig: Rig, many: Client) -> None:
    flow = many.flow(many.writer())
    flow.content(1, b"x", "r13")
    assert flow.sent() == [commands.Reject(1, False, True)]
    assert "r13" in under_way(rig)
    rig.let_go()
    flow.content(1, b"x", "r13")
    assert flow.sent() == [commands.Confirm(1, True)]


def test_the_summon_of_a_consumer_of_all_resources_waits_for_the_log(rig: Rig) -> None:
    client = rig.client("queue")
    client.create("a")
    client.fill("a", [b"x"])
    rig.stop()
    rig.start(OpenLog)
    client = rig.client("queue")
    flow = client.flow(client.reader())
    flow.send(commands.Summon(9, "a"))
    assert flow.sent() == []
    rig.let_go()
    response, content = flow.sent()
    assert response == commands.Response(9, 200)
    assert isinstance(content, commands.Content)
    assert bytes(content.body) == b"x"


def test_a_long_poll_is_answered_when_a_log_with_news_opens(rig: Rig, many: Client) -> None:
    fail_opens(rig, "r13")
    rig.let_go()
    state = many.ask(control.ResourceDescribe(resource="r13"), control.DescriptionList).state
    asked = many.begin(control.ResourceDescribe(resource="r13", since=state, wait=60_000))
    rig.sleep(1)
    assert not asked.answered, "its client would ask again at once"
    rig.disk.heal()
    rig.sleep(2 * broker_limits.OPEN_RETRY_TOP_S)
    assert asked.reply(control.DescriptionList).resources[0].next == 2


def test_a_request_waiting_for_a_log_is_refused_if_its_right_is_revoked() -> None:
    admin = user("admin", "secret")
    rig = rig_with(admin, user("me", "secret", "read .*"))
    logged_in(rig, "admin").create("a")
    rig.stop()
    rig.start(OpenLog)
    rig.broker.users([admin, user("me", "secret", "read .*")], rig.now())
    asked = logged_in(rig, "me").begin(control.ResourceLocate(resource="a", start=1))
    rig.broker.users([admin, user("me", "secret", "read b")], rig.now())
    rig.let_go()
    with pytest.raises(Refused, match="403"):
        asked.reply(control.Located)


def test_a_page_needs_the_logs_of_the_names_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not those of other users' names, which come first in the order."""
    monkeypatch.setattr(sorted_keys, "MAX_PAGE", 1)
    users = [user("other", "secret"), user("me", "secret", "read z")]
    rig = rig_with(*users)
    other, consuming = logged_in(rig, "other"), logged_in(rig, "other", profile="queue")
    other.create("a", "z")
    for name in ("a", "z"):
        other.fill(name, [b"x"])
        other.ask(control.CursorOpen(group="g", resource=name, from_=1), control.CursorOpened)
        consuming.ask(control.ConnectionReader(resources=[name], confirm="none"), control.DataLease)
    rig.stop()
    rig.start(OpenLog)
    rig.broker.users(users, rig.now())
    me = logged_in(rig, "me")
    asked = [me.begin(control.CursorDescribe()), me.begin(control.QueueDescribe())]
    while not all(x.answered for x in asked):
        rig.let_go(1)
    assert [x.behind for x in asked[0].reply(control.CursorList).cursors] == [1]
    assert [x.ready for x in asked[1].reply(control.QueueList).queues] == [1]


# --- failures that pass -------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_log_without_positions_opens_when_the_disk_recovers(rig: Rig, many: Client, error: int) -> None:
    """Such logs were once reported to end at 1 until the next start."""
    fail_opens(rig, error=error)
    rig.let_go()
    for found in many.ask(control.ResourceList(), control.DescriptionList).resources:
        assert (found.state, found.known_earliest, found.known_next) == ("stopped", None, None)
        assert (found.bytes, found.contents) == (None, None)
        assert found.trouble
    for request in (
        control.ConnectionReader(resources=["r01"]),
        control.ConnectionWriter(resources=["r01"]),
        control.ResourceLocate(resource="r01", start=1),
        control.CursorOpen(group="g", resource="r01"),
    ):
        refused = many.refused(request)
        assert (refused.status, refused.reason) == (503, control.STORAGE)
        assert "opening" in refused.message
    rig.sleep(60)
    rig.disk.heal()
    rig.sleep(2 * broker_limits.OPEN_RETRY_TOP_S)
    assert rig.broker.opening.unopened == 0
    assert [many.sequences(name) for name in NAMES] == [(1, 2)] * len(NAMES)
    assert [many.read(name) for name in NAMES] == [[name.encode()] for name in NAMES]


def test_cursors_and_queues_of_an_unopened_log_have_no_end(rig: Rig) -> None:
    client = rig.client("queue")
    client.create("a")
    client.fill("a", [b"x", b"y"])
    rig.client().ask(control.CursorOpen(group="g", resource="a"), control.CursorOpened)
    consumer(client, "a")
    rig.sleep(1)
    rig.stop()
    fail_opens(rig)
    rig.start()
    (cursor,) = rig.client().ask(control.CursorDescribe(), control.CursorList).cursors
    assert (cursor.position, cursor.next, cursor.behind, cursor.bytes_behind) == (1, None, None, None)
    (queue,) = rig.client("queue").ask(control.QueueDescribe(), control.QueueList).queues
    assert (queue.position, queue.next, queue.unsettled, queue.ready) == (1, None, None, None)


def attempts(rig: Rig, work: Callable[[], object]) -> int:
    """How often the disk was asked to open a log."""
    count = 0
    perform = rig.storage.perform

    def counting(action: DiskAction) -> object:
        nonlocal count
        count += isinstance(action, OpenLog)
        return perform(action)

    rig.storage.perform = counting  # type: ignore[method-assign]
    work()
    rig.storage.perform = perform  # type: ignore[method-assign]
    return count


def test_a_failing_disk_is_retried_with_one_log_and_growing_delays(rig: Rig, many: Client) -> None:
    fail_opens(rig)
    rig.let_go()
    assert attempts(rig, lambda: rig.sleep(broker_limits.OPEN_RETRY_S, 0.1)) <= 1
    rig.sleep(60)
    assert 5 <= attempts(rig, lambda: rig.sleep(10 * broker_limits.OPEN_RETRY_TOP_S)) <= 11


def test_a_request_retries_a_failed_log_after_a_delay(rig: Rig, many: Client) -> None:
    fail_opens(rig)
    rig.let_go()
    rig.sleep(60)
    assert attempts(rig, lambda: many.describe("r13")) == 1
    assert attempts(rig, lambda: [many.describe("r13") for _ in range(10)]) == 0
    rig.disk.heal()
    rig.mono += broker_limits.OPEN_RETRY_S
    assert many.describe("r13").next == 2


def test_a_log_on_a_bad_sector_does_not_keep_others_from_opening(rig: Rig, many: Client) -> None:
    fail_opens(rig, "r00", errno.EIO)
    assert attempts(rig, rig.let_go) < 2 * len(NAMES)
    assert rig.broker.opening.unopened == 1
    assert many.describe("r00").state == "stopped"
    assert many.read("r01") == [b"r01"]


def test_opening_a_damaged_log_is_not_retried(rig: Rig) -> None:
    client = rig.client()
    client.create("a")
    client.fill("a", [b"x", b"y"])
    found = rig.broker.parts.resources.need("/", "a")
    directory = f"/data/{found.intake.key}"
    (segment, *_) = [x for x in rig.disk.list_dir(directory) if x.endswith(".segment")]
    rig.stop()
    rig.disk.flip(f"{directory}/{segment}", 64 + 70)
    rig.start()
    client = rig.client()
    assert attempts(rig, lambda: rig.sleep(60)) == 0
    assert attempts(rig, lambda: client.describe("a")) == 0
    assert "damaged" in (client.describe("a").trouble or "")


def test_a_log_that_opens_late_is_logged_once(
    rig: Rig, many: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mtl.broker")
    fail_opens(rig, "r03")
    rig.let_go()
    rig.sleep(60)
    rig.disk.heal()
    rig.sleep(2 * broker_limits.OPEN_RETRY_TOP_S)
    logged = [(x.levelname, x.message.partition(": ")[0]) for x in caplog.records]
    key = rig.broker.parts.resources.need("/", "r03").intake.key
    assert logged == [("ERROR", f"{key} is stopped"), ("INFO", f"{key} is open")]


# --- deleting -----------------------------------------------------------------------------------------------


def test_a_resource_whose_log_does_not_open_can_be_deleted(rig: Rig, many: Client) -> None:
    fail_opens(rig)
    rig.let_go()
    many.ask(control.ResourceDelete(resource="r13"), control.Ok)
    rig.disk.heal()
    rig.sleep(2 * broker_limits.OPEN_RETRY_TOP_S)
    assert rig.broker.opening.unopened == 0
    many.create("r13")
    assert many.sequences("r13") == (1, 1)


def test_a_log_is_not_opened_during_a_delete_but_after_a_failed_one(rig: Rig, many: Client) -> None:
    fail_opens(rig)
    rig.let_go()
    rig.disk.heal()
    rig.hold(Save)
    asked = many.begin(control.ResourceDelete(resource="r13"))
    if not rig.held:  # it was opened for the request
        raise AssertionError("nothing is being saved")
    rig.sleep(2 * broker_limits.OPEN_RETRY_TOP_S)

    def full(when: str) -> None:
        if when == "begin":
            rig.store.hook = lambda _: None
            raise refuse(full=True)

    rig.store.hook = full
    rig.let_go()
    with pytest.raises(Refused, match="storage"):
        asked.reply(control.Ok)
    rig.sleep(2 * broker_limits.OPEN_RETRY_TOP_S)
    assert many.read("r13") == [b"r13"]


# --- numbers of writers -------------------------------------------------------------------------------------


def test_a_named_writer_of_all_resources_waits_for_all_its_numbers(rig: Rig) -> None:
    """With numbers that are too low its new contents would be confirmed as duplicates, without being stored."""
    client = rig.client()
    client.create("a", "b")
    flow = client.flow(client.writer(writer="w"))
    flow.content(1, b"1", "b")
    flow.content(2, b"2", "a")
    rig.stop()
    fail_opens(rig, "a")
    rig.start()
    client = rig.client()
    request = control.ConnectionWriter(resources=[], confirm="full", writer="w")
    refused = client.refused(request)
    assert (refused.status, refused.reason) == (503, control.STORAGE)
    rig.disk.heal()
    rig.mono += broker_limits.OPEN_RETRY_S
    assert client.ask(request, control.DataLease).last == {"a": 2, "b": 1}


# --- stages and commits -------------------------------------------------------------------------------------


def test_a_stage_is_committed_when_its_logs_are_open(rig: Rig, client: Client) -> None:
    client.create("a", "b")
    stage = staged(client, 1, {"a": [b"x"], "b": [b"y"]})
    rig.stop()
    rig.start(OpenLog)
    client = rig.client()
    request = client.begin(control.StageDescribe())
    asked = begin(rig.client(), 1, stage)
    assert not request.answered
    assert not asked.answered
    rig.let_go()
    request.reply(control.StageList)
    asked.reply(control.Committed)
    assert visible(client) == {"a": [b"x"], "b": [b"y"]}


def test_a_stage_continues_with_the_logs_already_created(rig: Rig, client: Client) -> None:
    client.create("a", "b")
    lease = client.stage("app", 1, "a", "b")
    client.flow(lease).content(1, b"x", "a")
    rig.kill()
    client = rig.client()
    (stage,) = client.ask(control.StageDescribe(), control.StageList).stages
    assert stage.contents == {"a": 1}
    again = client.stage("app", 1, "a", "b", id=lease.stage)
    assert again.last == {"a": 1}
    client.flow(again).content(2, b"y", "b")
    client.close_lease(again)
    client.ask(commit(1, stage.stage), control.Committed)
    assert visible(client) == {"a": [b"x"], "b": [b"y"]}


@pytest.mark.parametrize("what", ["stages/", "resources/"])
def test_a_stage_whose_logs_do_not_open_is_not_committed_in_part(rig: Rig, client: Client, what: str) -> None:
    client.create("a", "b")
    stage = staged(client, 1, {"a": [b"x"], "b": [b"y"]})
    rig.stop()
    rig.disk.fail("open", count=1_000_000, when=lambda path: what in path, error=errno.ENOSPC)
    rig.start()
    client = rig.client()
    refused = client.refused(commit(1, stage))
    assert (refused.status, refused.reason) == (503, control.STORAGE)
    rig.disk.heal()
    rig.sleep(2 * broker_limits.OPEN_RETRY_TOP_S)
    client.ask(commit(1, stage), control.Committed)
    assert visible(client) == {"a": [b"x"], "b": [b"y"]}


def test_a_stage_may_expire_before_its_logs_open(rig: Rig, client: Client) -> None:
    client.create("a")
    staged(client, 1, {"a": [b"x"]})
    rig.stop()
    rig.disk.fail("open", count=1_000_000, when=lambda path: "stages/" in path, error=errno.ENOSPC)
    rig.start()
    rig.sleep(broker_limits.SEALED_STAGE_S + broker_limits.EXPIRY_CHECK_S, step=3600)
    rig.sleep(2 * broker_limits.EXPIRY_CHECK_S)
    assert leavings(rig) == []
    assert rig.broker.opening.unopened == 0


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("what", ["stages/", "resources/", "one"])
def test_an_interrupted_commit_completes_when_its_logs_open(
    rig: Rig, client: Client, what: str, error: int
) -> None:
    """Until then the broker serves, and no part of the commit is visible."""
    client.create("a", "b", "c")
    client.fill("a", [b"before"])
    stage = staged(client, 1, {"a": [b"x"], "b": [b"y"]})
    rig.hold(Publish)
    begin(client, 1, stage)
    rig.let_go(1)  # `a` has its part
    if what == "one":
        what = rig.broker.parts.resources.need("/", "b").intake.key
    rig.disk.crash(power=False)
    rig.store.crash(landed=False)
    rig.disk.fail("open", count=1_000_000, when=lambda path: what in path, error=error)
    rig.start()
    client = rig.client()
    assert rig.broker.ready
    assert client.refused(commit(1, stage)).status == 503
    for found in client.ask(
        control.ResourceDescribe(resources=["a", "b"]), control.DescriptionList
    ).resources:
        assert found.state == "stopped"
        assert found.known_next in {None, 2 if found.resource == "a" else 1}
    rig.sleep(30)
    flow = client.flow(client.writer())
    flow.content(1, b"no", "a")
    assert flow.sent() == [commands.Reject(1, False, True)]
    rig.disk.heal()
    rig.sleep(2 * broker_limits.OPEN_RETRY_TOP_S)
    assert visible(client) == {"a": [b"before", b"x"], "b": [b"y"]}
    assert applications(client)["app"].version == 1
    assert leavings(rig) == []
    client.fill("a", [b"after"])
    assert client.describe("a").state == "serving"


def test_a_commit_is_redone_before_other_logs_are_opened(rig: Rig, client: Client) -> None:
    client.create("a", "b", *NAMES)
    stage = staged(client, 1, {"a": [b"x"], "b": [b"y"]})
    rig.hold(Publish)
    begin(client, 1, stage)
    rig.disk.crash(power=False)
    rig.store.crash(landed=False)
    rig.start(OpenLog)
    assert (rig.broker.ready, under_way(rig)) == (False, ["a", "b"])
    rig.let_go(4)
    assert rig.broker.ready
    assert rig.broker.opening.unopened >= len(NAMES)
