"""Connection.Reader with positions: one lease that holds several resources. PROTOCOL.md 5.3."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import ValidationError, json

from mtl.broker import limits as broker_limits
from mtl.errors import DataLoss
from mtl.wire import commands, control
from tests.support.core import Client, Rig
from tests.support.core_client import Flow
from tests.support.users import logged_in, rig_with, user

NAMES = ("a", "b", "c")


@pytest.fixture
def filled(client: Client) -> Client:
    client.create(*NAMES)
    for name in NAMES:
        client.fill(name, [b"x"] * 3)
    return client


def holder_of(client: Client, *names: str, at: int = 1, **more: Any) -> control.ConnectionReader:
    positions = {name: control.HeldFrom(from_=at) for name in names}
    wanted: dict[str, Any] = {"holder": "me", "confirm": "full", "positions": positions, **more}
    return control.ConnectionReader(resources=list(names), **wanted)


def hold(client: Client, *names: str, **more: Any) -> control.DataLease:
    return client.ask(holder_of(client, *names, **more), control.DataLease)


def position(client: Client, resource: str, group: str = "g") -> int:
    [cursor] = client.ask(control.CursorDescribe(group=group, resource=resource), control.CursorList).cursors
    return cursor.position


def confirm(flow: Flow, resource: str, sequence: int) -> None:
    flow.send(commands.Confirm(sequence, multiple=True, resource=resource))


def test_a_confirm_moves_the_cursor_of_the_resource_in_its_body(filled: Client) -> None:
    lease = hold(filled, *NAMES, group="g")
    assert (lease.held, lease.unheld) == (dict.fromkeys(NAMES, 1), None)
    flow = filled.flow(lease)
    confirm(flow, "a", 2)
    confirm(flow, "c", 3)
    confirm(flow, "b", 9)  # beyond the end
    confirm(flow, "none", 1)
    flow.confirm(2)  # without a resource
    assert [position(filled, name) for name in NAMES] == [3, 1, 4]
    assert flow.pong() == commands.Pong()


def test_nothing_is_sent_to_a_holder(filled: Client) -> None:
    flow = filled.flow(hold(filled, *NAMES))
    assert flow.summon("a") == 400
    flow.reject(1)
    filled.fill("a", [b"y"])
    assert flow.contents() == []
    assert flow.ponged()


def test_a_resource_that_cannot_be_held_does_not_hinder_the_others(filled: Client) -> None:
    positions = {
        "a": control.HeldFrom(from_=2),
        "b": control.HeldFrom(from_=9),
        "c": control.HeldFrom(from_=1, incarnation="another"),
        "none": control.HeldFrom(from_=1),
    }
    request = control.ConnectionReader(
        resources=list(positions), holder="me", confirm="full", positions=positions
    )
    lease = filled.ask(request, control.DataLease)
    assert lease.held == {"a": 0}
    unheld = {name: found.error(name) for name, found in (lease.unheld or {}).items()}
    assert {name: error.reason for name, error in unheld.items()} == {
        "b": control.DATA_LOSS,
        "c": control.INCARNATION,
        "none": control.UNKNOWN_RESOURCE,
    }
    loss = unheld["b"]
    assert isinstance(loss, DataLoss)
    assert (loss.first, loss.end, loss.resume) == (4, 9, 9)


@pytest.mark.parametrize("group", [None, "g"])
def test_retention_keeps_what_is_held(group: str | None) -> None:
    rig = Rig(segment_bytes=1_200)
    client = rig.client()
    groups = () if group is None else (group,)
    client.create(*NAMES, retention=control.Retention(contents=1, groups=groups))
    flow = client.flow(hold(client, "a", "b", group=group))
    for name in NAMES:
        client.fill(name, [bytes(1_000)] * 1)
        client.fill(name, [bytes(1_000)] * 1)
        client.fill(name, [bytes(1_000)] * 1)
    confirm(flow, "b", 2)
    rig.sleep(3 * broker_limits.RETENTION_CHECK_S)
    earliest = [client.describe(name).earliest for name in NAMES]
    assert earliest[0] == 1
    assert min(earliest[1:]) > 1


def test_another_holder_fences_the_lease_of_all_resources(rig: Rig, filled: Client) -> None:
    flow = filled.flow(hold(filled, "a", "b", group="g"))
    other = rig.client()
    taken = hold(other, "b", "c", group="g", holder="other")
    assert taken.held == {"b": 2, "c": 1}
    assert not flow.ponged()
    refused = filled.refused(holder_of(filled, "a", "b", group="g"))
    assert (refused.status, refused.reason) == (409, control.FENCED)


def test_leases_of_one_holder_share_its_holdings(rig: Rig, filled: Client) -> None:
    first = filled.flow(hold(filled, "a", "b", group="g"))
    second = filled.flow(hold(filled, "b", "c", group="g"))
    confirm(first, "b", 3)
    assert position(filled, "b") == 1
    confirm(second, "b", 2)
    assert position(filled, "b") == 3
    reader = filled.flow(filled.reader("b", group="g", holder="me", confirm="full"))
    assert [flow.ponged() for flow in (first, second, reader)] == [True] * 3


def test_the_deletion_of_a_resource_leaves_the_others_held(rig: Rig, filled: Client) -> None:
    flow = filled.flow(hold(filled, *NAMES, group="g"))
    filled.ask(control.ResourceDelete(resource="a"), control.Ok)
    filled.create("a")
    confirm(flow, "a", 1)
    confirm(flow, "b", 2)
    assert position(filled, "b") == 3
    assert filled.ask(control.CursorDescribe(resource="a"), control.CursorList).cursors == []
    for name in ("b", "c"):
        filled.ask(control.ResourceDelete(resource=name), control.Ok)
    assert not flow.ponged()
    assert len(rig.broker.parts.leases) == 0


def test_a_repeated_request_replaces_the_lease(rig: Rig, filled: Client) -> None:
    first = filled.flow(hold(filled, "a", group="g", request_id="one"))
    second = filled.flow(hold(filled, "a", "b", group="g", request_id="one"))
    assert (first.ponged(), second.ponged(), len(rig.broker.parts.leases)) == (False, True, 1)
    confirm(second, "a", 3)
    assert position(filled, "a") == 4


def test_members_have_the_epoch_of_their_resource(filled: Client) -> None:
    lease = hold(filled, "a", "b", group="g")
    member = filled.ask(
        control.ConnectionReader(resources=["a"], confirm="full", group="g", epoch=(lease.held or {})["a"]),
        control.DataLease,
    )
    assert member.epoch == 1


def test_a_closed_lease_leaves_no_state(rig: Rig, filled: Client) -> None:
    filled.close_lease(hold(filled, *NAMES, group="g"))
    parts = rig.broker.parts
    assert (len(parts.leases), parts.readers._of) == (0, {})
    assert all(parts.cursors.holding(("/", "g", name)) is None for name in NAMES)


@pytest.mark.parametrize(
    "wrong",
    [
        {"resources": ["a"], "positions": {"b": {"from": 1}}, "holder": "me"},
        {"resources": ["a", "b"], "positions": {"b": {"from": 1}}, "holder": "me"},
        {"resources": [], "positions": {}, "holder": "me"},
        {"resources": ["a"], "positions": {"a": {"from": 0}}, "holder": "me"},
        {"resources": ["a"], "positions": {"a": {"from": 1}}},
    ],
)
def test_positions_belong_to_the_resources_of_a_holder(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        json.decode(json.encode(wrong), type=control.ConnectionReader)


def test_profiles_without_groups_have_no_holders(rig: Rig, filled: Client) -> None:
    for profile in ("queue", "test"):
        other = rig.client(profile)
        confirm_ = "none" if profile == "test" else "full"
        refused = other.refused(holder_of(other, "a", confirm=confirm_))
        assert refused.status in {404, 501}


def test_a_holder_needs_the_right_on_all_resources() -> None:
    rig = rig_with(user("admin", "secret"), user("me", "secret", "read a"))
    logged_in(rig, "admin").create("a", "b")
    me = logged_in(rig, "me")
    assert me.refused(holder_of(me, "a", "b")).status == 403
    assert hold(me, "a").held == {"a": 0}


def test_cursors_of_many_resources_are_made_with_one_write(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"r{number:03}" for number in range(200)]
    client.create(*names)
    outbox = rig.broker.parts.outbox
    written: list[int] = []
    save = outbox.save

    def count(records: Any, *rest: Any) -> Any:
        written.append(len(records))
        return save(records, *rest)

    monkeypatch.setattr(outbox, "save", count)
    assert len(hold(client, *names, group="g").held or {}) == 200
    assert written == [200]
