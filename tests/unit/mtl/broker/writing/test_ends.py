"""The end of a log is recorded, idle or under load; a loss of contents before it is detected from then on."""

from __future__ import annotations

import re

import pytest

from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.log.store import Store
from mtl.log.verify import verify_log
from mtl.storage.api import Mark
from tests.support.core import Client, Rig
from tests.support.logs import files

IDLE = limits.MARK_IDLE_S + limits.MARK_CHECK_S


def directory(rig: Rig, name: str = "a") -> str:
    resource = rig.broker.parts.resources.find("/", name)
    assert resource is not None
    return f"/data/{resource.intake.key}"


def end(rig: Rig, name: str = "a") -> int:
    return Store(rig.disk, directory(rig, name)).manifest().end


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def client(rig: Rig) -> Client:
    client = rig.client()
    client.create("a", "b")
    return client


def test_the_end_of_an_idle_log_is_recorded(rig: Rig, client: Client) -> None:
    client.fill("a", [b"x", b"y"])
    assert end(rig) == 1
    rig.sleep(IDLE)
    assert end(rig) == 3
    assert end(rig, "b") == 1


def test_the_end_of_a_log_with_few_contents_is_recorded_when_it_is_idle(rig: Rig, client: Client) -> None:
    for _ in range(4):
        client.fill("a", [b"x"])
        rig.sleep(limits.MARK_IDLE_S / 2)
    assert end(rig) == 1
    rig.sleep(IDLE)
    assert end(rig) == 5


def load(rig: Rig, client: Client, groups: int, name: str = "a", seconds: float = 0.02) -> None:
    """Groups of one content, one after the other."""
    for _ in range(groups):
        client.fill(name, [b"x"])
        rig.sleep(seconds)


def test_the_end_of_a_log_under_load_follows_its_contents(rig: Rig, client: Client) -> None:
    unrecorded = 0
    for number in range(2, 202):
        load(rig, client, 1)
        unrecorded = max(unrecorded, number - end(rig))
    assert end(rig) > 150
    assert unrecorded <= limits.MARK_GROUPS


def test_the_end_of_a_log_under_load_is_recorded_rarely(rig: Rig, client: Client) -> None:
    """Groups without a sync of the manifest take a step less than those with one."""
    load(rig, client, 1)
    ends = set()
    for _ in range(200):
        load(rig, client, 1, seconds=0.001)
        ends.add(end(rig))
    assert len(ends) == 1  # 0.2 s
    load(rig, client, 200, seconds=0.01)
    steps = rig.disk.steps
    load(rig, client, 1)
    one = rig.disk.steps - steps
    steps = rig.disk.steps
    load(rig, client, 100, seconds=0.01)
    assert rig.disk.steps - steps < 120 * one


def test_the_end_is_recorded_after_many_octets(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MARK_OCTETS", 50_000)
    for _ in range(3):
        client.fill("a", [bytes(20_000)])
        assert end(rig) == 1
    client.fill("a", [bytes(20_000)])
    assert end(rig) == 5


def test_a_log_of_durability_os_is_not_synced_under_load(rig: Rig, client: Client) -> None:
    client.create("os", durability="os")
    load(rig, client, 200, "os")
    assert end(rig, "os") == 1
    rig.sleep(IDLE)
    assert end(rig, "os") == 201


def test_records_of_ends_under_load_are_bounded(
    monkeypatch: pytest.MonkeyPatch, rig: Rig, client: Client
) -> None:
    monkeypatch.setattr(broker_limits, "MARKS_AT_ONCE", 0)
    rig.sleep(limits.MARK_CHECK_S)
    load(rig, client, 100)
    rig.run()
    assert end(rig) == 1
    monkeypatch.setattr(broker_limits, "MARKS_AT_ONCE", 1)
    load(rig, client, 100)
    assert end(rig) > 150


def test_a_cut_segment_under_load_is_reported_with_its_contents(rig: Rig, client: Client) -> None:
    load(rig, client, 200)
    path = f"{directory(rig)}/{files(rig.disk, directory(rig))[-1]}"
    rig.crash(power=False)
    recorded = end(rig)
    rig.disk.shorten(path, len(rig.disk.content(path)) // 2)
    rig.start()
    found = rig.client().describe("a")
    assert found.state == "stopped"
    first = int(re.findall(r"contents (\d+) to", found.trouble or "")[0])
    assert 50 < first < 150
    lost = f"contents {first} to {recorded - 1} are affected (at least {recorded - first:,} in all)"
    assert lost in (found.trouble or "")
    (problem,) = (x for report in verify_log(rig.disk, directory(rig)) for x in report.problems)
    assert (problem.first, problem.end) == (first, recorded)
    assert lost in problem.message


def test_the_end_of_an_idle_log_is_recorded_once(rig: Rig, client: Client) -> None:
    client.fill("a", [b"x"])
    rig.sleep(IDLE)
    assert not rig.broker.parts.ends.any_unrecorded
    steps = rig.disk.steps
    rig.sleep(3 * IDLE)
    assert rig.disk.steps == steps


def test_a_failed_record_of_the_end_is_retried(rig: Rig, client: Client) -> None:
    client.fill("a", [b"x"])
    rig.disk.fail("create", when=lambda path: "manifest" in path)
    rig.sleep(IDLE)
    assert end(rig) == 1
    assert client.describe("a").state == "serving"
    rig.sleep(IDLE + limits.MARK_CHECK_S)
    assert end(rig) == 2


def test_concurrent_records_of_ends_are_bounded(
    monkeypatch: pytest.MonkeyPatch, rig: Rig, client: Client
) -> None:
    monkeypatch.setattr(broker_limits, "MARKS_AT_ONCE", 1)
    for name in ("a", "b"):
        client.fill(name, [b"x"])
    rig.sleep(limits.MARK_IDLE_S)
    assert (end(rig, "a"), end(rig, "b")) == (2, 1)
    rig.sleep(limits.MARK_CHECK_S)
    assert (end(rig, "a"), end(rig, "b")) == (2, 2)


@pytest.mark.parametrize("damage", ["flipped bit", "cut"])
def test_damage_after_an_idle_time_and_a_kill_stops_the_resource(
    rig: Rig, client: Client, damage: str
) -> None:
    """Either looks like an unfinished write, whose sequences are assigned a second time."""
    client.fill("a", [b"x"])
    client.fill("a", [b"y"])
    rig.sleep(IDLE)
    path = f"{directory(rig)}/{files(rig.disk, directory(rig))[-1]}"
    rig.crash(power=False)
    if damage == "cut":
        rig.disk.shorten(path, 128)
    else:
        rig.disk.flip(path, rig.disk.content(path).rindex(b"MTLc") + 70)
    rig.start()
    found = rig.client().describe("a")
    assert found.state == "stopped"
    assert "affected" in (found.trouble or "")


def test_a_held_log_is_recorded_later(rig: Rig, client: Client) -> None:
    client.fill("a", [b"x"])
    held: list[str] = []
    resource = rig.broker.parts.resources.find("/", "a")
    assert resource is not None
    resource.intake.hold().when_known(lambda: held.append("held"))
    rig.sleep(IDLE)
    assert end(rig) == 1
    resource.intake.release()
    rig.sleep(IDLE + limits.MARK_CHECK_S)
    assert end(rig) == 2


def test_an_idle_stage_can_be_committed_at_any_time(rig: Rig, client: Client) -> None:
    """An action in progress on one of its logs would delay the commit."""
    stage = client.staged("app", 1, "a", [b"x"])
    rig.hold(Mark)
    rig.sleep(IDLE)
    assert not client.commit("app", 1, stage).already
    rig.let_go()
    assert client.read("a") == [b"x"]
