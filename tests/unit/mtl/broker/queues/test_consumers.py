"""Consumers of a queue: distribution of contents, effect of Confirm and Reject (PROTOCOL.md 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest

from mtl.broker import limits as broker_limits
from mtl.broker.queues import limits as queue_limits
from mtl.log.reader import LogReader
from mtl.storage.api import Read, Save
from mtl.storage.records import QueueRecord
from mtl.wire import commands, control
from mtl.wire.fields import decode_table
from mtl.wire.packs import encode_pack
from tests.support.core import Client, Flow, Rig
from tests.support.faulty_store import refuse


@pytest.fixture
def client(rig: Rig) -> Client:
    client = rig.client("queue")
    client.create("a", "b")
    return client


def bodies(count: int, start: int = 1) -> list[bytes]:
    return [b"%d" % n for n in range(start, start + count)]


def consumer(client: Client, *resources: str, summon: Sequence[str] = (), **more: Any) -> Flow:
    """A consumer that summoned every resource of its lease."""
    lease = client.ask(
        control.ConnectionReader(resources=list(resources), **{"confirm": "full"} | more), control.DataLease
    )
    flow = client.flow(lease)
    for name in summon or resources:
        assert flow.summon(name) == 200
    return flow


def window(contents: int) -> control.Window:
    return control.Window(contents=contents)


def deliveries_of(contents: Sequence[commands.Content]) -> list[tuple[int, str, int, bool]]:
    """Per content: its number, its resource and sequence, and whether it is marked as redelivered."""
    found = []
    for content in contents:
        table = decode_table(content.properties)
        place = table[commands.SEQUENCE]
        assert isinstance(place, int)
        assert isinstance(table[commands.TIMESTAMP], int)
        found.append(
            (content.sequence, content.resource, place, table.get(commands.REDELIVERED, False) is True)
        )
    return found


def position(client: Client, resource: str = "a") -> control.QueueInfo:
    return client.ask(control.QueueDescribe(resource=resource), control.QueueList).queues[0]


# --- one consumer -------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-72", "MTL-80")
def test_contents_arrive_in_order_with_numbers_and_positions(client: Client) -> None:
    client.fill("a", bodies(3))
    flow = consumer(client, "a")
    contents = flow.contents()
    assert [bytes(x.body) for x in contents] == bodies(3)
    assert deliveries_of(contents) == [(1, "a", 1, False), (2, "a", 2, False), (3, "a", 3, False)]
    client.fill("a", bodies(1, 4))
    assert deliveries_of(flow.contents()) == [(4, "a", 4, False)]


@pytest.mark.requirement("MTL-86", "MTL-87", "MTL-90", "MTL-91")
def test_single_and_multiple_confirms_open_the_window(client: Client) -> None:
    client.fill("a", bodies(9))
    flow = consumer(client, "a", window=window(3))
    assert flow.numbers() == [1, 2, 3]
    flow.confirm(2, multiple=False)
    assert flow.numbers() == [4]
    flow.confirm(4)
    assert flow.numbers() == [5, 6, 7]
    assert position(client).unsettled == 5


@pytest.mark.requirement("MTL-93", "MTL-98")
def test_confirms_and_rejects_of_unsent_numbers_are_ignored(client: Client) -> None:
    client.fill("a", bodies(3))
    flow = consumer(client, "a", window=window(2))
    assert flow.numbers() == [1, 2]
    for number in (0, 3, 99):
        flow.confirm(number, multiple=number != 0)
        flow.reject(number)
    assert flow.sent() == []
    flow.confirm(1)
    flow.confirm(1)
    flow.reject(1)
    assert flow.numbers() == [3]
    assert position(client).dead == 0


def test_a_window_in_octets_admits_at_least_one_content(client: Client) -> None:
    client.fill("a", [b"x" * 1_000] * 3)
    flow = consumer(client, "a", window=control.Window(bytes=10))
    assert flow.numbers() == [1]
    flow.confirm(1)
    assert flow.numbers() == [2]


@pytest.mark.requirement("MTL-83", "MTL-86", "MTL-87")
def test_a_confirm_opens_the_window_for_the_other_resources_of_the_lease(client: Client) -> None:
    client.fill("a", bodies(1))
    client.fill("b", bodies(2))
    flow = consumer(client, "a", "b", window=window(1))
    found = []
    for number in (1, 2, 3):
        found += deliveries_of(flow.contents())
        flow.confirm(number)
    assert [number for number, *_ in found] == [1, 2, 3]
    assert {resource for _, resource, *_ in found} == {"a", "b"}


def test_a_reject_opens_the_window_for_the_other_resources_of_the_lease(client: Client) -> None:
    client.fill("a", bodies(1))
    flow = consumer(client, "a", "b", window=window(1))
    assert deliveries_of(flow.contents()) == [(1, "a", 1, False)]
    client.fill("b", bodies(1))
    assert flow.sent() == []
    flow.reject(1)
    assert deliveries_of(flow.contents()) == [(2, "b", 1, False)]


@pytest.mark.requirement("MTL-46", "MTL-83")
def test_numbers_are_shared_by_all_resources_of_a_lease(client: Client) -> None:
    client.fill("a", bodies(2))
    client.fill("b", bodies(2))
    flow = consumer(client, "a", "b")
    found = deliveries_of(flow.contents())
    assert [x[0] for x in found] == [1, 2, 3, 4]
    assert sorted(x[1:3] for x in found) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    flow.confirm(4)
    assert (position(client, "a").unsettled, position(client, "b").unsettled) == (0, 0)


@pytest.mark.requirement("MTL-46", "MTL-69", "MTL-71")
def test_a_lease_of_all_resources_includes_later_ones(client: Client) -> None:
    flow = consumer(client, summon=["a"])
    assert flow.summon("later") == 400
    client.create("later")
    client.fill("later", bodies(2))
    assert flow.summon("later") == 200
    assert deliveries_of(flow.contents()) == [(1, "later", 1, False), (2, "later", 2, False)]
    client.fill("b", bodies(1))
    assert flow.sent() == []


@pytest.mark.requirement("MTL-77", "MTL-82")
def test_contents_sent_before_a_dismiss_may_be_confirmed_or_are_redelivered(client: Client) -> None:
    client.fill("a", bodies(4))
    flow = consumer(client, "a", window=window(2))
    assert flow.dismiss("a") == 200
    assert flow.numbers() == [1, 2]
    flow.confirm(1)
    assert flow.sent() == []
    other = consumer(client, "a")
    assert deliveries_of(other.contents()) == [(1, "a", 3, False), (2, "a", 4, False)]
    assert flow.summon("a") == 200
    assert flow.sent() == []
    flow.confirm(2)
    assert position(client).position == 3


@pytest.mark.parametrize("size", [0, 1_000])
def test_a_window_in_octets_counts_a_content_as_its_share_of_the_pack(client: Client, size: int) -> None:
    contents = [bytes(size)] * 8
    client.flow(client.writer("a", packed=True)).pack(1, contents)
    flow = consumer(client, "a", window=control.Window(bytes=3 * (len(encode_pack(contents)) // 8)))
    assert flow.numbers() == [1, 2, 3]
    flow.confirm(2)
    assert flow.numbers() == [4, 5]
    flow.confirm(5)
    assert flow.numbers() == [6, 7, 8]


# --- several ------------------------------------------------------------------------------------------------


def test_every_content_goes_to_one_consumer_and_each_gets_a_share(client: Client) -> None:
    flows = [consumer(client, "a") for _ in range(3)]
    client.fill("a", bodies(30))
    parts = [[x[2] for x in deliveries_of(flow.contents())] for flow in flows]
    assert sorted(x for part in parts for x in part) == list(range(1, 31))
    assert all(part == sorted(part) for part in parts)
    assert min(map(len, parts)) >= 5


@pytest.mark.parametrize(("count", "shares"), [(30, [10, 10, 10]), (2, [1, 1, 0])])
def test_a_pack_is_shared_by_all_consumers(client: Client, count: int, shares: list[int]) -> None:
    flows = [consumer(client, "a") for _ in range(3)]
    client.flow(client.writer("a", packed=True)).pack(1, bodies(count))
    assert [len(flow.contents()) for flow in flows] == shares


def test_single_contents_go_to_consumers_in_turn(client: Client) -> None:
    flows = [consumer(client, "a") for _ in range(2)]
    for number in range(1, 7):
        client.fill("a", bodies(1, number))
    assert [[x[2] for x in deliveries_of(flow.contents())] for flow in flows] == [[1, 3, 5], [2, 4, 6]]


def test_a_consumer_with_a_full_window_does_not_delay_others(client: Client) -> None:
    slow = consumer(client, "a", window=window(1))
    quick = consumer(client, "a")
    client.fill("a", bodies(10))
    assert len(slow.numbers()) == 1
    assert len(quick.numbers()) == 9


@pytest.mark.parametrize("how", ["confirm", "close"])
def test_a_consumer_that_dismissed_a_full_queue_makes_room_for_others(
    client: Client, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(queue_limits, "QUEUE_OUTSTANDING", 2)
    client.fill("a", bodies(3))
    lease = client.reader("a", start=None)
    gone = client.flow(lease)
    gone.summon("a")
    assert gone.numbers() == [1, 2]
    gone.dismiss("a")
    other = consumer(client, "a")
    assert other.sent() == []
    if how == "confirm":
        gone.confirm(2)
        assert other.bodies() == [b"3"]
    else:
        client.close_lease(lease)
        assert other.bodies() == bodies(2)


def test_named_queues_are_independent_and_a_log_reader_sees_everything(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(3))
    default_queue, other = consumer(client, "a"), consumer(client, "a", group="audit")
    assert default_queue.bodies() == other.bodies() == bodies(3)
    default_queue.confirm(3)
    assert [q.unsettled for q in client.ask(control.QueueDescribe(), control.QueueList).queues] == [3, 0]
    assert rig.client().read("a") == bodies(3)


def test_queues_are_separate_per_virtual_host(rig: Rig) -> None:
    rig.settings["virtual_hosts"] = ("/", "other")
    rig.restart()
    for host in ("/", "other"):
        client = rig.client("queue", host)
        client.create("a")
        client.fill("a", [host.encode()])
        assert consumer(client, "a").bodies() == [host.encode()]


# --- giving back --------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-94", "MTL-96")
def test_a_recycled_content_is_redelivered_marked_after_a_delay(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(2))
    flow = consumer(client, "a")
    assert flow.numbers() == [1, 2]
    flow.reject(1, recycle=True)
    assert flow.sent() == []
    assert position(client).delayed == 1
    rig.sleep(0.3, 0.05)
    assert deliveries_of(flow.contents()) == [(3, "a", 1, True)]
    flow.confirm(3)
    assert position(client).position == 3


@pytest.mark.requirement("MTL-96")
def test_the_delay_of_a_recycled_content_doubles(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(1))
    flow = consumer(client, "a")
    for number in (1, 2, 3):
        assert flow.numbers() == [number]
        flow.reject(number, recycle=True)
        rig.sleep(queue_limits.QUEUE_BACKOFF_S * 2 ** (number - 1) - 0.02, 0.01)
        assert flow.sent() == []
        rig.sleep(2 * queue_limits.QUEUE_TICK_S, 0.01)
    assert flow.numbers() == [4]


@pytest.mark.requirement("MTL-95", "MTL-96")
def test_contents_recycled_together_keep_their_order(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(4))
    flow = consumer(client, "a")
    flow.contents()
    flow.reject(3, multiple=True, recycle=True)
    rig.sleep(0.3, 0.05)
    assert [x[2:] for x in deliveries_of(flow.contents())] == [(1, True), (2, True), (3, True)]


@pytest.mark.requirement("MTL-96")
def test_a_recycled_content_goes_to_another_consumer(rig: Rig, client: Client) -> None:
    flows = [consumer(client, "a") for _ in range(2)]
    client.fill("a", bodies(1))
    first, second = sorted(flows, key=lambda f: not rig.sockets.sent.get(f.peer))
    assert first.numbers() == [1]
    first.reject(1, recycle=True)
    rig.sleep(0.3, 0.05)
    assert first.sent() == []
    assert deliveries_of(second.contents()) == [(1, "a", 1, True)]


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_recycled_content_returns_to_its_consumer_if_no_other_one_has_room_for_it(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch, in_memory: bool
) -> None:
    """The other one has free octets in its window, but not enough for this content."""
    if not in_memory:
        monkeypatch.setattr(LogReader, "tail", lambda *_: None)
    other = consumer(client, "a", window=control.Window(bytes=2_000))
    client.fill("a", [bytes(1_000)])
    assert other.numbers() == [1]
    flow = consumer(client, "a")
    client.fill("a", [bytes(1_000)])
    assert flow.numbers() == [1]
    flow.reject(1, recycle=True)
    rig.sleep(0.3, 0.05)
    assert deliveries_of(flow.contents()) == [(2, "a", 2, True)]


@pytest.mark.parametrize("how", ["vanish", "close", "expire"])
def test_contents_of_a_lost_consumer_go_to_others(rig: Rig, client: Client, how: str) -> None:
    lease = client.reader("a", start=None)
    gone = client.flow(lease)
    gone.summon("a")
    client.fill("a", bodies(3))
    assert gone.numbers() == [1, 2, 3]
    other = consumer(client, "a")
    if how == "vanish":
        gone.vanish()
        client.fill("a", bodies(3, 4))
    elif how == "close":
        client.close_lease(lease)
    else:
        rig.sleep(40.0)
        other = consumer(client, "a")
    assert sorted(x[2] for x in deliveries_of(other.contents()) if x[2] <= 3 and x[3]) == [1, 2, 3]
    counted = client.rig.broker.parts.queues.of(client.rig.broker.parts.resources.need("/", "a"))[
        "default"
    ].state.deliveries()
    assert counted == ({} if how == "close" else {1: 1, 2: 1, 3: 1})


def test_a_rebound_consumer_gets_its_unsettled_contents_again(client: Client) -> None:
    client.fill("a", bodies(4))
    lease = client.reader("a", start=None, window=window(2))
    former = client.flow(lease)
    former.summon("a")
    assert former.numbers() == [1, 2]
    flow = client.flow(lease)
    assert flow.sent() == []
    flow.summon("a")
    assert deliveries_of(flow.contents()) == [(3, "a", 1, True), (4, "a", 2, True)]
    flow.confirm(2)
    assert flow.sent() == []
    flow.confirm(4)
    assert deliveries_of(flow.contents()) == [(5, "a", 3, False), (6, "a", 4, False)]


def test_contents_that_do_not_fit_into_a_peers_queue_go_to_others(rig: Rig, client: Client) -> None:
    stuck = consumer(client, "a")
    stuck.room(2)
    client.fill("a", bodies(6))
    assert stuck.numbers() == [1, 2]
    other = consumer(client, "a")
    assert deliveries_of(other.contents()) == [(n - 2, "a", n, False) for n in (3, 4, 5, 6)]
    stuck.room(None)
    rig.sleep(0.1, 0.02)
    client.fill("a", bodies(2, 7))
    assert [x[0] for x in deliveries_of(stuck.contents())] == [3]
    assert len(other.numbers()) == 1


def test_a_frame_of_a_peer_with_a_full_queue_ends_its_pause(rig: Rig, client: Client) -> None:
    flow = consumer(client, "a")
    flow.room(1)
    client.fill("a", bodies(2))
    assert flow.numbers() == [1]
    flow.room(None)
    assert flow.sent() == []
    assert rig.broker.next_due == rig.mono + broker_limits.BLOCKED_RETRY_S
    assert flow.ponged()
    assert flow.numbers() == [2]
    assert rig.broker.statistics()["queues-blocked"] == 1


@pytest.mark.parametrize("confirm", ["full", "none"])
def test_a_consumer_without_room_by_octets_is_asked_for_and_not_sent_to(
    rig: Rig, client: Client, confirm: str
) -> None:
    flow = consumer(client, "a", confirm=confirm)
    flow.room(1)
    client.fill("a", bodies(2))
    assert flow.numbers() == [1]
    flow.room(None)
    rig.sockets.without_room.add(flow.peer)
    blocked = rig.broker.statistics()["queues-blocked"]
    rig.sleep(1)
    assert flow.numbers() == []
    assert rig.broker.statistics()["queues-blocked"] == blocked
    assert rig.sockets.asked[-1][:2] == (flow.peer, "anonymous")
    rig.sockets.without_room.clear()
    rig.sleep(0.1)
    assert flow.numbers() == [2]


def test_a_pause_ends_after_a_while_without_a_frame(rig: Rig, client: Client) -> None:
    flow = consumer(client, "a")
    flow.room(1)
    client.fill("a", bodies(2))
    assert flow.numbers() == [1]
    flow.room(None)
    rig.sleep(broker_limits.BLOCKED_RETRY_S)
    assert flow.numbers() == [2]


def test_without_confirmation_a_content_that_was_not_sent_is_delivered_after_a_restart(
    rig: Rig, client: Client
) -> None:
    """Its record was durable, and is corrected."""
    flow = consumer(client, "a", confirm="none")
    flow.room(0)
    client.fill("a", bodies(1))
    rig.restart()
    assert consumer(rig.client("queue"), "a").bodies() == bodies(1)


def test_the_end_of_a_lease_ends_its_pause(rig: Rig, client: Client) -> None:
    lease = client.reader("a", start=None)
    flow = client.flow(lease)
    flow.summon("a")
    flow.room(0)
    client.fill("a", bodies(1))
    assert rig.broker.parts.consumers.next_retry is not None
    client.close_lease(lease)
    assert rig.broker.parts.consumers.next_retry is None


def test_a_content_that_a_full_peer_did_not_take_goes_to_another_consumer_at_once(client: Client) -> None:
    stuck, other = consumer(client, "a"), consumer(client, "a")
    stuck.room(0)
    client.fill("a", bodies(1))
    assert other.bodies() == bodies(1)
    stuck.room(None)


# --- confirm "none" -----------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-85")
def test_without_confirmation_contents_are_settled_before_they_are_sent(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(5))
    lease = client.ask(control.ConnectionReader(resources=["a"]), control.DataLease)
    assert lease.window is None
    flow = client.flow(lease)
    rig.hold(Save)
    flow.summon("a")
    assert flow.sent() == []
    rig.let_go()
    assert flow.bodies() == bodies(5)
    rig.kill()
    assert consumer(rig.client("queue"), "a").sent() == []


def test_without_confirmation_unsent_contents_are_sent_later(rig: Rig, client: Client) -> None:
    flow = consumer(client, "a", confirm="none")
    flow.room(2)
    client.fill("a", bodies(6))
    assert flow.bodies() == bodies(2)
    flow.room(None)
    rig.sleep(0.1, 0.02)
    assert [x[1:] for x in deliveries_of(flow.contents())] == [("a", n, False) for n in (3, 4, 5, 6)]
    flow.confirm(6)
    flow.reject(5, recycle=True)
    assert position(client).position == 7


def test_without_confirmation_contents_wait_for_a_record_whose_save_fails(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(2))
    flow = consumer(client, "a", confirm="none", window=window(1))
    writer = client.flow(client.writer("a"))

    def fail(at: str) -> None:
        raise refuse(full=True)

    flow.contents()
    rig.store.hook = fail
    writer.content(1, b"3")
    writer.content(2, b"4")
    rig.sleep(0.5, 0.1)
    assert flow.sent() == []
    rig.store.hook = lambda _: None
    rig.sleep(1.0, 0.1)
    assert flow.bodies() == bodies(2, 3)


def test_without_confirmation_a_consumer_gets_nothing_more_until_its_contents_are_settled(
    rig: Rig, client: Client
) -> None:
    flow = consumer(client, "a", confirm="none")
    client.fill("a", bodies(1))
    assert flow.bodies() == bodies(1)
    rig.hold(Save)
    client.fill("a", bodies(2, 2))
    assert position(client).ready == 1
    other = consumer(client, "a")
    assert other.bodies() == [b"3"]
    rig.let_go()
    assert flow.bodies() == [b"2"]


class Claim:
    """A consumer without confirmation, and a content that is being settled for it. Nothing else happens until
    `saved`.
    """

    def __init__(self, rig: Rig, client: Client) -> None:
        self._rig = rig
        self.lease = client.reader("a", "b", start=None, confirm="none")
        self.flow = client.flow(self.lease)
        self.flow.summon("a")
        client.fill("a", bodies(1))
        assert self.flow.bodies() == bodies(1)
        rig.hold(Save)
        client.fill("a", bodies(1, 2))

    def saved(self) -> None:
        """The broker has the result of the save, and does nothing else."""
        self._rig.hold()
        (save,) = self._rig.held
        self._rig.held.clear()
        self._rig._perform(save)


@pytest.mark.parametrize("how", ["dismiss", "close", "return"])
def test_without_confirmation_contents_settled_for_a_lost_consumer_go_to_others(
    rig: Rig, client: Client, how: str
) -> None:
    claim = Claim(rig, client)
    if how == "dismiss":
        claim.flow.dismiss("a")
    elif how == "close":
        client.close_lease(claim.lease)
    else:
        client.flow(claim.lease)
    other = consumer(client, "a")
    client.fill("a", bodies(1, 3))
    assert other.numbers() == [1]
    claim.saved()
    assert rig.broker.parts.consumers.next_retry is None, "the consumer gets nothing later either"
    rig.run()
    assert deliveries_of(other.contents()) == [(2, "a", 2, False)]
    assert claim.flow.sent() == []


def test_without_confirmation_contents_settled_for_a_consumer_that_returns_are_sent_to_it(
    rig: Rig, client: Client
) -> None:
    claim = Claim(rig, client)
    flow = client.flow(claim.lease)
    flow.summon("a")
    assert flow.sent() == []
    claim.saved()
    rig.run()
    assert deliveries_of(flow.contents()) == [(2, "a", 2, False)]


def test_without_confirmation_contents_of_another_queue_wait_for_a_save(rig: Rig, client: Client) -> None:
    claim = Claim(rig, client)
    claim.flow.summon("b")
    client.fill("b", [b"x"])
    claim.flow.dismiss("a")
    assert claim.flow.sent() == []
    claim.saved()
    rig.run()
    assert claim.flow.bodies() == [b"x"]


def test_without_confirmation_contents_on_their_way_to_a_lost_consumer_remain_settled(
    rig: Rig, client: Client
) -> None:
    claim = Claim(rig, client)
    claim.saved()
    client.close_lease(claim.lease)
    assert claim.flow.bodies() == [b"2"]
    assert position(client).position == 3


def test_without_confirmation_contents_for_a_consumer_that_returned_are_not_settled_too_early(
    rig: Rig, client: Client
) -> None:
    """They are on their way for as long as those of any other consumer: its former contents do not count."""
    claim = Claim(rig, client)
    writer = client.flow(client.writer("a"))
    writer.content(1, b"3")
    claim.saved()
    flow = Flow(rig, claim.lease.port)
    flow.queue(*commands.encode(commands.Lease(1, claim.lease.lease)))
    flow.queue(*commands.encode(commands.Summon(2, "a")))
    flow.room(2)
    rig.run()
    assert flow.sent() == [commands.Response(1, 200), commands.Response(2, 200)]
    flow.room(None)
    rig.sleep(0.1, 0.02)
    assert flow.bodies() == [b"3"]


def test_without_confirmation_contents_whose_save_fails_go_to_others(rig: Rig, client: Client) -> None:
    flow = consumer(client, "a", confirm="none")
    client.fill("a", bodies(1))
    assert flow.bodies() == bodies(1)
    other = consumer(client, "a")

    def fail(at: str) -> None:
        raise refuse(full=True)

    rig.store.hook = fail
    client.fill("a", bodies(1, 2))
    assert (flow.bodies(), other.bodies()) == ([], [b"2"])
    rig.store.hook = lambda _: None


def test_contents_behind_settled_ranges_of_the_record_are_delivered(rig: Rig, client: Client) -> None:
    """No other event wakes the queue if the contents before them are settled or on their way to the dead letters."""
    client.fill("a", bodies(5))
    consumer(client, "a", window=window(1))
    rig.stop()
    (record,) = [r for r in rig.store.load().records if isinstance(r, QueueRecord)]
    rig.store.save((msgspec.structs.replace(record, low=1, settled=[(2, 4)], ahead=4),), ())
    rig.start()
    assert consumer(rig.client("queue"), "a").bodies() == [b"1", b"4", b"5"]


# --- damage -------------------------------------------------------------------------------------------------


def test_a_damaged_content_ends_the_lease_and_is_not_sent(rig: Rig, client: Client) -> None:
    rig.settings["segment_bytes"] = 1_200
    rig.restart()
    client = rig.client("queue")
    client.fill("a", [bytes(1_000)] * 4)
    rig.restart()
    client = rig.client("queue")
    resource = rig.broker.parts.resources.need("/", "a")
    assert resource.log is not None
    ref = cast(LogReader, resource.log).snapshot().find(3)
    assert ref is not None
    rig.disk.flip(f"/data/{resource.intake.key}/{ref.segment:020d}.segment", ref.offset + 200)
    flow = consumer(client, "a", window=window(2))
    assert flow.numbers() == [1, 2]
    flow.confirm(1)
    assert flow.sent() == []
    assert not flow.ponged()
    assert rig.broker.statistics()["queues-unread"] == 1
    assert client.refused(control.ConnectionReader(resources=["a"], confirm="full")).reason == control.STORAGE
    assert position(client).position == 2
    (queue,) = rig.broker.parts.queues.of(resource).values()
    assert queue.state.deliveries() == {}, "the consumer did not fail"


def test_contents_beyond_the_octets_of_a_turn_are_sent_in_later_turns(rig: Rig, client: Client) -> None:
    client.fill("a", [b"x" * (3 << 20)] * 4)
    flow = consumer(client, "a", window=control.Window(contents=10, bytes=broker_limits.MAX_WINDOW_OCTETS))
    assert len(flow.contents()) == 4
    assert rig.broker.statistics()["queues-delivered"] == 4


def test_contents_behind_settled_ones_are_delivered_after_a_restart(rig: Rig, client: Client) -> None:
    """The record ended behind a settled content, and the queue was not examined again."""
    client.fill("a", bodies(4))
    flow = consumer(client, "a", window=window(2))
    assert flow.bodies() == bodies(2)
    flow.dismiss("a")
    flow.confirm(2, multiple=False)
    rig.restart()
    flow = consumer(rig.client("queue"), "a")
    assert [place for _, _, place, _ in deliveries_of(flow.contents())] == [1, 3, 4]


def test_a_failed_read_ends_the_lease(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(3))
    rig.restart()
    client = rig.client("queue")
    flow = client.flow(client.reader("a", start=None))
    for op in ("map", "read"):
        rig.disk.fail(op, count=1_000)
    assert flow.summon("a") == 200
    assert not flow.ponged()
    assert rig.broker.parts.resources.need("/", "a").unread.places == [(1, 2)]


SIZE = len(encode_pack([bytes(1_000)]))
"""Octets that a content of 1,000 octets counts, alone in its pack."""


@pytest.mark.parametrize(
    ("limit", "value", "delivered"),
    [("TURN_OCTETS", 2 * SIZE, 2), ("TURN_OCTETS", 2 * SIZE + 1, 3), ("TURN_SENDS", 3, 3)],
)
def test_a_turn_is_bounded_and_the_broker_is_busy_until_the_last_one(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, delivered: int
) -> None:
    client.fill("a", [bytes(1_000)] * 5)
    monkeypatch.setattr(broker_limits, limit, value)
    flow = client.flow(client.reader("a", start=None))
    flow.queue(*commands.encode(commands.Summon(5, "a")))
    rig.broker.advance()
    assert rig.broker.statistics()["queues-delivered"] == delivered
    busy = rig.broker.busy
    rig.run()
    assert (busy, rig.broker.busy) == (True, False)
    assert len(flow.sent()) == 1 + 5


def test_a_turn_counts_the_octets_of_all_contents_of_a_run(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = [bytes(1_000)] * 6
    client.flow(client.writer("a", packed=True)).pack(1, contents)
    monkeypatch.setattr(broker_limits, "TURN_CONTENTS", 2)
    monkeypatch.setattr(broker_limits, "TURN_OCTETS", 3 * (len(encode_pack(contents)) // 6))
    flow = client.flow(client.reader("a", start=None))
    flow.queue(*commands.encode(commands.Summon(5, "a")))
    rig.broker.advance()
    assert rig.broker.statistics()["queues-delivered"] == 4


def test_a_queue_waits_for_a_log_that_failed_to_open(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(1))
    consumer(client, "a", window=window(1))
    rig.stop()
    rule = rig.disk.fail("open", count=1_000, when=lambda path: path.endswith(".segment"))
    rig.start()
    client = rig.client("queue")
    flow = client.flow(client.reader(start=None))
    assert flow.summon("a") == 200
    assert flow.sent() == []
    rig.disk.spare(rule)
    rig.sleep(2 * broker_limits.OPEN_RETRY_S)
    assert flow.bodies() == bodies(1)


def test_a_slow_read_delays_only_its_queue(rig: Rig, client: Client) -> None:
    client.fill("a", [b"1", b"2"])
    rig.restart()
    client = rig.client("queue")
    client.fill("b", [b"x"])
    rig.hold(Read)
    slow, quick = consumer(client, "a"), consumer(client, "b")
    assert (slow.numbers(), len(quick.contents())) == ([], 1)
    client.fill("a", [b"3"])
    assert len(rig.held) == 1, "one read at a time"
    rig.let_go()
    assert slow.numbers() == [1, 2, 3]


def test_chunks_in_memory_are_dropped_with_the_last_consumer(rig: Rig, client: Client) -> None:
    client.fill("a", [b"1", b"2"])
    rig.restart()
    client = rig.client("queue")
    flow = consumer(client, "a")
    assert flow.numbers() == [1, 2]
    (queue,) = rig.broker.parts.queues.of(rig.broker.parts.resources.need("/", "a")).values()
    assert rig.broker.parts.consumers._aheads._octets == queue.chunks.octets > 0
    flow.dismiss("a")
    assert queue.chunks.octets == 0
    assert rig.broker.parts.consumers._aheads._octets == 0, "they do not count for others either"
