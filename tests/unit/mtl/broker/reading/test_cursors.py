"""Groups: cursors, holders, members and fencing. PROTOCOL.md 5.3, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from mtl.broker import limits as broker_limits
from mtl.errors import DataLoss, Fenced, Refused
from mtl.storage.api import Save
from mtl.storage.records import CursorRecord
from mtl.wire import commands, control
from tests.support.core import Client, Rig
from tests.support.faulty_store import FaultyStore, refuse


@pytest.fixture(autouse=True)
def resource(client: Client) -> None:
    client.create("a")
    client.fill("a", [b"%d" % n for n in range(1, 21)])


def hold(
    client: Client, holder: str | None = "driver", group: str | None = "g", **more: Any
) -> control.DataLease:
    return client.reader("a", group=group, holder=holder, start=more.pop("start", None), **more)


def cursor(client: Client, group: str = "g") -> control.CursorInfo:
    (found,) = client.ask(control.CursorDescribe(group=group), control.CursorList).cursors
    return found


def saved(rig: Rig) -> int:
    (record,) = [r for r in rig.store.load().records if isinstance(r, CursorRecord)]
    return record.position


# --- cursors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "position"), [("earliest", 1), ("latest", 21), (7, 7), (21, 21)])
def test_open_creates_a_cursor_or_finds_an_existing_one(client: Client, start: Any, position: int) -> None:
    opened = client.ask(control.CursorOpen(group="g", resource="a", from_=start), control.CursorOpened)
    assert (opened.position, opened.created) == (position, True)
    assert opened.incarnation == client.describe("a").incarnation
    again = client.ask(control.CursorOpen(group="g", resource="a", from_=3), control.CursorOpened)
    assert (again.position, again.created) == (position, False)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (control.CursorOpen(group="g", resource="x"), 404),
        (control.CursorOpen(group="g", resource="a", incarnation="another"), 409),
        (control.CursorOpen(group="g", resource="a", from_=0), 400),
        (control.CursorOpen(group="g", resource="a", from_=22), 409),
        (control.CursorDelete(group="g", resource="a"), 404),
    ],
)
def test_refusals(client: Client, request_: control.Request, status: int) -> None:
    assert client.refused(request_).status == status
    assert client.ask(control.CursorDescribe(), control.CursorList).cursors == []


def test_describe_gives_position_holder_and_epoch(client: Client) -> None:
    flow = client.flow(hold(client))
    flow.confirm(5)
    info = cursor(client)
    assert (info.position, info.next, info.behind, info.held, info.holder, info.epoch) == (
        6,
        21,
        15,
        True,
        "driver",
        1,
    )
    assert 0 < (info.bytes_behind or 0) <= (client.describe("a").bytes or 0)


def test_describe_saves_moved_cursors(rig: Rig, client: Client) -> None:
    client.flow(hold(client)).confirm(5)
    assert saved(rig) == 1
    cursor(client)
    assert saved(rig) == 6


def test_a_moved_cursor_is_saved_within_a_tenth_of_a_second(rig: Rig, client: Client) -> None:
    client.flow(hold(client)).confirm(5)
    rig.sleep(broker_limits.CURSOR_FLUSH_S, step=broker_limits.CURSOR_FLUSH_S)
    assert saved(rig) == 6


def test_describe_waits_for_a_save_in_progress(rig: Rig, client: Client) -> None:
    flow = client.flow(hold(client))
    rig.hold(Save)
    flow.confirm(5)
    rig.sleep(broker_limits.CURSOR_FLUSH_S, step=broker_limits.CURSOR_FLUSH_S)
    asked = client.begin(control.CursorDescribe(group="g"))
    assert not asked.answered
    rig.let_go()
    assert asked.reply(control.CursorList).cursors[0].position == 6


def test_a_failed_save_is_a_refusal_and_is_retried(rig: Rig, client: Client) -> None:
    client.flow(hold(client)).confirm(5)

    def full(when: str) -> None:
        raise refuse(full=True)

    rig.store.hook = full
    assert client.refused(control.CursorDescribe()).status == 503
    rig.store.hook = FaultyStore().hook
    rig.sleep(1, step=broker_limits.CURSOR_FLUSH_S)
    assert saved(rig) == 6


def test_delete_removes_the_cursor_and_ends_its_holder(rig: Rig, client: Client) -> None:
    flow = client.flow(hold(client))
    flow.confirm(5)
    assert client.refused(control.CursorDelete(group="g", resource="a", incarnation="another")).status == 409
    client.ask(control.CursorDelete(group="g", resource="a"), control.Ok)
    assert not flow.ponged()
    assert client.ask(control.CursorDescribe(), control.CursorList).cursors == []
    rig.sleep(1)
    rig.restart()
    assert rig.client().ask(control.CursorDescribe(), control.CursorList).cursors == []


def test_open_during_a_delete_of_the_cursor_is_refused(rig: Rig, client: Client) -> None:
    client.ask(control.CursorOpen(group="g", resource="a"), control.CursorOpened)
    rig.hold(Save)
    deleted = client.begin(control.CursorDelete(group="g", resource="a"))
    assert client.refused(control.CursorOpen(group="g", resource="a")).status == 503
    rig.let_go()
    deleted.reply(control.Ok)
    assert client.ask(control.CursorOpen(group="g", resource="a"), control.CursorOpened).created


def test_a_cursor_whose_delete_fails_remains(rig: Rig, client: Client) -> None:
    client.flow(hold(client)).confirm(5)

    def full(when: str) -> None:
        raise refuse(full=True)

    rig.store.hook = full
    assert client.refused_in_time(control.CursorDelete(group="g", resource="a")).reason == control.STORAGE
    assert client.refused(control.CursorOpen(group="g", resource="a")).reason == control.OVERLOADED
    rig.store.hook = FaultyStore().hook
    rig.sleep(2 * broker_limits.SAVE_RETRY_S)
    assert cursor(client).position == 6
    client.flow(hold(client)).confirm(7)
    assert cursor(client).position == 8


# --- moving -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("confirms", "position"),
    [
        ([(5, True)], 6),
        ([(5, True), (3, True)], 6),
        ([(5, True), (5, True)], 6),
        ([(20, True)], 21),
        ([(21, True)], 1),
        ([(1 << 60, True)], 1),
        ([(0, True)], 1),
        ([(5, False)], 1),
    ],
)
def test_confirm_multiple_moves_the_cursor_of_a_holder_without_summon(
    client: Client, confirms: list[tuple[int, bool]], position: int
) -> None:
    flow = client.flow(hold(client))
    for sequence, multiple in confirms:
        flow.confirm(sequence, multiple)
    assert flow.ponged(), "the Pong says that it was processed"
    assert cursor(client).position == position


@pytest.mark.parametrize(
    ("confirms", "position"),
    [
        ([(1, False)], 2),
        ([(2, False)], 1),
        ([(2, False), (1, False)], 3),
        ([(3, True)], 4),
        ([(12, True)], 13),
    ],
)
def test_a_reader_without_holder_name_holds_its_own_cursor(
    client: Client, confirms: list[tuple[int, bool]], position: int
) -> None:
    flow = client.flow(hold(client, holder=None, window=control.Window(contents=5)))
    flow.summon("a")
    flow.sent()
    for sequence, multiple in confirms:
        flow.confirm(sequence, multiple)
    assert cursor(client).position == position


def test_a_confirm_above_the_sent_contents_credits_only_the_sent_ones(client: Client) -> None:
    flow = client.flow(hold(client, window=control.Window(contents=3)))
    flow.summon("a")
    assert flow.numbers() == [1, 2, 3]
    flow.confirm(10)
    assert flow.numbers() == [4, 5, 6]


def test_a_cursor_may_point_into_a_pack(client: Client) -> None:
    client.create("p")
    client.flow(client.writer("p", packed=True)).pack(1, [b"%d" % n for n in range(5)])
    lease = client.reader("p", group="g", holder="d", packed=True, start=None)
    flow = client.flow(lease)
    flow.confirm(3)
    assert cursor(client).position == 4
    assert client.reader("p", group="g", holder="d", start="group").from_ == 4


def test_a_group_starts_at_its_cursor_and_a_new_one_at_earliest(rig: Rig, client: Client) -> None:
    lease = hold(client)
    assert (lease.from_, lease.position, lease.epoch) == (1, 1, 1)
    client.flow(lease).confirm(7)
    client.close_lease(lease)
    rig.sleep(1)
    rig.crash()
    assert hold(rig.client()).from_ == 8


def test_an_explicit_start_overrides_the_cursor_and_creates_a_new_one(client: Client) -> None:
    lease = hold(client, start=5)
    assert (lease.from_, lease.position) == (5, 5)
    again = hold(client, start=3)
    assert (again.from_, again.position) == (3, 5)
    assert cursor(client).position == 5


def test_a_single_confirm_does_not_move_the_cursor_past_skipped_contents(client: Client) -> None:
    hold(client)
    flow = client.flow(hold(client, start=10))
    flow.confirm(4, multiple=False)
    assert cursor(client).position == 1


def test_cursors_are_limited(rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "MAX_CURSORS", 2)
    for group in ("one", "two"):
        client.ask(control.CursorOpen(group=group, resource="a"), control.CursorOpened)
    refused = client.refused(control.CursorOpen(group="three", resource="a"))
    assert (refused.status, refused.reason) == (503, control.OVERLOADED)
    assert "has 2 cursors, and its limit MAX_CURSORS is 2" in refused.message
    assert (
        client.refused(control.ConnectionReader(resources=["a"], group="three", confirm="full")).status == 503
    )
    assert hold(client, group="two").epoch == 1
    client.ask(control.CursorDelete(group="one", resource="a"), control.Ok)
    client.ask(control.CursorOpen(group="three", resource="a"), control.CursorOpened)


def test_a_cursor_below_earliest_is_data_loss() -> None:
    rig = Rig(segment_bytes=1_200)
    client = rig.client()
    client.create("a", retention=control.Retention(contents=1))
    client.ask(control.CursorOpen(group="g", resource="a"), control.CursorOpened)
    client.fill("a", [bytes(1_000)] * 5)
    rig.sleep(6)
    refused = client.refused(control.ConnectionReader(resources=["a"], group="g", confirm="full"))
    assert isinstance(refused, DataLoss)
    assert client.reader("a", group="g", start="earliest").from_ == client.describe("a").earliest


# --- members ------------------------------------------------------------------------------------------------


def test_confirm_of_a_member_does_not_move_the_cursor(client: Client) -> None:
    lease = hold(client)
    member = client.reader("a", group="g", epoch=lease.epoch, start=1, window=control.Window(contents=3))
    assert (member.epoch, member.position) == (1, None)
    flow = client.flow(member)
    flow.summon("a")
    flow.sent()
    flow.confirm(3)
    assert flow.numbers() == [4, 5, 6]
    assert cursor(client).position == 1


def test_a_member_of_an_older_epoch_is_fenced(rig: Rig, client: Client) -> None:
    epoch = hold(client).epoch
    other = rig.client()
    assert hold(other, "another").epoch == 2
    for asking in (client, rig.client()):
        refused = asking.refused(control.ConnectionReader(resources=["a"], group="g", epoch=epoch, from_=1))
        assert isinstance(refused, Fenced)


def test_a_member_without_a_holder_is_refused(client: Client) -> None:
    assert isinstance(
        client.refused(control.ConnectionReader(resources=["a"], group="g", epoch=1, from_=1)), Fenced
    )


@pytest.mark.parametrize("how", ["restart", "kill", "crash"])
def test_a_returning_holder_keeps_its_epoch_and_members(rig: Rig, client: Client, how: str) -> None:
    epoch = hold(client).epoch
    getattr(rig, how)()
    client = rig.client()
    assert client.reader("a", group="g", epoch=epoch, start=1).epoch == 1
    assert hold(client, epoch=epoch).epoch == 1
    assert client.reader("a", group="g", epoch=epoch, start=1).epoch == 1


# --- fencing ------------------------------------------------------------------------------------------------


def test_a_newer_holder_fences_the_older(rig: Rig, client: Client) -> None:
    lease = hold(client)
    flow = client.flow(lease)
    flow.confirm(3)
    other = rig.client()
    newer = hold(other, "another")
    assert (newer.epoch, newer.position) == (2, 4)
    flow.confirm(9)
    assert not flow.ponged(), "no Pong: that is how it learns"
    assert flow.lease(lease.lease) == 403
    for request in (
        control.ConnectionReader(resources=["a"], group="g", holder="driver", confirm="full"),
        control.CursorOpen(group="g", resource="a"),
    ):
        assert isinstance(client.refused(request), Fenced), "fenced for good, in every request"
    assert cursor(other).position == 4


def test_a_later_holder_in_a_session_that_lost_the_group_is_the_newest_one(rig: Rig, client: Client) -> None:
    """A client keeps its sessions for its next readers."""
    hold(client, "first")
    hold(rig.client(), "second")
    assert hold(client, "third").epoch == 3
    first = control.ConnectionReader(resources=["a"], group="g", holder="first", confirm="full")
    assert isinstance(client.refused(first), Fenced)


def test_a_fenced_session_may_use_other_groups_and_plain_readers(rig: Rig, client: Client) -> None:
    hold(client)
    other = rig.client()
    hold(other, "another")
    assert hold(client, group="h").epoch == 1
    assert client.reader("a").from_ == 1


def test_an_older_holder_is_fenced_under_a_new_session(rig: Rig, client: Client) -> None:
    """The holder names its former epoch, so the broker keeps no session for it."""
    epoch = hold(client).epoch
    hold(rig.client(), "another")
    rig.restart()
    again = control.ConnectionReader(resources=["a"], group="g", holder="driver", epoch=epoch, confirm="full")
    assert isinstance(rig.client().refused(again), Fenced)


def test_of_two_concurrent_holders_the_later_holds(rig: Rig, client: Client) -> None:
    client.ask(control.CursorOpen(group="g", resource="a"), control.CursorOpened)
    clients = [rig.client(), rig.client()]
    rig.hold(Save)
    asked = [
        x.begin(control.ConnectionReader(resources=["a"], group="g", holder=f"d{n}", confirm="full"))
        for n, x in enumerate(clients)
    ]
    rig.let_go()
    former, later = (x.reply(control.DataLease) for x in asked)
    assert (former.epoch, later.epoch) == (1, 2)
    assert isinstance(
        clients[0].refused(control.ConnectionReader(resources=["a"], group="g", epoch=1, from_=1)), Fenced
    )
    assert cursor(client).holder == "d1"


def test_a_holder_whose_save_fails_is_refused(rig: Rig, client: Client) -> None:
    def full(when: str) -> None:
        raise refuse(full=True)

    rig.store.hook = full
    with pytest.raises(Refused, match="storage"):
        hold(client)
    rig.store.hook = FaultyStore().hook
    assert hold(client).position == 1


# --- several leases of one holder ---------------------------------------------------------------------------


def test_a_lease_replaced_after_a_lost_202_does_not_hold_back_the_cursor(rig: Rig, client: Client) -> None:
    hold(client, request_id="r")
    flow = rig.client().flow(hold(rig.client(), request_id="r"))
    flow.confirm(5)
    assert flow.pong() == commands.Pong(6)
    assert cursor(client).position == 6


def test_the_pong_to_a_holder_has_the_position_of_the_cursor(client: Client) -> None:
    flow, other = client.flow(hold(client)), client.flow(hold(client))
    flow.confirm(5)
    assert flow.pong() == commands.Pong(1), "the other lease of the holder has confirmed nothing"
    other.confirm(3)
    assert (other.pong(), flow.pong()) == (commands.Pong(4), commands.Pong(4))


def test_the_pong_to_a_member_or_nameless_holder_has_no_position(client: Client) -> None:
    lease = hold(client)
    member = client.flow(client.reader("a", group="g", epoch=lease.epoch))
    nameless = client.flow(client.reader("a", holder="driver"))
    assert (member.pong(), nameless.pong()) == (commands.Pong(), commands.Pong())


def test_the_cursor_is_the_lowest_position_of_its_holders_leases(rig: Rig, client: Client) -> None:
    other = rig.client()
    flows = [client.flow(hold(client)), other.flow(hold(other))]
    flows[0].confirm(10)
    assert cursor(client).position == 1
    flows[1].confirm(4)
    assert cursor(client).position == 5
    flows[1].confirm(12)
    assert cursor(client).position == 11


def test_a_lease_that_joins_later_counts_from_the_cursor(rig: Rig, client: Client) -> None:
    client.flow(hold(client)).confirm(10)
    other = rig.client()
    later = hold(other)
    assert (later.position, later.epoch) == (11, 1)
    other.flow(later).confirm(12)
    assert cursor(client).position == 11


def test_a_closed_lease_does_not_hold_back_the_cursor(rig: Rig, client: Client) -> None:
    leases = [hold(client), hold(client)]
    flows = [client.flow(x) for x in leases]
    flows[0].confirm(4)
    flows[1].confirm(10)
    client.close_lease(leases[0])
    assert cursor(client).position == 5, "not before the next Confirm"
    flows[1].confirm(11)
    assert cursor(client).position == 12


@pytest.mark.parametrize("end", ["fence", "expire", "end"])
def test_leases_that_end_in_turn_do_not_move_the_cursor(rig: Rig, client: Client, end: str) -> None:
    """A self-join: one side is at 10, the other at 2. The next reader that starts from the group must get 3."""
    flows = [client.flow(hold(client)), client.flow(hold(client))]
    flows[0].confirm(2)
    flows[1].confirm(10)
    if end == "fence":
        hold(rig.client(), "another")
    elif end == "expire":
        rig.sleep(10 * broker_limits.LEASE_UNBOUND_S)
    else:
        for lease in rig.broker.parts.leases:
            rig.broker.parts.leases.end(lease)
    rig.sleep(1)
    rig.crash()
    assert cursor(rig.client()).position == 3


# --- nameless -----------------------------------------------------------------------------------------------


def test_a_nameless_group_ends_with_its_lease(rig: Rig, client: Client) -> None:
    lease = hold(client, group=None, start=5)
    assert (lease.position, lease.epoch) == (5, None)
    flow = client.flow(lease)
    flow.confirm(9)
    assert flow.ponged()
    assert client.ask(control.CursorDescribe(), control.CursorList).cursors == []
    found = rig.broker.parts.leases.find(lease.lease)
    assert found.pinned == 10  # type: ignore[union-attr]
    assert hold(client, group=None, start=5).position == 5


def test_a_holder_without_summon_is_sent_no_contents(client: Client) -> None:
    flow = client.flow(hold(client))
    flow.confirm(3)
    client.fill("a", [b"new"])
    assert flow.sent() == []
    flow.send(commands.Ping())
    assert flow.sent() == [commands.Pong(4)]


# --- epochs (PROTOCOL.md 5.1.1) -----------------------------------------------------------------------------


@pytest.fixture
def behind(rig: Rig, client: Client) -> Client:
    """The record of the group says that it confirmed contents up to 20; the log was restored to its first ten."""
    del client
    other = rig.client()
    other.create("b")
    other.fill("b", [b"x"] * 10)
    logs = rig.disk.copy()
    other.fill("b", [b"y"] * 10)
    flow = other.flow(other.reader("b", group="g", holder="driver"))
    flow.confirm(20)
    rig.stop()
    rig.disk.put_back(logs)
    rig.start()
    client = rig.client()
    client.fill("b", [b"other"] * 5)
    return client


def test_a_cursor_has_the_epoch_of_its_position(client: Client) -> None:
    flow = client.flow(hold(client))
    assert cursor(client).log_epoch is None
    flow.confirm(5)
    assert (cursor(client).position, cursor(client).log_epoch) == (6, client.describe("a").log_epoch)


def test_a_group_whose_position_is_lost_is_refused_with_data_loss(rig: Rig, behind: Client) -> None:
    found = cursor(behind)
    assert (found.position, found.lost, found.behind) == (21, control.Lost(first=11, end=21), 5)
    for request_ in (
        control.ConnectionReader(resources=["b"], confirm="full", group="g", holder="driver"),
        control.CursorOpen(group="g", resource="b"),
    ):
        refused = behind.refused(request_)
        assert isinstance(refused, DataLoss)
        assert (refused.first, refused.end, refused.resume) == (11, 21, 11)
    # A request with an explicit start is granted.
    flow = behind.flow(behind.reader("b", group="g", holder="driver", start=11))
    flow.confirm(13)
    found = cursor(behind)
    assert (found.position, found.lost, found.behind) == (14, None, 2)
    rig.restart()
    assert cursor(rig.client()).position == 14


def test_cursor_open_moves_a_lost_cursor_only_to_a_sequence(behind: Client) -> None:
    opened = behind.ask(control.CursorOpen(group="g", resource="b", from_=11), control.CursorOpened)
    assert (opened.position, opened.created) == (11, True)
    assert (
        behind.ask(control.CursorOpen(group="g", resource="b", from_=3), control.CursorOpened).position == 11
    )


def test_a_reset_resolves_a_lost_position(behind: Client) -> None:
    moved = behind.ask(control.CursorReset(group="g", resource="b", to="earliest"), control.CursorWasReset)
    assert (moved.before, moved.position) == (21, 1)
    assert cursor(behind).lost is None


def test_a_record_without_log_epoch_is_valid(rig: Rig, client: Client) -> None:
    client.flow(hold(client)).confirm(5)
    rig.stop()
    rig.store.rows = {
        key: value.replace(b'"log-epoch"', b'"unknown"') for key, value in rig.store.rows.items()
    }
    rig.start()
    assert hold(rig.client()).from_ == 6
