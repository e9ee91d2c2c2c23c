"""Retention and rolling: metadata first, then the readers' view, then the files; pins of contents and hard limits."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from mtl.broker import limits as broker_limits
from mtl.storage.api import Append, Save, Trim
from mtl.storage.records import CursorRecord, ResourceRecord
from mtl.wire import control
from tests.support.core import Client, Rig
from tests.support.faulty_store import FaultyStore, refuse
from tests.support.texts import in_order

CONTENT = bytes(1_000)
"""With segments of 1,200 octets each content has one of its own."""

HOUR_US = 3_600_000_000


def made(**retention: Any) -> tuple[Rig, Client]:
    rig = Rig(segment_bytes=1_200)
    client = rig.client()
    client.create("a", retention=control.Retention(**retention) if retention else None)
    return rig, client


def write(client: Client, contents: int) -> None:
    client.fill("a", [CONTENT] * contents)


def run(rig: Rig) -> None:
    rig.sleep(broker_limits.RETENTION_CHECK_S + 1)


def earliest(client: Client) -> int:
    return client.describe("a").earliest


def files(rig: Rig) -> list[str]:
    (directory,) = rig.disk.list_dir("/data/resources")
    return [x for x in rig.disk.list_dir(f"/data/resources/{directory}") if x.endswith(".segment")]


# --- policies -----------------------------------------------------------------------------------------------


def test_without_a_policy_no_contents_are_removed() -> None:
    rig, client = made()
    write(client, 20)
    run(rig)
    assert earliest(client) == 1


@pytest.mark.parametrize(("contents", "first"), [(1, 10), (3, 8), (100, 1)])
def test_retention_by_contents(contents: int, first: int) -> None:
    rig, client = made(contents=contents)
    write(client, 10)
    run(rig)
    assert earliest(client) == first
    assert client.read("a") == [CONTENT] * (11 - first)
    assert len(files(rig)) == 11 - first


def test_retention_by_octets() -> None:
    rig, client = made(bytes=4_000)
    write(client, 20)
    run(rig)
    assert 4_000 <= (client.describe("a").bytes or 0) < 4_000 + 2 * 1_400


def test_retention_by_age_rolls_the_newest_segment() -> None:
    """The newest segment is never removed, so it has to be sealed by age first."""
    rig, client = made(age=100.0)
    client.fill("a", [b"small"])
    rig.sleep(300, step=1)
    assert earliest(client) == 2
    assert client.read("a") == []
    client.fill("a", [b"next"])
    assert client.read("a") == [b"next"]


@pytest.mark.parametrize("hours", [26, -26, 24 * 365])
@pytest.mark.parametrize("when", ["running", "stopped", "killed", "off"])
def test_a_clock_jump_removes_no_contents_by_age(
    hours: int, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig, client = made(age=24 * 3600.0)
    write(client, 5)
    rig.sleep(600, step=30)
    if when == "stopped":
        rig.stop()
    elif when == "off":
        rig.machine += "'"
    rig.wall_us += hours * 3600 * 1_000_000
    if when != "running":
        rig.start()
    run(rig)
    assert earliest(rig.client()) == 1
    assert [x for x in caplog.messages if "the wall clock jumped" in x]
    rig.sleep(23 * 3600, step=600)
    assert earliest(rig.client()) == 1
    if hours > 0:  # and it expires when its age is reached
        rig.sleep(2 * 3600, step=600)
        assert earliest(rig.client()) == 6


def test_a_clock_jump_rolls_no_segment() -> None:
    """It would make a new file for every resource of the broker at the same time."""
    rig, client = made(age=24 * 3600.0)
    client.fill("a", [b"small"])
    rig.wall_us += 26 * 3600 * 1_000_000
    run(rig)
    assert len(files(rig)) == 1


@pytest.mark.parametrize("more", [True, False])
@pytest.mark.parametrize("how", ["running", "restarted"])
def test_contents_of_a_clock_that_was_ahead_are_removed_in_time(how: str, more: bool) -> None:
    """Their ages count from the correction at the latest, also if no contents follow."""
    rig, client = made(age=3600.0)
    rig.wall_us += 24 * HOUR_US
    run(rig)
    write(client, 3)
    run(rig)
    if how == "restarted":
        rig.stop()
    rig.wall_us -= 24 * HOUR_US
    if how == "restarted":
        rig.start()
        client = rig.client()
    run(rig)
    if more:
        write(client, 2)
    rig.sleep(3000, step=30)
    assert earliest(client) == 1
    rig.sleep(1500, step=30)
    assert earliest(client) == (6 if more else 4)


def test_a_start_by_time_finds_the_contents_after_a_correction() -> None:
    rig, client = made()
    rig.wall_us += 24 * HOUR_US
    write(client, 3)
    rig.wall_us -= 24 * HOUR_US
    rig.sleep(60)
    corrected = rig.wall_us
    write(client, 2)
    rig.sleep(60)
    for _ in range(2):
        found = rig.client().ask(control.ResourceLocate(resource="a", timestamp=corrected), control.Located)
        assert (found.sequence, found.timestamp) == (4, corrected)
        newest = rig.client().describe("a").newest_time
        assert newest is not None
        assert corrected <= newest < corrected + HOUR_US
        rig.restart()


@pytest.mark.parametrize("hours", [24, -24])
def test_no_correction_of_the_clock_removes_contents_early(hours: int) -> None:
    """The clock is wrong for a while, in either direction."""
    rig, client = made(age=3600.0)
    write(client, 3)
    for by in (hours, -hours):
        rig.wall_us += by * HOUR_US
        rig.sleep(600, step=30)
        write(client, 2)
    rig.sleep(1800, step=30)
    assert earliest(client) == 1


def test_retention_by_age_keeps_young_contents() -> None:
    rig, client = made(age=100.0)
    write(client, 1)
    rig.sleep(60)
    write(client, 1)
    rig.sleep(60)
    assert earliest(client) == 2


def test_the_first_exceeded_bound_of_a_policy_applies() -> None:
    rig, client = made(contents=5, bytes=1 << 30, age=3600.0)
    write(client, 10)
    run(rig)
    assert earliest(client) == 6


# --- groups, pins and the hard limit ------------------------------------------------------------------------


def test_unconfirmed_contents_of_a_group_in_the_policy_are_kept() -> None:
    rig, client = made(contents=1, groups=("g",))
    client.ask(control.CursorOpen(group="g", resource="a"), control.CursorOpened)
    write(client, 10)
    run(rig)
    assert earliest(client) == 1
    lease = client.reader("a", group="g", start=None)
    client.flow(lease).confirm(4)
    client.close_lease(lease)
    run(rig)
    assert earliest(client) == 5


def test_with_groups_as_only_bound_confirmed_contents_are_removed() -> None:
    rig, client = made(groups=("g",))
    write(client, 10)
    run(rig)
    assert earliest(client) == 1, "a group that never opened holds nothing, and asks for nothing"
    lease = client.reader("a", group="g", start="earliest")
    client.flow(lease).confirm(7)
    client.close_lease(lease)
    run(rig)
    assert earliest(client) == 8


@pytest.mark.parametrize("group", ["never-opened", "other"])
def test_groups_without_effect_on_retention(group: str) -> None:
    rig, client = made(contents=1, groups=("never-opened",))
    if group == "other":
        client.ask(control.CursorOpen(group="other", resource="a"), control.CursorOpened)
    write(client, 10)
    run(rig)
    assert earliest(client) == 10


def test_contents_are_removed_only_up_to_a_durable_position() -> None:
    """A crash returns the group to its durable position, whose contents must still exist."""
    rig, client = made(contents=1, groups=("g",))
    lease = client.reader("a", group="g", start="earliest")
    flow = client.flow(lease)
    write(client, 10)

    def full(when: str) -> None:
        raise refuse(full=True)

    rig.store.hook = full
    flow.confirm(9)
    client.close_lease(lease)
    run(rig)
    rig.store.hook = FaultyStore().hook
    rig.crash()
    client = rig.client()
    assert client.reader("a", group="g", start="group").from_ == earliest(client) == 1


def test_a_lease_with_until_pins_its_range() -> None:
    rig, client = made(contents=1)
    write(client, 10)
    lease = client.reader("a", start=3, until=6)
    run(rig)
    assert earliest(client) == 3
    flow = client.flow(lease)
    flow.summon("a")
    assert flow.numbers() == [3, 4, 5]
    flow.confirm(4)
    run(rig)
    assert earliest(client) == 5
    flow.confirm(5)
    run(rig)
    assert earliest(client) == 10, "done with its range it pins nothing, though it lives"


def test_a_holder_pins_its_unconfirmed_contents() -> None:
    rig, client = made(contents=1)
    write(client, 10)
    flow = client.flow(client.reader("a", holder="driver", start=2))
    run(rig)
    assert earliest(client) == 2
    flow.confirm(6)
    run(rig)
    assert earliest(client) == 7


def test_a_reader_without_holder_pins_no_contents() -> None:
    rig, client = made(contents=1)
    write(client, 10)
    client.reader("a", start=1)
    run(rig)
    assert earliest(client) == 10


def test_the_hard_limit_overrides_pins_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    rig, client = made(contents=1, groups=("g",), hard_bytes=5_000)
    client.ask(control.CursorOpen(group="g", resource="a"), control.CursorOpened)
    client.reader("a", start=1, until=50)
    write(client, 20)
    with caplog.at_level(logging.WARNING, "mtl.broker"):
        run(rig)
    assert (client.describe("a").bytes or 0) <= 5_000
    first = earliest(client)
    assert re.search(in_order(f"1 to {first - 1}", first - 1, "group g"), caplog.text)
    assert "which reader" in caplog.text


# --- the order of the steps ---------------------------------------------------------------------------------


def test_metadata_is_saved_before_files_are_removed(caplog: pytest.LogCaptureFixture) -> None:
    rig, client = made(contents=1)
    write(client, 10)
    rig.hold(Save, Trim)
    run(rig)
    assert (earliest(client), len(files(rig))) == (1, 10)
    rig.let_go(1)
    (record,) = [r for r in rig.store.load().records if isinstance(r, ResourceRecord)]
    assert (record.earliest, earliest(client), len(files(rig))) == (10, 10, 10)
    rig.let_go()
    assert len(files(rig)) == 1


def test_files_left_by_a_crash_during_retention_are_removed() -> None:
    rig, client = made(contents=1)
    write(client, 10)
    rig.hold(Trim)
    run(rig)
    assert len(files(rig)) == 10
    rig.crash()
    assert len(files(rig)) == 1
    assert rig.client().sequences("a") == (10, 11)


def test_a_failed_save_of_metadata_keeps_all_contents() -> None:
    rig, client = made(contents=1)
    write(client, 10)

    def full(when: str) -> None:
        raise refuse(full=True)

    rig.store.hook = full
    run(rig)
    assert (earliest(client), len(files(rig))) == (1, 10)
    rig.store.hook = FaultyStore().hook
    write(client, 1)
    run(rig)
    assert earliest(client) == 11


def test_files_that_cannot_be_removed_do_not_affect_readers() -> None:
    rig, client = made(contents=1)
    write(client, 10)
    rig.disk.fail("unlink")
    run(rig)
    assert earliest(client) == 10
    assert client.read("a") == [CONTENT]


def test_retention_continues_after_a_failed_read(caplog: pytest.LogCaptureFixture) -> None:
    """The age of a cold segment is in its index file."""
    rig, client = made(age=10.0)
    write(client, 5)
    rig.restart()
    rig.disk.fail("read", count=1_000)
    run(rig)
    rig.sleep(20)
    assert "retention" in caplog.text
    rig.disk.heal()
    run(rig)
    assert earliest(rig.client()) > 1


def test_a_busy_log_is_skipped_until_the_next_check() -> None:
    rig, client = made(contents=1)
    write(client, 10)
    flow = client.flow(client.writer("a"))
    rig.hold(Append)
    flow.content(1, CONTENT)
    run(rig)
    assert earliest(client) == 1
    rig.let_go()
    run(rig)
    assert earliest(client) == 11


def test_cursors_are_examined_once_per_check_not_per_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, client = made(contents=1)
    for name in ("b", "c"):
        client.create(name, retention=control.Retention(contents=1, groups=("g",)))
        client.fill(name, [CONTENT] * 3)
    client.ask(control.CursorOpen(group="g", resource="b", from_=2), control.CursorOpened)
    looks = 0
    all_cursors = rig.broker.parts.cursors.all

    def counted() -> list[CursorRecord]:
        nonlocal looks
        looks += 1
        return all_cursors()

    monkeypatch.setattr(rig.broker.parts.cursors, "all", counted)
    rig.sleep(broker_limits.RETENTION_CHECK_S)
    assert looks == 1
    assert [client.describe(name).earliest for name in ("b", "c")] == [2, 3]
