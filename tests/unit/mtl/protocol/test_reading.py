from __future__ import annotations

from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mtl.errors import Malformed
from mtl.limits import CREDIT_DELAY_S
from mtl.protocol.reading import Delivery, Gap, PlainRun, ReaderFlow
from mtl.wire import commands
from mtl.wire.commands import COUNT, packed_properties
from mtl.wire.fields import EMPTY, encode_table
from mtl.wire.ranges import FILE, FileRange


def content(first: int, count: int | None = None, size: int = 10) -> commands.Content:
    properties = EMPTY if count is None else packed_properties(count, 1_000_000)
    return commands.Content(first, "a", properties, b"x" * size)


def reader(start: int | None = 1, until: int | None = None, *, packed: bool = False) -> ReaderFlow:
    flow = ReaderFlow(start, until, packed=packed)
    flow.granted(start or 1, 100, 1_000)
    return flow


def delivered(meaning: Delivery | Gap | None) -> tuple[int, int, int] | None:
    assert not isinstance(meaning, Gap)
    return meaning[:3] if meaning is not None else None


def test_contents_are_delivered_in_order_and_once() -> None:
    flow = reader()
    assert delivered(flow.received(content(1))) == (1, 2, 0)
    assert flow.received(content(1)) is None
    assert delivered(flow.received(content(2))) == (2, 3, 0)
    flow.lost()
    assert [flow.received(content(n)) for n in (1, 2)] == [None, None]
    assert delivered(flow.received(content(3))) == (3, 4, 0)


def run(flow: ReaderFlow, first: int, *sizes: int) -> tuple[int, int] | None:
    found = flow.received_run(content(1), first, [b"x" * size for size in sizes])
    return (found.first, found.end) if found is not None else None


def test_runs_of_contents_are_at_most_a_quarter_of_the_window() -> None:
    flow = reader(until=90)  # the window: 100 contents, 1,000 octets
    assert run(flow, 1, *[0] * 30) == (1, 26)
    assert run(flow, 26, 100, 100, 100) == (26, 28)
    assert run(flow, 28, 900, 1) == (28, 29), "one is always taken"
    flow.finish(30)
    assert flow.credit(1.0) == commands.Confirm(28, multiple=True)
    for first in (29, 54, 79):
        assert run(flow, first, *[0] * 25) == (first, min(first + 25, 90))
    assert flow.ended
    narrow = ReaderFlow(1)
    narrow.granted(1, 3, 0)
    assert run(narrow, 1, 0, 0, 0) == (1, 2), "one is always taken"
    endless = ReaderFlow(1)  # no window: nothing is confirmed
    assert run(endless, 1, *[100] * 300) == (1, 301)


def test_a_run_must_start_with_the_next_content() -> None:
    assert run(ReaderFlow(None), 1, 1) is None
    assert run(reader(packed=True), 1, 1) is None
    flow = reader()
    assert run(flow, 2, 1) is None
    assert flow.received(content(2)) == Gap(1, 2)
    assert run(flow, 1, 1) is None


def test_a_part_of_a_run_may_be_finished() -> None:
    flow = reader()
    assert run(flow, 1, *[100, 100]) == (1, 3)
    assert run(flow, 3, 50) == (3, 4)
    flow.finish(2)
    assert flow.credit(1.0, idle=True) == commands.Confirm(1, multiple=True)
    flow.finish(4)
    assert flow.credit(2.0, idle=True) == commands.Confirm(3, multiple=True)


def test_a_pack_is_cut_to_the_range() -> None:
    flow = reader(5, 12, packed=True)
    assert delivered(flow.received(content(1, 8))) == (5, 9, 4)
    assert delivered(flow.received(content(9, 10))) == (9, 12, 0)
    assert flow.ended
    assert flow.received(content(19, 1)) is None


def lying(first: int, count: int, size: int) -> commands.Content:
    return commands.Content(first, "a", FileRange("/f", 7, size).properties(count, 1_000_000), b"")


def test_packs_in_local_files_count_contents_but_no_octets() -> None:
    flow = reader(packed=True)
    came, lies = flow.received(content(1, 3, size=500)), flow.received(lying(4, 3, 500))
    assert isinstance(came, Delivery)
    assert isinstance(lies, Delivery)
    assert (came.file_range, came.size) == (None, 500)
    assert (lies.file_range, lies.size) == (FileRange("/f", 7, 500), 0)
    flow.finish(4)
    assert flow.credit(5.0) == commands.Confirm(3, multiple=True)
    flow.finish(7)
    assert flow.credit(5.0) is None
    flow.received(lying(7, 47, 500))
    flow.finish(54)
    assert flow.credit(5.0) == commands.Confirm(53, multiple=True)


def test_an_incomplete_place_is_malformed() -> None:
    half = commands.Content(1, "a", encode_table({COUNT: 3, FILE: "/f"}), b"")
    with pytest.raises(Malformed):
        reader(packed=True).received(half)


def test_only_a_pack_without_body_is_in_a_local_file() -> None:
    """An application may choose any names for its properties."""
    named = encode_table({FILE: "mine"})
    for flow, body in ((reader(), b""), (reader(packed=True), b"x")):
        found = flow.received(commands.Content(1, "a", named, body))
        assert isinstance(found, Delivery)
        assert (found.file_range, found.size) == (None, len(body))


def test_a_pack_on_a_plain_lease_counts_as_one_content() -> None:
    assert delivered(reader().received(content(1, 8))) == (1, 2, 0)


def test_a_plain_content_on_a_packed_lease_is_one_content() -> None:
    assert delivered(reader(packed=True).received(content(1))) == (1, 2, 0)


def test_an_empty_range_ends_at_once() -> None:
    assert reader(5, 5).ended
    assert reader(5, 3).ended
    assert not reader(5, 6).ended


def test_a_gap_stops_delivery_until_the_position_is_set() -> None:
    flow = reader()
    flow.received(content(1))
    assert flow.received(content(5)) == Gap(2, 5)
    assert flow.received(content(2)) is None
    flow.restart(4)
    assert delivered(flow.received(content(4))) == (4, 5, 0)
    assert flow.received(content(6)) == Gap(5, 6)
    flow.lost()
    assert delivered(flow.received(content(5))) == (5, 6, 0)


def test_contents_of_another_copy_of_the_log_are_not_confirmed() -> None:
    flow = reader()
    for n in range(1, 6):
        flow.received(content(n))
    flow.finish(3)
    flow.restart(2)
    assert (flow.finished, flow.owes) == (2, False)
    assert delivered(flow.received(content(2))) == (2, 3, 0)
    flow.finish(3)
    assert flow.credit(1.0, idle=True) == commands.Confirm(2, multiple=True)


@pytest.mark.parametrize("at", [6, 8])
def test_finished_contents_are_confirmed_after_a_loss_behind_them(at: int) -> None:
    flow = reader()
    for n in range(1, 6):
        flow.received(content(n))
    flow.finish(3)
    flow.restart(at)
    assert (flow.finished, flow.owes) == (3, True)
    flow.finish(6)
    assert flow.credit(1.0, idle=True) == commands.Confirm(5, multiple=True)


def test_a_reader_without_a_position_may_restart_anywhere() -> None:
    flow = ReaderFlow(None)
    flow.restart(4)
    assert delivered(flow.received(content(4))) == (4, 5, 0)


def test_a_lease_that_starts_later_than_requested_is_a_gap() -> None:
    flow = ReaderFlow(3)
    assert flow.granted(7, 10, 10) == Gap(3, 7)
    assert reader(None).granted(1, 10, 10) is None


@pytest.mark.parametrize("sequence", [2, 9])
def test_contents_behind_the_end_are_not_delivered_and_not_a_gap(sequence: int) -> None:
    flow = reader(1, 2)
    flow.received(content(1))
    assert flow.received(content(sequence)) is None


def test_sequence_zero_is_malformed() -> None:
    with pytest.raises(Malformed):
        reader().received(content(0))


def test_the_position_of_latest_is_in_the_lease() -> None:
    flow = ReaderFlow(None)
    assert flow.granted(41, 10, 10) is None
    assert (flow.next, flow.finished) == (41, 41)
    assert delivered(ReaderFlow(None).received(content(9))) == (9, 10, 0)


# --- credit -------------------------------------------------------------------------------------------------


def test_credit_is_due_at_half_of_the_window_in_octets_or_contents() -> None:
    flow = reader(packed=True)
    flow.received(content(1, 20, size=100))
    flow.received(content(21, 20, size=400))
    flow.received(content(41, 50, size=1))
    flow.finish(21)
    assert flow.credit(5.0) is None
    flow.finish(40)
    assert flow.credit(5.0) is None, "the second pack is not done"
    flow.finish(41)
    assert flow.credit(5.0) == commands.Confirm(40, multiple=True)
    assert flow.credit(5.0) is None
    flow.finish(91)
    assert flow.credit(5.0) == commands.Confirm(90, multiple=True)


def test_credit_is_due_from_exactly_half_of_the_window_on() -> None:
    flow = reader()  # the window: 100 contents, 1,000 octets
    for sequence, size in ((1, 499), (2, 1)):
        flow.received(content(sequence, size=size))
    flow.finish(2)
    assert flow.credit(5.0) is None
    flow.finish(3)
    assert flow.credit(5.0) == commands.Confirm(2, multiple=True)
    for sequence in range(3, 53):
        flow.received(content(sequence, size=0))
    flow.finish(52)
    assert flow.credit(5.0) is None
    flow.finish(53)
    assert flow.credit(5.0) == commands.Confirm(52, multiple=True)


def test_a_reader_owes_only_finished_contents() -> None:
    flow = ReaderFlow(None)
    owes = [flow.owes]
    flow.received(content(1))
    owes.append(flow.owes)
    flow.finish(2)
    assert [*owes, flow.owes] == [False, False, True]
    assert flow.credit(CREDIT_DELAY_S, idle=True) == commands.Confirm(1, multiple=True)


def test_a_pack_before_the_start_is_confirmed_at_once() -> None:
    """The application does not get it, and it would take a part of the window for ever."""
    flow = reader(5, packed=True)
    assert flow.received(content(1, 4, size=500)) is None
    assert flow.credit(5.0) == commands.Confirm(4, multiple=True)


def test_an_idle_reader_confirms_finished_contents() -> None:
    flow = reader()
    for n in (1, 2):
        flow.received(content(n))
        flow.finish(n + 1)
    assert flow.credit(10.0) is None
    assert flow.credit(10.0, idle=True) == commands.Confirm(2, multiple=True)
    flow.received(content(3))
    flow.finish(4)
    assert flow.owes
    assert flow.credit(10.0 + CREDIT_DELAY_S / 2, idle=True) is None
    assert flow.credit_at == 10.0 + CREDIT_DELAY_S
    assert flow.credit(flow.credit_at, idle=True) == commands.Confirm(3, multiple=True)
    assert not flow.owes


def test_the_whole_pack_is_confirmed_even_if_the_range_ends_inside() -> None:
    flow = reader(1, 5, packed=True)
    flow.received(content(1, 10, size=900))
    flow.finish(5)
    assert flow.credit(1.0) == commands.Confirm(10, multiple=True)


def test_a_lost_confirm_is_repeated() -> None:
    flow = reader()
    for n in range(1, 4):
        flow.received(content(n))
    flow.finish(3)
    assert flow.credit(1.0, idle=True) == commands.Confirm(2, multiple=True)
    flow.lost()
    for n in range(1, 4):
        assert flow.received(content(n)) is None
    assert flow.credit(2.0, idle=True) == commands.Confirm(2, multiple=True), "3 is not done"
    flow.finish(4)
    assert flow.credit(3.0, idle=True) == commands.Confirm(3, multiple=True)


def test_repeated_contents_count_in_the_window() -> None:
    flow = reader(packed=True)  # the window: 100 contents
    flow.received(content(1, 60, size=0))
    flow.confirm(60, 1.0)
    flow.lost()
    assert flow.received(content(1, 60, size=0)) is None
    assert flow.credit(1.0) == commands.Confirm(60, multiple=True)


def test_an_explicit_confirm_counts_as_credit() -> None:
    flow = reader()
    for n in range(1, 6):
        flow.received(content(n))
    assert flow.confirm(4, 1.0) == commands.Confirm(4, multiple=True)
    assert (flow.finished, flow.owes) == (5, False)
    assert flow.confirm(2, 1.0) == commands.Confirm(2, multiple=True)
    assert flow.finished == 5


# --- against a peer that loses, repeats and forgets ---------------------------------------------------------


class Peer:
    """A broker by PROTOCOL.md 5.2: chunks in order within a window; a new flow starts at the lowest unsettled one."""

    def __init__(self, chunks: list[int], packed: bool) -> None:
        self.packed = packed
        self.chunks = [(1 + sum(chunks[:i]), count) for i, count in enumerate(chunks)]
        self.end = 1 + sum(chunks)
        self.earliest = 1
        self.begin(1)

    def begin(self, at: int) -> None:
        self.next = at
        self.unsettled: deque[tuple[int, int]] = deque()

    def rebind(self) -> None:
        self.begin(min([first for first, _ in self.unsettled], default=self.next))

    def send(self) -> commands.Content | None:
        self.next = max(self.next, self.earliest)
        for first, count in self.chunks:
            if first <= self.next < first + count:
                begin, taken = (first, count) if self.packed else (self.next, 1)
                held = sum(last - start + 1 for start, last in self.unsettled)
                if held and held + taken > 20:
                    return None
                self.unsettled.append((max(begin, self.next), begin + taken - 1))
                self.next = begin + taken
                return content(begin, count if self.packed else None)
        return None

    def confirm(self, confirm: commands.Confirm) -> None:
        sent = max([last for _, last in self.unsettled], default=0)
        if confirm.sequence > sent:
            return
        while self.unsettled and self.unsettled[0][1] <= confirm.sequence:
            self.unsettled.popleft()


class Reading(RuleBasedStateMachine):
    """The reader and its connection, lost at any moment, with a slow application and retention close behind."""

    @initialize(
        chunks=st.lists(st.integers(1, 30), min_size=1, max_size=15),
        packed=st.booleans(),
        start=st.integers(1, 5),
        short=st.integers(0, 5),
    )
    def begin(self, chunks: list[int], packed: bool, start: int, short: int) -> None:
        self.peer = Peer(chunks, packed)
        start = min(start, self.peer.end)
        self.until = max(start, self.peer.end - short)
        self.flow = ReaderFlow(start, self.until, packed=packed)
        self.peer.begin(start)
        self.flow.granted(start, 20, 1 << 20)
        self.start = start
        self.down: deque[commands.Content] = deque()
        self.up: deque[commands.Confirm] = deque()
        self.queue: deque[Delivery | PlainRun] = deque()
        self.seen: list[int] = []
        self.missing: list[int] = []
        self.now = 0.0

    @rule()
    def send(self) -> None:
        sent = self.peer.send()
        if sent is not None:
            self.down.append(sent)

    @precondition(lambda self: self.down)
    @rule()
    def receive(self) -> None:
        meaning = self.flow.received(self.down.popleft())
        if isinstance(meaning, Delivery):
            self.queue.append(meaning)
        elif isinstance(meaning, Gap):
            # What a client does: Describe, then a new lease where contents still are.
            assert self.flow.next is not None
            at = max(self.flow.next, min(self.peer.earliest, self.until))
            self.missing += range(self.flow.next, at)
            self.flow.restart(at)
            self.new_lease()

    @precondition(lambda self: self.down)
    @rule(most=st.integers(1, 10))
    def receive_row(self, most: int) -> None:
        first = self.down[0].sequence
        row = [
            content
            for at, content in zip(range(most), self.down, strict=False)
            if content.sequence == first + at
        ]
        run = self.flow.received_run(row[0], first, [content.body for content in row])
        if run is None:
            self.receive()
        else:
            self.queue.append(run)
            for _ in run.bodies:
                self.down.popleft()

    @precondition(lambda self: self.queue)
    @rule()
    def consume(self) -> None:
        delivery = self.queue.popleft()
        self.seen += range(delivery.first, delivery.end)
        self.flow.finish(delivery.end)

    @rule(idle=st.booleans())
    def credit(self, idle: bool) -> None:
        confirm = self.flow.credit(self.now, idle=idle)
        if confirm is not None:
            self.up.append(confirm)

    @precondition(lambda self: self.up)
    @rule()
    def confirm(self) -> None:
        self.peer.confirm(self.up.popleft())

    @rule()
    def wait(self) -> None:
        self.now += CREDIT_DELAY_S

    @rule()
    def cut(self) -> None:
        self.flow.lost()
        self.down.clear()
        self.up.clear()
        self.peer.rebind()

    @rule()
    def new_lease(self) -> None:
        self.cut()
        assert self.flow.next is not None
        if self.flow.next < self.peer.earliest:
            at = min(self.peer.earliest, self.until)
            self.missing += range(self.flow.next, at)
            self.flow.restart(max(at, self.flow.next))
        self.peer.begin(self.flow.next)
        assert self.flow.granted(self.flow.next, 20, 1 << 20) is None

    @rule(share=st.floats(0.0, 0.5))
    def retain(self, share: float) -> None:
        whole = [first for first, _ in self.peer.chunks] + [self.peer.end]
        self.peer.earliest = max(self.peer.earliest, whole[int(share * (len(whole) - 1))])

    @invariant()
    def nothing_twice_and_in_order(self) -> None:
        assert self.seen == sorted(set(self.seen))

    def teardown(self) -> None:
        for _ in range(2_000):
            self.send()
            if self.down:
                self.receive()
            if self.queue:
                self.consume()
            self.now += CREDIT_DELAY_S
            self.credit(idle=True)
            if self.up:
                self.confirm()
            if self.flow.ended and not self.queue:
                break
        assert self.flow.ended
        assert sorted(self.seen + self.missing) == list(range(self.start, self.until))


Reading.TestCase.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
TestReading = Reading.TestCase
