"""Delivery to readers of the `log` profile: PROTOCOL.md 5.2, rule by rule."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from mtl import limits
from mtl.broker import actions
from mtl.broker import limits as broker_limits
from mtl.broker.commands.granting_readers import LocalReads
from mtl.broker.reading.ahead import READ_AHEAD_CHUNKS, READ_AHEAD_OCTETS
from mtl.broker.reading.readers import ReaderLease
from mtl.broker.steps import begin
from mtl.log.reader import LogReader
from mtl.storage.api import Chunk, Contents, Read, Trim
from mtl.wire import commands, control
from mtl.wire.fields import decode_table
from mtl.wire.ranges import FileRange
from tests.support.core import START_US, Client, Flow, Rig, unpacked
from tests.support.texts import in_order


def window(contents: int | None = None, octets: int | None = None) -> control.Window:
    return control.Window(contents=contents, bytes=octets)


def reading(client: Client, **more: Any) -> Flow:
    """A data flow that has summoned `a`."""
    flow = client.flow(client.reader("a", **more))
    assert flow.summon("a") == 200
    return flow


@pytest.fixture(autouse=True)
def resource(client: Client) -> None:
    """Ten contents in two chunks of five."""
    client.create("a")
    flow = client.flow(client.writer("a", packed=True))
    for first in (1, 6):
        flow.pack(first, [b"%d" % n for n in range(first, first + 5)])


# --- contents -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-72", "MTL-80")
def test_a_plain_reader_gets_single_contents_with_their_timestamp(rig: Rig, client: Client) -> None:
    contents = reading(client).contents()
    assert [x.sequence for x in contents] == list(range(1, 11))
    assert [x.body for x in contents] == [b"%d" % n for n in range(1, 11)]
    assert {x.resource for x in contents} == {"a"}
    assert {decode_table(x.properties)[commands.TIMESTAMP] for x in contents} == {START_US}


def test_a_packed_reader_gets_chunks(client: Client) -> None:
    contents = reading(client, packed=True).contents()
    assert [(x.sequence, commands.packed_count(x.properties)) for x in contents] == [(1, 5), (6, 5)]
    assert {commands.delivery_timestamp(x.properties) for x in contents} == {START_US}
    assert [b for x in contents for b in unpacked(x)] == [b"%d" % n for n in range(1, 11)]


def test_properties_are_read_as_they_were_written(client: Client) -> None:
    client.create("p")
    client.flow(client.writer("p")).content(1, b"x", properties={"kind": "test", "n": 7})
    flow = client.flow(client.reader("p"))
    flow.summon("p")
    (content,) = flow.contents()
    assert decode_table(content.properties) == {"kind": "test", "n": 7, commands.TIMESTAMP: START_US}


@pytest.mark.parametrize("start", [1, 3, 5, 6, 10, 11])
@pytest.mark.parametrize("until", [None, 1, 4, 6, 8, 11, 50])
def test_plain_readers_get_exactly_their_range(client: Client, start: int, until: int | None) -> None:
    flow = reading(client, start=start, until=until)
    assert flow.numbers() == list(range(start, min(until or 11, 11)))


@pytest.mark.parametrize(
    ("start", "until", "chunks"), [(3, None, [1, 6]), (3, 5, [1]), (6, 7, [6]), (1, 6, [1]), (11, None, [])]
)
def test_packed_readers_get_whole_chunks_at_the_ends_of_their_range(
    client: Client, start: int, until: int | None, chunks: list[int]
) -> None:
    assert reading(client, packed=True, start=start, until=until).numbers() == chunks


def test_new_contents_are_delivered(client: Client) -> None:
    flow = reading(client, start="latest")
    assert flow.numbers() == []
    client.fill("a", [b"new"])
    assert flow.bodies() == [b"new"]


def test_only_synced_contents_are_sent(rig: Rig, client: Client) -> None:
    flow = reading(client, start="latest")
    rig.disk.fail("sync")
    client.fill("a", [b"new"])
    assert flow.numbers() == []
    assert client.describe("a").next == 11


def test_no_contents_are_sent_before_the_summon(client: Client) -> None:
    flow = client.flow(client.reader("a"))
    client.fill("a", [b"new"])
    assert flow.contents() == []


# --- the window ---------------------------------------------------------------------------------------------


def test_the_window_bounds_contents(client: Client) -> None:
    flow = reading(client, window=window(4))
    assert flow.numbers() == [1, 2, 3, 4]
    flow.confirm(1)
    flow.confirm(3)
    assert flow.numbers() == [5, 6, 7]


def test_the_window_bounds_stored_octets(client: Client) -> None:
    whole = client.describe("a").bytes or 0
    flow = reading(client, window=window(None, whole // 4))
    sent = flow.numbers()
    assert 1 <= len(sent) < 6
    flow.confirm(sent[-1])
    assert flow.numbers() == list(range(sent[-1] + 1, sent[-1] + 1 + len(sent)))


def test_large_packs_in_local_files_count_only_their_contents_in_the_window() -> None:
    """They use no memory of the reader. A small pack is sent, and its octets count."""
    client = Rig(local_reads=LocalReads("here", control.LocalFiles(directory="/data", key="secret"))).client()
    client.create("a")
    size = limits.LOCAL_FROM // 2
    small, large = [bytes(size - 1_000)], [bytes(size), bytes(size)]
    flow = client.flow(client.writer("a", packed=True))
    for first, pack in zip((1, 3, 5, 7, 9, 10), (large, large, large, large, small, small), strict=True):
        flow.pack(first, pack)
    flow = reading(client, packed=True, local="here", window=window(8, size))
    assert flow.numbers() == [1, 3, 5, 7]
    flow.confirm(8)
    assert flow.numbers() == [9]
    flow.confirm(9)
    assert flow.numbers() == [10]


@pytest.mark.parametrize("packed", [False, True])
def test_the_smallest_window_admits_one_content_or_pack(client: Client, packed: bool) -> None:
    """Otherwise a pack larger than the window would never be sent."""
    flow = reading(client, packed=packed, window=window(1, 1))
    sequences = []
    for _ in range(20):
        contents = flow.contents()
        assert len(contents) <= 1
        for content in contents:
            count = commands.packed_count(content.properties) or 1
            sequences += list(range(content.sequence, content.sequence + count))
            flow.confirm(sequences[-1])
    assert sequences == list(range(1, 11))


@pytest.mark.requirement("MTL-91", "MTL-93")
@pytest.mark.parametrize(
    ("confirms", "more"),
    [
        ([(2, False)], 1),
        ([(2, False), (2, False)], 1),
        ([(3, False), (1, False)], 2),
        ([(2, True)], 2),
        ([(3, True)], 3),
        ([(4, True)], 0),
        ([(4, False)], 0),
        ([(0, True)], 0),
        ([(99, True)], 0),
    ],
)
def test_confirm_opens_the_window_only_for_sent_contents(
    client: Client, confirms: list[tuple[int, bool]], more: int
) -> None:
    flow = reading(client, window=window(3))
    assert flow.numbers() == [1, 2, 3]
    for sequence, multiple in confirms:
        flow.confirm(sequence, multiple)
    assert flow.numbers() == list(range(4, 4 + more))


def test_a_single_confirm_settles_a_pack_only_by_its_last_number(client: Client) -> None:
    flow = reading(client, packed=True, window=window(5))
    assert flow.numbers() == [1]
    for number in (1, 3, 4):
        flow.confirm(number, multiple=False)
    flow.confirm(4)
    assert flow.numbers() == []
    flow.confirm(5, multiple=False)
    assert flow.numbers() == [6]


@pytest.mark.requirement("MTL-85")
def test_confirm_none_has_no_window(client: Client) -> None:
    flow = reading(client, confirm="none", window=window(1))
    assert flow.numbers() == list(range(1, 11))
    flow.confirm(3)
    flow.reject(4, recycle=True)
    assert flow.numbers() == []


def test_the_default_window(rig: Rig, client: Client) -> None:
    client.create("many")
    flow = client.flow(client.writer("many", packed=True))
    flow.pack(1, [b""] * 5_000)
    reader = client.flow(client.reader("many"))
    reader.summon("many")
    assert reader.numbers() == list(range(1, broker_limits.WINDOW_CONTENTS + 1))


def test_a_turn_of_a_reader_is_bounded_in_octets(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_limits, "TURN_OCTETS", 1)
    flows = [client.flow(client.reader("a", packed=True)) for _ in range(2)]
    for flow in flows:
        flow.queue(*commands.encode(commands.Summon(9, "a")))
    rig.broker.advance()
    rig.carry_out(rig.broker.pop_actions())
    assert [len(flow.sent()) for flow in flows] == [2, 2]  # a Response and one chunk
    assert rig.broker.busy
    rig.run()
    assert [flow.numbers() for flow in flows] == [[6], [6]]


# --- Reject -------------------------------------------------------------------------------------------------


def test_chunks_prepared_for_a_full_queue_are_bounded(rig: Rig, client: Client) -> None:
    """Chunks prepared behind the first one without room are wasted work, repeated with every retry."""
    client.fill("a", [b"%d" % n for n in range(2 * broker_limits.TURN_SENDS)])  # each in a chunk of its own
    flow = client.flow(client.reader("a", packed=True, window=window(contents=10_000)))
    rig.sockets.room[flow.peer] = 1
    flow.queue(*commands.encode(commands.Summon(99, "a")))
    rig.broker.advance()
    made = rig.broker.pop_actions()
    assert sum(isinstance(action, actions.Deliver) for action in made) == broker_limits.TURN_SENDS
    rig.carry_out(made)
    del rig.sockets.room[flow.peer]
    rig.run()
    rig.sleep(1)
    assert sum(isinstance(x, commands.Content) for x in flow.sent()) == 2 * broker_limits.TURN_SENDS + 2


@pytest.mark.requirement("MTL-88", "MTL-94", "MTL-95")
def test_reject_without_recycle_settles_and_counts(rig: Rig, client: Client) -> None:
    flow = reading(client, window=window(3))
    flow.sent()
    flow.reject(2)
    flow.reject(3, multiple=True)
    assert flow.numbers() == [4, 5, 6]
    assert rig.broker.statistics()["readers-rejected"] == 2


@pytest.mark.requirement("MTL-96", "MTL-98")
def test_a_recycled_content_stays_unsettled_until_the_next_bind(client: Client) -> None:
    lease = client.reader("a", window=window(3))
    flow = client.flow(lease)
    flow.summon("a")
    flow.sent()
    flow.confirm(1)
    flow.reject(2, recycle=True)
    flow.confirm(3, multiple=False)
    assert flow.numbers() == [4, 5]
    again = client.flow(lease)
    again.summon("a")
    assert again.numbers() == [2, 3, 4]


# --- flows come and go --------------------------------------------------------------------------------------


def test_a_rebind_clears_summons_and_starts_at_the_lowest_unsettled(client: Client) -> None:
    lease = client.reader("a", window=window(4))
    flow = client.flow(lease)
    flow.summon("a")
    flow.sent()
    flow.confirm(2)
    assert flow.numbers() == [5, 6]
    again = client.flow(lease)
    assert again.contents() == []
    again.summon("a")
    assert again.numbers() == [3, 4, 5, 6]
    flow.confirm(6)
    assert (flow.sent(), again.numbers()) == ([], [])


def test_without_confirmation_a_rebind_continues_after_the_last_sent(client: Client) -> None:
    lease = client.reader("a", confirm="none", until=6)
    flow = client.flow(lease)
    flow.summon("a")
    assert flow.numbers() == [1, 2, 3, 4, 5]
    again = client.flow(lease)
    again.summon("a")
    assert again.numbers() == []


def test_a_repeated_lease_command_changes_nothing(client: Client) -> None:
    lease = client.reader("a", window=window(2))
    flow = client.flow(lease)
    flow.summon("a")
    flow.sent()
    assert flow.lease(lease.lease) == 200
    flow.confirm(1)
    assert flow.numbers() == [3]


@pytest.mark.requirement("MTL-77", "MTL-82")
def test_a_summon_after_a_dismiss_continues_after_the_last_sent(client: Client) -> None:
    flow = reading(client, window=window(3))
    assert flow.numbers() == [1, 2, 3]
    assert flow.dismiss("a") == 200
    flow.confirm(2)  # contents in flight stay confirmable (PROTOCOL.md 5.2)
    assert flow.contents() == []
    assert flow.summon("a") == 200
    assert flow.numbers() == [4, 5]


# --- full queues, lost peers and damage ---------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("confirm", ["full", "none"])
def test_a_peer_without_room_is_paused_and_gets_every_content(
    rig: Rig, client: Client, packed: bool, confirm: str
) -> None:
    flow = client.flow(client.reader("a", packed=packed, confirm=confirm))
    flow.room(2)  # the Response, and one more
    flow.summon("a")
    contents = list(flow.contents())
    for _ in range(20):
        flow.room(1)
        rig.sleep(broker_limits.BLOCKED_RETRY_S)
        contents += flow.contents()
    assert [x.sequence for x in contents] == ([1, 6] if packed else list(range(1, 11)))
    assert rig.broker.statistics()["readers-blocked"] > 0
    assert not rig.broker.busy


def test_a_frame_of_a_blocked_peer_resumes_sending(client: Client) -> None:
    flow = client.flow(client.reader("a"))
    flow.room(4)
    flow.summon("a")
    assert flow.numbers() == [1, 2, 3]
    flow.room(None)
    flow.send(commands.Pong())
    assert flow.numbers() == list(range(4, 11))


def test_order_is_kept_if_room_appears_in_the_middle_of_a_round(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first chunk did not fit and the second would: sending the second would leave a gap."""
    flow = client.flow(client.reader("a"))
    send = rig.sockets.send
    answers = iter([True, True, False])

    def moody(*frames: Any) -> Any:
        refuse = frames[0] == flow.peer and not next(answers, True)
        if refuse:
            flow.room(0)
        sent = send(*frames)
        flow.room(None)
        return sent

    monkeypatch.setattr(rig.sockets, "send", moody)
    flow.summon("a")
    assert flow.numbers() == [1]
    rig.sleep(1)
    assert flow.numbers() == list(range(2, 11))


@pytest.mark.parametrize(("confirm", "after"), [("full", 1), ("none", 4)])
def test_a_peer_lost_during_delivery_gets_the_rest_after_its_rebind(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch, confirm: str, after: int
) -> None:
    lease = client.reader("a", confirm=confirm)
    flow = client.flow(lease)
    send = rig.sockets.send
    left = iter([True] * 4)

    def vanishing(*frames: Any) -> Any:
        if frames[0] == flow.peer and not next(left, False):
            flow.vanish()
        return send(*frames)

    monkeypatch.setattr(rig.sockets, "send", vanishing)
    flow.summon("a")
    assert flow.numbers() == [1, 2, 3]
    again = client.flow(lease)
    again.summon("a")
    assert again.numbers() == list(range(after, 11))


def test_a_reader_behind_retention_continues_at_the_earliest_content() -> None:
    rig = Rig(segment_bytes=2_000)
    client = rig.client()
    client.create("a", retention=control.Retention(contents=2))
    client.fill("a", [bytes(600)] * 4)
    flow = reading(client, window=window(1))
    assert flow.numbers() == [1]
    client.fill("a", [bytes(600)] * 8)
    rig.sleep(6)
    earliest = client.describe("a").earliest
    assert earliest > 3
    flow.confirm(1)
    assert flow.numbers() == [earliest]


@pytest.fixture
def damaged() -> Client:
    """Contents 1 to 4 of 1,000 octets each in segments of their own; the last sealed segment is damaged."""
    rig = Rig(segment_bytes=1_200)
    client = rig.client()
    client.create("a", "b")
    client.fill("a", [bytes(1_000)] * 4)
    rig.restart()
    client = rig.client()
    found = rig.broker.parts.resources.find("/", "a")
    assert found is not None
    assert found.log is not None
    ref = cast(LogReader, found.log).snapshot().find(3)
    assert ref is not None
    rig.disk.flip(f"/data/{found.intake.key}/{ref.segment:020d}.segment", ref.offset + 200)
    return client


def test_a_damaged_chunk_ends_the_lease_and_refuses_the_next_with_the_cause(damaged: Client) -> None:
    lease = damaged.reader("a")
    flow = damaged.flow(lease)
    flow.summon("a")
    assert flow.numbers() == [1, 2]
    assert not flow.ponged()
    refused = damaged.refused(control.ConnectionReader(resources=["a"], from_=3))
    assert (refused.status, refused.reason) == (503, control.STORAGE)
    assert "damaged" in refused.message
    behind = damaged.flow(damaged.reader("a", start=4))
    behind.summon("a")
    assert behind.numbers() == [4]
    damaged.fill("b", [b"x"])
    assert damaged.read("b") == [b"x"], "others are served"


def test_a_failed_read_ends_the_lease_and_refuses_the_next_with_the_cause(rig: Rig, client: Client) -> None:
    """Otherwise a waiting reader would never get the reason."""
    rig.restart()
    client = rig.client()
    client.create("b")
    client.fill("b", [b"x"])
    flow = client.flow(client.reader("a", start=1))
    rig.disk.fail("read", count=1_000, when=lambda path: path.endswith(".segment"))
    flow.summon("a")
    assert flow.numbers() == []
    assert not flow.ponged()
    refused = client.refused(control.ConnectionReader(resources=["a"], from_=1))
    assert (refused.status, refused.reason) == (503, control.STORAGE)
    assert "Input/output error" in refused.message
    description = client.describe("a")
    assert description.state == "serving"
    assert "Input/output error" in (description.trouble or "")
    assert client.describe("b").trouble is None
    assert client.read("b") == [b"x"], "others are served"
    rig.disk.heal()
    flow = client.flow(client.reader("a", start=1))
    flow.summon("a")
    assert flow.numbers() == list(range(1, 11))
    assert client.describe("a").trouble is None


def test_a_failed_read_of_an_index_affects_only_its_reader(client: Client) -> None:
    """The index of a cold segment is read when a reader reaches it; the loop must survive every failure there."""
    rig = Rig(segment_bytes=1_200)
    client = rig.client()
    client.create("a", "b")
    client.fill("a", [bytes(1_000)] * 4)
    rig.restart()
    client = rig.client()
    rig.disk.fail("read", count=100)
    flow = client.flow(client.reader("a", start=1))
    flow.summon("a")
    assert flow.numbers() == []
    assert client.describe("a").next == 5
    assert client.refused(control.ConnectionReader(resources=["a"], from_=1)).reason == control.STORAGE
    rig.disk.heal()
    flow = client.flow(client.reader("a", start=1))
    flow.summon("a")
    assert flow.numbers() == [1, 2, 3, 4]


def test_a_stored_pack_that_does_not_decode_ends_only_its_reader(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Undecodable octets in a log end the leases that decode them, never the broker."""
    client.create("b")
    client.fill("b", [b"x"])
    resource = rig.broker.parts.resources.find("/", "a")
    assert resource is not None
    assert resource.log is not None
    chunk = resource.log.tail(1)
    assert chunk is not None
    bad = Chunk(chunk.ref, memoryview(b"no pack"))
    tail = resource.log.tail
    monkeypatch.setattr(resource.log, "tail", lambda n: bad if n <= 5 else tail(n))
    monkeypatch.setattr(resource.log, "answer_from_memory", lambda _: (bad,))
    flow = client.flow(client.reader("a", start=1))
    flow.summon("a")
    assert flow.contents() == []
    refused = client.refused(control.ConnectionReader(resources=["a"], from_=1))
    assert (refused.status, refused.reason) == (503, control.STORAGE)
    assert re.search(in_order("1 to 5", "Arrow"), refused.message)
    assert client.read("b") == [b"x"], "others are served"


# --- reads --------------------------------------------------------------------------------------------------


@pytest.fixture
def cold() -> Rig:
    """Resources a and b with 200 contents of 1,000 octets each, none of them in memory."""
    rig = Rig(segment_bytes=20_000)
    client = rig.client()
    client.create("a", "b")
    for name in ("a", "b"):
        for n in range(200):
            client.fill(name, [bytes([n]) * 1_000])
    rig.restart()
    return rig


def test_a_slow_read_delays_only_its_reader(cold: Rig) -> None:
    client = cold.client()
    slow = client.flow(client.reader("a", start=1))
    cold.hold(Read)
    slow.summon("a")
    assert slow.numbers() == []
    assert [type(action) for action in cold.held] == [Read]
    client.fill("a", [b"new"])
    late = client.flow(client.reader("a", start=201))
    late.summon("a")
    assert late.numbers() == [201]
    cold.let_go()
    assert slow.numbers() == list(range(1, 202))


def test_contents_are_read_ahead_during_sending(cold: Rig) -> None:
    client = cold.client()
    flow = client.flow(client.reader("a", start=1, window=control.Window(contents=10, bytes=1 << 20)))
    flow.summon("a")
    received = flow.numbers()
    cold.hold(Read)
    while received[-1] < READ_AHEAD_CHUNKS:
        flow.confirm(received[-1])
        received += flow.numbers()
    (ahead,) = cold.held
    assert isinstance(ahead, Read)
    assert ahead.query == Contents(65, 201, READ_AHEAD_OCTETS, READ_AHEAD_CHUNKS)
    cold.let_go()
    while received[-1] < 200:
        flow.confirm(received[-1])
        received += flow.numbers()
    assert received == list(range(1, 201))


def test_the_result_of_a_read_is_dropped_if_its_reader_is_closed(cold: Rig) -> None:
    client = cold.client()
    lease = client.reader("a", start=1)
    flow = client.flow(lease)
    cold.hold(Read)
    flow.summon("a")
    client.ask(control.LeaseClose(lease=lease.lease), control.LeaseClosed)
    cold.let_go()
    assert flow.numbers() == []
    assert cold.broker.parts.readers.busy is False


def test_a_rebound_reader_starts_with_its_unconfirmed_contents(cold: Rig) -> None:
    client = cold.client()
    lease = client.reader("a", start=1, window=control.Window(contents=80, bytes=1 << 20))
    flow = client.flow(lease)
    flow.summon("a")
    assert flow.numbers() == list(range(1, 81))
    flow.confirm(70)
    again = client.flow(lease)
    again.summon("a")
    assert again.numbers()[:10] == list(range(71, 81))


def test_contents_removed_by_retention_during_a_read_are_skipped(cold: Rig) -> None:
    client = cold.client()
    flow = client.flow(client.reader("a", start=1))
    cold.hold(Read)
    flow.summon("a")
    resource = cold.broker.parts.resources.need("/", "a")
    kept = [info.base for info in cast(LogReader, resource.log).segments()][3]
    begin(cold.broker.parts.resources.trimmed(resource, kept)).when_known(lambda: resource.intake.trim(kept))
    resource.intake.change(lambda number: Trim(number, resource.intake.key, kept))
    cold.run()
    cold.let_go()
    assert flow.numbers() == list(range(kept, 201))


def test_local_readers_get_places_of_cold_chunks_and_of_the_tail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "LOCAL_FROM", 500)
    rig = Rig(local_reads=LocalReads("m", control.LocalFiles(directory="/data", key="k")))
    client = rig.client()
    client.create("a")
    client.fill("a", [bytes(1_000)])
    rig.restart()
    client = rig.client()
    client.fill("a", [bytes(1_000)])
    lease = client.reader("a", start=1, packed=True, local="m")
    flow = client.flow(lease)
    flow.summon("a")
    contents = flow.contents()
    assert [bytes(x.body) for x in contents] == [b"", b""]
    places = [FileRange.of(x.properties) for x in contents]
    assert all(place is not None and place.file.endswith(".segment") for place in places)


# --- room by octets -----------------------------------------------------------------------------------------


def test_a_reader_without_room_reads_nothing_from_the_disk_until_there_is_some(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogReader, "tail", lambda *_: None)
    flow = reading(client, packed=True)
    flow.contents()
    flow.room(0)
    writer = client.flow(client.writer("a", packed=True))
    writer.pack(1, [b"x" * 100] * 50)
    rig.sockets.without_room.add(flow.peer)
    reads = len(rig.sockets.asked)
    before = rig.broker.statistics()["readers-blocked"]
    flow.room(None)
    rig.sleep(1)
    assert flow.contents() == []
    assert 0 < len(rig.sockets.asked) - reads < 200, "it asks at intervals"
    peer, owner, octets = rig.sockets.asked[-1]
    assert (peer, owner) == (flow.peer, "anonymous")
    assert 5_000 < octets < 10_000
    assert rig.broker.statistics()["readers-blocked"] == before, "nothing is prepared in vain"
    rig.sockets.without_room.clear()
    rig.sleep(0.1)
    assert [x.sequence for x in flow.contents()] == [11]


def test_contents_read_for_a_reader_leave_memory_with_its_flow(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogReader, "tail", lambda *_: None)
    lease = client.reader("a", packed=True)
    flow = client.flow(lease)
    flow.room(1)
    flow.summon("a")
    found = rig.broker.parts.leases.find(lease.lease)
    assert isinstance(found, ReaderLease)
    assert found.ahead.octets > 0
    rig.sockets.gone.add(flow.peer)
    rig.sleep(1)
    assert found.flow is None
    assert found.ahead.octets == 0
