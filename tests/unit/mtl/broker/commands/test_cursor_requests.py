"""Cursor.Reset and the lag of Cursor.Describe. The other requests for a cursor are in test_cursors.py."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mtl.errors import DataLoss, Fenced
from mtl.storage.api import Save
from mtl.wire import control
from tests.support.core import START_US, Client, Rig
from tests.support.faulty_store import FaultyStore, refuse
from tests.support.texts import in_order


@pytest.fixture(autouse=True)
def resource(rig: Rig, client: Client) -> None:
    """Contents 1 to 3 at 0 s, 4 to 6 at 10 s, 7 to 9 at 20 s; it is 30 s now. A group stands at 4."""
    client.create("a")
    flow = client.flow(client.writer("a", packed=True))
    for first in (1, 4, 7):
        flow.pack(first, [b"x"] * 3)
        rig.sleep(10)
    client.ask(control.CursorOpen(group="g", resource="a", from_=4), control.CursorOpened)


def hold(client: Client, **more: Any) -> control.DataLease:
    return client.reader("a", group="g", holder="driver", start=more.pop("start", None), **more)


def cursor(client: Client) -> control.CursorInfo:
    (found,) = client.ask(control.CursorDescribe(group="g"), control.CursorList).cursors
    return found


def reset(to: Any = None, **more: Any) -> control.CursorReset:
    return control.CursorReset(group="g", resource="a", to=to, **more)


def at(seconds: int) -> int:
    return START_US + seconds * 1_000_000


# --- lag ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("position", "behind", "age"), [(1, 9, 30), (4, 6, 20), (5, 5, 20), (7, 3, 10)])
def test_describe_gives_the_lag_in_contents_octets_and_seconds(
    client: Client, position: int, behind: int, age: int
) -> None:
    client.ask(reset(position), control.CursorWasReset)
    found = cursor(client)
    assert found.behind == behind
    assert found.seconds_behind == pytest.approx(age, abs=1)
    located = client.ask(control.ResourceLocate(resource="a", start=position), control.Located)
    assert found.bytes_behind == located.bytes
    assert located.timestamp == pytest.approx(at(30 - age), abs=1_000_000)


def test_a_group_at_the_end_has_no_lag(rig: Rig, client: Client) -> None:
    client.ask(reset("latest"), control.CursorWasReset)
    rig.sleep(100)
    found = cursor(client)
    assert (found.behind, found.bytes_behind, found.seconds_behind) == (0, 0, 0.0)


# --- reset --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "position"),
    [
        (reset("earliest"), 1),
        (reset("latest"), 10),
        (reset(2), 2),
        (reset(timestamp=at(9)), 4),
        (reset(timestamp=at(99)), 10),
    ],
)
def test_a_reset_position_survives_a_crash(
    rig: Rig, client: Client, request_: control.CursorReset, position: int
) -> None:
    found = client.describe("a")
    assert client.ask(request_, control.CursorWasReset) == control.CursorWasReset(
        position=position,
        log_epoch=found.log_epoch if position > 1 else None,
        before=4,
        incarnation=found.incarnation,
    )
    assert cursor(client).position == position
    rig.crash()
    assert hold(rig.client()).from_ == position


@pytest.mark.parametrize(
    ("request_", "status", "reason"),
    [
        (control.CursorReset(group="x", resource="a", to=1), 404, control.UNKNOWN_CURSOR),
        (control.CursorReset(group="g", resource="x", to=1), 404, control.UNKNOWN_RESOURCE),
        (reset(0), 400, control.BAD_ARGUMENTS),
        (reset(11), 409, control.DATA_LOSS),
        (reset(1, incarnation="another"), 409, control.INCARNATION),
    ],
)
def test_a_refused_reset_does_not_move_the_cursor(
    client: Client, request_: control.CursorReset, status: int, reason: str
) -> None:
    refused = client.refused(request_)
    assert (refused.status, refused.reason) == (status, reason)
    assert cursor(client).position == 4


def test_a_reset_to_removed_contents_is_data_loss() -> None:
    rig = Rig(segment_bytes=1_200)
    client = rig.client()
    client.create("a", retention=control.Retention(contents=1))
    client.fill("a", [bytes(1_000)] * 5)
    client.ask(control.CursorOpen(group="g", resource="a", from_="latest"), control.CursorOpened)
    rig.sleep(6)
    assert isinstance(client.refused(reset(1)), DataLoss)
    assert (
        client.ask(reset(timestamp=0), control.CursorWasReset).position == client.describe("a").earliest > 1
    )


def test_a_reset_of_a_held_cursor_is_refused(client: Client) -> None:
    flow = client.flow(hold(client))
    refused = client.refused(reset("earliest"))
    assert (refused.status, refused.reason) == (409, control.IN_USE)
    assert re.search(in_order("'driver'", "force"), refused.message)
    flow.confirm(6)
    assert cursor(client).position == 7


def test_a_forced_reset_fences_the_holder(rig: Rig, client: Client) -> None:
    lease = hold(client)
    flow = client.flow(lease)
    flow.confirm(6)
    other = rig.client()
    assert other.ask(reset("earliest", force=True), control.CursorWasReset).before == 7
    flow.confirm(8)
    assert not flow.ponged()
    fenced = client.refused(control.CursorOpen(group="g", resource="a"))
    assert isinstance(fenced, Fenced)
    assert re.search(in_order("'g'", "'a'", "reset to 1", "'anonymous'"), fenced.message)
    for lost in (
        control.ConnectionReader(
            resources=["a"], group="g", holder="driver", epoch=lease.epoch, confirm="full"
        ),
        control.ConnectionReader(resources=["a"], group="g", epoch=lease.epoch, from_=1),
    ):
        refused = other.refused(lost)
        assert isinstance(refused, Fenced)
        assert re.search(in_order("'g'", "'a'", "reset", "epoch 2", 1), refused.message)
    found = cursor(other)
    assert (found.position, found.held, found.epoch) == (1, False, 2)
    assert hold(other).epoch == 3


def test_a_cursor_can_be_reset_after_its_holders_lease_is_closed(client: Client) -> None:
    client.close_lease(hold(client))
    assert client.ask(reset(2), control.CursorWasReset).position == 2


def test_a_reset_after_the_resource_was_recreated_finds_no_cursor(client: Client) -> None:
    client.ask(control.ResourceDelete(resource="a"), control.Ok)
    client.create("a")
    assert client.refused(reset(1)).reason == control.UNKNOWN_CURSOR  # it went with its resource


def test_a_lease_requested_during_a_reset_starts_at_the_new_position(rig: Rig, client: Client) -> None:
    rig.hold(Save)
    asked = client.begin(reset("earliest"))
    holding = rig.client().begin(
        control.ConnectionReader(resources=["a"], group="g", holder="d", confirm="full")
    )
    assert not asked.answered
    rig.let_go()
    assert asked.reply(control.CursorWasReset).position == 1
    assert holding.reply(control.DataLease).from_ == 1


def test_a_reset_whose_save_fails_is_refused(rig: Rig, client: Client) -> None:
    def full(when: str) -> None:
        raise refuse(full=True)

    rig.store.hook = full
    assert client.refused(reset("earliest")).status == 503
    rig.store.hook = FaultyStore().hook
    assert client.ask(reset("earliest"), control.CursorWasReset).position == 1


def test_a_reset_needs_exactly_one_of_position_and_timestamp() -> None:
    for more in ({}, {"to": 1, "timestamp": 1}):
        with pytest.raises(ValueError, match="one of to and timestamp"):
            reset(**more)
