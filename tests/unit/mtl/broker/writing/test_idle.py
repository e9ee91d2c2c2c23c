"""The end of an idle log is recorded; damage to its last group is detected from then on."""

from __future__ import annotations

import pytest

from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.log.store import Store
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


def test_the_end_of_a_busy_log_is_not_recorded(rig: Rig, client: Client) -> None:
    for _ in range(4):
        client.fill("a", [b"x"])
        rig.sleep(limits.MARK_IDLE_S / 2)
    assert end(rig) == 1
    rig.sleep(IDLE)
    assert end(rig) == 5


def test_the_end_of_an_idle_log_is_recorded_once(rig: Rig, client: Client) -> None:
    client.fill("a", [b"x"])
    rig.sleep(IDLE)
    assert not rig.broker.parts.idle_logs.has_logs
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


@pytest.mark.parametrize("damage", ["flipped bits", "cut"])
def test_damage_after_an_idle_time_and_a_kill_stops_the_resource(
    rig: Rig, client: Client, damage: str
) -> None:
    """Two flipped bits look like an unfinished write; its sequences were assigned a second time."""
    client.fill("a", [b"x"])
    client.fill("a", [b"y"])
    rig.sleep(IDLE)
    path = f"{directory(rig)}/{files(rig.disk, directory(rig))[-1]}"
    rig.crash(power=False)
    if damage == "cut":
        rig.disk.shorten(path, 128)
    else:
        at = rig.disk.content(path).rindex(b"MTLc")
        for octet in (70, 90):
            rig.disk.flip(path, at + octet)
    rig.start()
    found = rig.client().describe("a")
    assert found.state == "stopped"
    assert "affected" in (found.trouble or "")


def test_a_held_log_is_recorded_later(rig: Rig, client: Client) -> None:
    client.fill("a", [b"x"])
    held: list[str] = []
    resource = rig.broker.parts.resources.find("/", "a")
    assert resource is not None
    resource.intake.hold(lambda: held.append("held"))
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
