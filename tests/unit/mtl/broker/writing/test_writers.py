"""Contents of writers, and their Confirms and Rejects: PROTOCOL.md 5.4, rule by rule."""

from __future__ import annotations

import errno

import pytest

from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.storage.api import Append
from mtl.wire import commands, control
from mtl.wire.fields import EMPTY, encode_table
from tests.support.core import Client, Rig, packed

AGAIN, NEVER = True, False
_U64_MAX = (1 << 64) - 1


def reject(number: int, recycle: bool) -> commands.Reject:
    return commands.Reject(number, False, recycle)


def confirm(number: int) -> commands.Confirm:
    return commands.Confirm(number, True)


@pytest.fixture(autouse=True)
def resources(client: Client) -> None:
    client.create("a", "b")


# --- the number that comes next -----------------------------------------------------------------------------


@pytest.mark.requirement("MTL-86", "MTL-87", "MTL-90")
def test_a_durable_content_is_confirmed(client: Client) -> None:
    flow = client.flow(client.writer("a"))
    flow.content(1, b"x")
    assert flow.sent() == [confirm(1)]
    assert client.read("a") == [b"x"]


def test_contents_that_arrive_together_share_one_group_and_one_confirm(rig: Rig, client: Client) -> None:
    flow = client.flow(client.writer("a"))
    for number in (1, 2, 3):
        flow.queue(*commands.encode(commands.Content(number, "", EMPTY, b"%d" % number)))
    rig.run()
    assert flow.sent() == [confirm(3)]


@pytest.mark.parametrize(
    ("numbers", "answers", "stored"),
    [
        ([2], [reject(2, AGAIN)], []),
        ([1, 3, 4, 5], [confirm(1), reject(3, AGAIN)], [1]),
        (
            [1, 3, 4, 2, 3, 4],
            [confirm(1), reject(3, AGAIN), confirm(2), confirm(3), confirm(4)],
            [1, 2, 3, 4],
        ),
        ([1, 3, 2, 5], [confirm(1), reject(3, AGAIN), confirm(2), reject(5, AGAIN)], [1, 2]),
        ([0], [reject(0, NEVER)], []),
        ([1, 0, 2], [confirm(1), reject(0, NEVER), confirm(2)], [1, 2]),
    ],
)
def test_the_first_number_behind_a_gap_is_rejected_once(
    client: Client, numbers: list[int], answers: list[commands.Command], stored: list[int]
) -> None:
    flow = client.flow(client.writer("a"))
    for number in numbers:
        flow.content(number, b"%d" % number)
    assert flow.sent() == answers
    assert client.read("a") == [b"%d" % n for n in stored]


def test_the_reject_of_a_pack_behind_a_gap_has_its_last_number(client: Client) -> None:
    flow = client.flow(client.writer("a", packed=True))
    flow.pack(5, [b"x", b"y", b"z"])
    assert flow.sent() == [reject(7, AGAIN)]


@pytest.mark.requirement("MTL-85")
def test_without_confirmation_numbers_are_ignored(client: Client) -> None:
    flow = client.flow(client.writer("a", confirm="none"))
    for number in (7, 3, 3, 0, _U64_MAX):
        flow.content(number, b"%d" % (number % 10))
    assert flow.sent() == []
    assert client.read("a") == [b"7", b"3", b"3", b"0", b"5"]


# --- duplicates ---------------------------------------------------------------------------------------------


def test_a_duplicate_of_a_durable_content_is_confirmed_and_not_appended(client: Client) -> None:
    flow = client.flow(client.writer("a"))
    flow.content(1, b"x")
    flow.content(1, b"x")
    assert flow.sent() == [confirm(1), confirm(1)]
    assert client.read("a") == [b"x"]


def test_a_duplicate_of_a_pending_content_is_confirmed_when_the_original_is_durable(
    rig: Rig, client: Client
) -> None:
    flow = client.flow(client.writer("a"))
    rig.hold(Append)
    flow.content(1, b"x")
    flow.content(1, b"x")
    assert flow.sent() == []
    rig.let_go()
    assert flow.sent() == [confirm(1)]
    assert client.read("a") == [b"x"]


def test_a_duplicate_does_not_hide_the_confirm_of_a_higher_number(rig: Rig, client: Client) -> None:
    """After a rebind: the Confirm of 1 was lost, 2 is being written. 1 is confirmed at once, 2 when it is durable."""
    lease = client.writer("a")
    flow = client.flow(lease)
    flow.content(1, b"x")
    rig.hold(Append)
    flow.content(2, b"y")
    again = client.flow(lease)
    again.content(1, b"x")
    again.content(2, b"y")
    assert again.sent() == [confirm(1)]
    rig.let_go()
    assert again.sent() == [confirm(2)]


def test_a_pack_is_a_duplicate_as_a_whole(client: Client) -> None:
    flow = client.flow(client.writer("a", packed=True))
    flow.pack(1, [b"x", b"y", b"z"])
    flow.pack(1, [b"x", b"y", b"z"])
    assert flow.sent() == [confirm(3), confirm(3)]
    assert client.read("a") == [b"x", b"y", b"z"]


def test_a_partial_overlap_is_rejected_for_good_and_uses_up_its_numbers(client: Client) -> None:
    flow = client.flow(client.writer("a", packed=True))
    flow.pack(1, [b"x", b"y", b"z"])
    flow.pack(2, [b"y", b"z", b"new"])
    flow.pack(5, [b"next"])
    assert flow.sent() == [confirm(3), reject(4, NEVER), confirm(5)]
    assert client.read("a") == [b"x", b"y", b"z", b"next"]


# --- rejected for good --------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-112")
@pytest.mark.parametrize(
    ("content", "last"),
    [
        (commands.Content(1, "nowhere", EMPTY, b""), 1),
        (commands.Content(1, "b", EMPTY, b""), 1),
        (commands.Content(1, "a", EMPTY, bytes(limits.MAX_CONTENT + 1)), 1),
        (commands.Content(1, "a", encode_table({"mtl-mine": 1}), b""), 1),
        (commands.Content(1, "a", encode_table({commands.COUNT: 0}), b""), 1),
        (commands.Content(1, "a", encode_table({commands.COUNT: "many"}), b""), 1),
        (commands.Content(1, "a", encode_table({commands.COUNT: True}), b""), 1),
        (commands.Content(1, "a", commands.packed_properties(2), b"no pack"), 2),
        (packed(1, [b"x", b"y"], "a", count=3), 3),
        (commands.Content(1, "a", commands.packed_properties((1 << 63) - 1), b""), (1 << 63) - 1),
    ],
    ids=lambda x: None if isinstance(x, int) else "",
)
@pytest.mark.parametrize("confirmed", ["full", "none"])
def test_invalid_contents_are_rejected_for_good_under_both_models(
    client: Client, content: commands.Content, last: int, confirmed: str
) -> None:
    flow = client.flow(client.writer("a", packed=True, confirm=confirmed))
    flow.send(content)
    assert flow.sent() == [reject(last, NEVER)]
    assert client.read("a") == []


def test_packs_on_a_plain_lease_are_rejected(client: Client) -> None:
    flow = client.flow(client.writer("a"))
    flow.send(packed(1, [b"x"]))
    assert flow.sent() == [reject(1, NEVER)]


def test_a_pack_whose_numbers_exceed_64_bits_counts_as_one_content(client: Client) -> None:
    """Two packs of the largest count in sequence would exceed the range of a sequence."""
    flow = client.flow(client.writer("a", packed=True))
    most = (1 << 63) - 1
    for first in (1, most + 1, 2 * most + 1):
        flow.send(commands.Content(first, "a", commands.packed_properties(most), b""))
    assert flow.sent() == [reject(most, NEVER), reject(2 * most, NEVER), reject(2 * most + 1, NEVER)]


def test_a_rejected_number_is_used_up_and_the_flow_continues(client: Client) -> None:
    flow = client.flow(client.writer("a"))
    flow.content(1, b"x")
    flow.content(2, b"y", properties={"mtl-mine": 1})
    flow.content(3, b"z")
    assert flow.sent() == [confirm(1), reject(2, NEVER), confirm(3)]
    assert client.read("a") == [b"x", b"z"]


def test_a_repeated_rejected_content_is_rejected_again(client: Client) -> None:
    """Its Reject may have been lost; after a Confirm the writer would treat the content as stored."""
    flow = client.flow(client.writer("a"))
    flow.content(1, b"x", properties={"mtl-mine": 1})
    flow.content(2, b"y")
    flow.content(1, b"x", properties={"mtl-mine": 1})
    assert flow.sent() == [reject(1, NEVER), confirm(2), reject(1, NEVER)]


@pytest.mark.requirement("MTL-79")
@pytest.mark.parametrize(
    ("named", "resource", "taken"),
    [
        (["a"], "", True),
        (["a"], "a", True),
        (["a", "b"], "", False),
        (["a", "b"], "b", True),
        ([], "", False),
    ],
)
def test_contents_need_a_resource_name_if_the_lease_has_several(
    client: Client, named: list[str], resource: str, taken: bool
) -> None:
    flow = client.flow(client.writer(*named))
    flow.content(1, b"x", resource)
    assert flow.sent() == [confirm(1) if taken else reject(1, NEVER)]


def test_a_lease_for_all_resources_includes_later_ones(client: Client) -> None:
    flow = client.flow(client.writer())
    flow.content(1, b"x", "later")
    client.create("later")
    flow.content(2, b"y", "later")
    assert flow.sent() == [reject(1, NEVER), confirm(2)]
    assert client.read("later") == [b"y"]


def test_a_lease_for_all_resources_includes_a_recreated_one(client: Client) -> None:
    flow = client.flow(client.writer())
    flow.content(1, b"old", "a")
    client.ask(control.ResourceDelete(resource="a"), control.Ok)
    flow.content(2, b"nobody", "a")
    client.create("a")
    flow.content(3, b"new", "a")
    assert flow.sent() == [confirm(1), reject(2, NEVER), confirm(3)]
    assert client.read("a") == [b"new"]


# --- several resources in one flow --------------------------------------------------------------------------


def test_confirm_multiple_covers_only_the_prefix_durable_in_all_resources(rig: Rig, client: Client) -> None:
    flow = client.flow(client.writer("a", "b"))
    rig.hold(Append)
    for number, resource in ((1, "a"), (2, "b"), (3, "a"), (4, "b")):
        flow.content(number, b"x", resource)
    of_a = rig.held[0]
    rig.held.remove(of_a)
    rig.let_go(1)  # b has 2; 4 follows it
    rig.let_go(1)
    assert flow.sent() == []
    rig.held.appendleft(of_a)
    rig.let_go(1)
    assert flow.sent() == [confirm(2)]
    rig.let_go()
    assert flow.sent() == [confirm(4)]


def test_a_failed_content_is_requested_again_and_no_confirm_covers_it(rig: Rig, client: Client) -> None:
    """1 in `a` fails, 2 in `b` is durable: a Confirm(2, multiple) would make the writer forget 1."""
    flow = client.flow(client.writer("a", "b"))
    rig.disk.fail("write", when=lambda path: path.startswith(log_of(rig, "a")))
    for number, resource in ((1, "a"), (2, "b")):
        flow.queue(*commands.encode(commands.Content(number, resource, EMPTY, b"%d" % number)))
    rig.run()
    assert flow.sent() == [reject(1, AGAIN)]
    flow.content(1, b"1", "a")
    flow.content(2, b"2", "b")
    assert flow.sent() == [confirm(1), confirm(2)]
    assert (client.read("a"), client.read("b")) == ([b"1"], [b"2"])


def log_of(rig: Rig, resource: str) -> str:
    found = rig.broker.parts.resources.find("/", resource)
    assert found is not None
    return f"/data/{found.intake.key}/"


# --- failures and overload ----------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-96")
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("op", ["write", "sync"])
def test_a_failed_group_is_pushed_back_from_its_first_number(
    rig: Rig, client: Client, op: str, error: int
) -> None:
    flow = client.flow(client.writer("a"))
    rig.hold(Append)
    for number in (1, 2, 3):
        flow.content(number, b"%d" % number)
    rig.disk.fail(op, error=error)
    rig.let_go(1)  # 1 is the first group; 2 and 3 wait behind it and go with it
    assert flow.sent() == [reject(1, AGAIN)]
    assert rig.inbound_octets() == 0
    rig.let_go()
    for number in (1, 2, 3):
        flow.content(number, b"%d" % number)
    assert flow.sent() == [confirm(1), confirm(2), confirm(3)]
    assert client.read("a") == [b"1", b"2", b"3"]


def test_the_trouble_of_a_resource_is_described_until_a_write_succeeds(
    rig: Rig, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "mtl.broker")
    flow = client.flow(client.writer("a"))
    rig.disk.fail("write", count=2, error=errno.ENOSPC)
    for _ in range(2):
        flow.content(1, b"1")
        assert flow.sent() == [reject(1, AGAIN)]
        assert "no space left" in (client.describe("a").trouble or "")
    assert [r.levelname for r in caplog.records if "no space left" in r.message] == ["ERROR"]
    flow.content(1, b"1")
    assert flow.sent() == [confirm(1)]
    assert client.describe("a").trouble is None
    assert [r.levelname for r in caplog.records if "again" in r.message][-1] == "INFO"


def test_a_failed_write_of_one_writer_does_not_affect_others(rig: Rig, client: Client) -> None:
    failing, other = client.flow(client.writer("a")), client.flow(client.writer("a"))
    rig.hold(Append)
    failing.content(1, b"one")
    other.content(1, b"other")
    rig.disk.fail("write")
    rig.let_go()
    assert failing.sent() == [reject(1, AGAIN)]
    assert other.sent() == [confirm(1)]
    assert client.read("a") == [b"other"]


def test_a_writer_at_the_largest_number_does_not_affect_others(rig: Rig, client: Client) -> None:
    far, other = client.flow(client.writer("a", packed=True, writer="far")), client.flow(client.writer("a"))
    for number in (1, 2**63):  # packs that cannot be: their numbers are spent at once
        far.send(commands.Content(number, "", commands.packed_properties(2**63 - 1), b""))
    assert far.sent() == [reject(2**63 - 1, NEVER), reject(_U64_MAX - 1, NEVER)]
    far.queue(*commands.encode(commands.Content(_U64_MAX, "", EMPTY, b"last")))
    other.content(1, b"x")
    assert (far.sent(), other.sent()) == ([confirm(_U64_MAX)], [confirm(1)])
    rig.kill()
    assert rig.client().read("a") == [b"last", b"x"]


def test_without_confirmation_failed_contents_are_dropped_and_counted(rig: Rig, client: Client) -> None:
    flow = client.flow(client.writer("a", confirm="none"))
    rig.disk.fail("write")
    flow.content(1, b"x")
    assert flow.sent() == []
    assert rig.broker.statistics()["dropped"] == 1


def test_overload_pushes_contents_back_and_keeps_receiving(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_limits, "INBOUND_OCTETS", 3 * limits.ARRIVAL_OVERHEAD)
    flow = client.flow(client.writer("a"))
    rig.hold(Append)
    for number in range(1, 7):
        flow.content(number, b"")
    assert flow.ponged()
    flow.content(4, b"")  # sent again while there is still no room
    assert flow.sent() == [reject(4, AGAIN), reject(4, AGAIN)]
    rig.let_go()
    for number in (4, 5, 6):
        flow.content(number, b"")
    assert flow.sent() == [confirm(1), confirm(3), confirm(4), confirm(5), confirm(6)]


def test_empty_contents_count_towards_the_inbound_bound(rig: Rig, client: Client) -> None:
    """Otherwise any number of them could wait for a slow disk."""
    flow = client.flow(client.writer("a"))
    rig.hold(Append)
    flow.content(1, b"")
    assert rig.inbound_octets() >= limits.ARRIVAL_OVERHEAD


def test_unconfirmed_contents_of_a_flow_are_bounded(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_limits, "MAX_UNCONFIRMED", 3)
    flow = client.flow(client.writer("a", "b"))
    rig.hold(Append)
    flow.content(1, b"", "a")
    for number in (2, 3, 4):
        flow.content(number, b"", "b")
        rig.let_go(0)
    assert flow.sent() == [reject(4, AGAIN)]


# --- leases and flows ---------------------------------------------------------------------------------------


def test_an_unnamed_lease_starts_at_one(client: Client) -> None:
    for _ in range(2):
        lease = client.writer("a")
        assert lease.last is None
        flow = client.flow(lease)
        flow.content(1, b"x")
        assert flow.sent() == [confirm(1)]
        client.close_lease(lease)
    assert client.read("a") == [b"x", b"x"]


def test_the_numbers_of_an_unnamed_lease_end_with_it(rig: Rig, client: Client) -> None:
    lease = client.writer("a")
    client.flow(lease).content(1, b"x")
    resource = rig.broker.parts.resources.find("/", "a")
    assert resource is not None
    assert resource.intake.numbers._durable == resource.intake.numbers._accepted == {lease.lease: 1}
    rig.hold(Append)
    client.flow(lease).content(2, b"y")
    client.close_lease(lease)
    rig.let_go()
    assert resource.intake.numbers._durable == resource.intake.numbers._accepted == {}


def test_after_a_rebind_the_former_identity_is_unbound(client: Client, rig: Rig) -> None:
    lease = client.writer("a")
    former = client.flow(lease)
    later = client.flow(lease)
    former.content(1, b"x")
    assert former.sent() == []
    assert rig.broker.statistics()["unbound"] == 1
    later.content(1, b"y")
    assert later.sent() == [confirm(1)]
    assert client.read("a") == [b"y"]


def test_after_a_rebind_only_repeated_numbers_are_confirmed(rig: Rig, client: Client) -> None:
    """The Reject of 2 was lost with the former flow: after a Confirm of 3 the writer would treat 2 as stored."""
    lease = client.writer("a")
    flow = client.flow(lease)
    rig.hold(Append)
    flow.content(1, b"x")
    flow.content(2, b"y", properties={"mtl-mine": 1})
    flow.content(3, b"z")
    again = client.flow(lease)
    rig.let_go()
    assert again.sent() == []
    again.content(1, b"x")
    again.content(2, b"y", properties={"mtl-mine": 1})
    again.content(3, b"z")
    assert again.sent() == [confirm(1), reject(2, NEVER), confirm(3)]
    assert client.read("a") == [b"x", b"z"]


def test_after_a_rebind_numbers_are_repeated_without_gaps(client: Client) -> None:
    """The Reject of 2 was lost with the former flow, and 2 itself on this one: 3 must not be accepted, since its
    Confirm would cover 2.
    """
    lease = client.writer("a")
    flow = client.flow(lease)
    flow.content(1, b"x")
    flow.content(2, b"y", properties={"mtl-mine": 1})
    again = client.flow(lease)
    again.content(1, b"x")
    again.content(3, b"z")
    assert again.sent() == [confirm(1), reject(3, AGAIN)]
    again.content(2, b"y", properties={"mtl-mine": 1})
    again.content(3, b"z")
    assert again.sent() == [reject(2, NEVER), confirm(3)]


def test_octets_of_a_durable_content_are_freed_before_its_confirm(rig: Rig, client: Client) -> None:
    """2 is durable and waits for 1 in another resource: only its number may stay in memory."""
    lease = client.writer("a", "b")
    flow = client.flow(lease)
    rig.hold(Append)
    flow.content(1, b"x", "a")
    flow.content(2, bytes(1000), "b")
    first = rig.held.popleft()
    rig.let_go(1)
    held = rig.broker.parts.leases.find(lease.lease)
    assert [len(x.bodies) for x in held.unconfirmed] == [1, 0]  # type: ignore[union-attr]
    rig.held.append(first)
    rig.let_go()
