from __future__ import annotations

from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mtl.errors import LocalError
from mtl.protocol.limits import RESEND_DELAY_S, RESEND_DELAY_TOP_S
from mtl.protocol.writing import RefusedContent, WriterFlow
from mtl.wire import commands
from mtl.wire.commands import packed_count, packed_properties
from mtl.wire.fields import EMPTY


def flow(contents: int = 100, octets: int = 10_000, *, confirm: bool = True) -> WriterFlow:
    return WriterFlow(contents, octets, confirm=confirm)


def publish(writer: WriterFlow, *counts: int) -> None:
    for count in counts:
        writer.publish("a", EMPTY if count == 1 else packed_properties(count), b"x" * count, count)


def taken(writer: WriterFlow, now: float = 0.0) -> list[int]:
    return [sent.first for sent in writer.pop_unsent(now, 100)]


def test_numbers_start_at_one_and_a_pack_has_one_per_content() -> None:
    writer = flow()
    publish(writer, 1, 1, 10, 1)
    assert taken(writer) == [1, 2, 3, 13]
    assert (writer.next, writer.unconfirmed, writer.confirmed) == (14, 13, 0)


def test_a_writer_continues_the_numbers_of_its_name() -> None:
    writer = flow()
    writer.start(41)
    publish(writer, 1)
    assert taken(writer) == [41]
    assert writer.confirmed == 40
    with pytest.raises(LocalError):
        writer.start(1)


def test_a_loss_of_the_broker_is_detected_by_its_last_number() -> None:
    writer = flow()
    publish(writer, 1, 1, 3, 1)
    taken(writer)
    assert writer.missing(0) == (1, 7)  # before the loss; after it all unconfirmed contents are resent
    writer.lost()
    assert writer.missing(0) is None
    taken(writer)
    writer.received(commands.Confirm(5, multiple=True), 0.0)
    writer.lost()
    assert [writer.missing(last) for last in (0, 2, 4, 5, 6)] == [(1, 6), (3, 6), (5, 6), None, None]


def test_a_number_of_a_refused_content_is_not_missing() -> None:
    writer = flow()
    publish(writer, 1, 1)
    taken(writer)
    writer.received(commands.Confirm(1, multiple=True), 0.0)
    writer.received(commands.Reject(2, multiple=False, recycle=False), 0.0)
    writer.lost()
    assert writer.missing(1) is None


@pytest.mark.requirement("MTL-90", "MTL-91")
def test_a_confirm_settles_one_or_all_up_to_its_number() -> None:
    writer = flow()
    publish(writer, 1, 1, 3, 1)
    taken(writer)
    assert writer.received(commands.Confirm(2, multiple=False), 0.0)
    assert (writer.unconfirmed, writer.confirmed) == (5, 0)
    assert writer.received(commands.Confirm(5, multiple=True), 0.0)
    assert (writer.unconfirmed, writer.confirmed, writer.octets) == (1, 5, 1 + len(EMPTY))
    assert writer.progressed == 3


@pytest.mark.requirement("MTL-93", "MTL-98")
@pytest.mark.parametrize(
    "command",
    [
        commands.Confirm(0, multiple=True),
        commands.Confirm(3, multiple=True),  # published, but never sent
        commands.Confirm(9, multiple=False),
        commands.Reject(0, multiple=True, recycle=False),
        commands.Reject(3, multiple=True, recycle=False),
        commands.Reject(9, multiple=False, recycle=True),
    ],
)
def test_unsent_contents_cannot_be_settled(command: commands.Confirm | commands.Reject) -> None:
    writer = flow()
    publish(writer, 1, 1)
    taken(writer)
    publish(writer, 1)
    assert not writer.received(command, 0.0)
    assert (writer.unconfirmed, list(writer.refused)) == (3, [])
    assert taken(writer) == [3]


def test_a_number_inside_a_pack_does_not_settle_the_pack() -> None:
    writer = flow()
    publish(writer, 10)
    taken(writer)
    assert not writer.received(commands.Confirm(4, multiple=False), 0.0)
    assert not writer.received(commands.Confirm(9, multiple=True), 0.0)
    assert writer.received(commands.Confirm(10, multiple=True), 0.0)


def test_the_window_always_admits_one_content() -> None:
    writer = flow(contents=5, octets=30)
    assert writer.room(1_000, 1_000)
    publish(writer, 1)
    assert writer.room(4, 20)
    assert not writer.room(5, 20)
    assert not writer.room(1, 30)


def test_contents_returned_by_a_full_socket_are_sent_first() -> None:
    for confirm in (True, False):
        writer = flow(confirm=confirm)
        publish(writer, 1, 1, 1)
        batch = writer.pop_unsent(0.0, 2)
        writer.push_unsent(batch[1:])
        assert taken(writer) == [2, 3]
        assert writer.due is None


def test_without_confirmation_no_contents_are_kept_or_resent() -> None:
    writer = flow(confirm=False)
    publish(writer, 1, 1)
    assert writer.unconfirmed == 2
    assert taken(writer) == [1, 2]
    assert writer.unconfirmed == 0
    publish(writer, 1)
    writer.received(commands.Reject(3, multiple=False, recycle=True), 0.0)
    writer.lost()
    assert taken(writer) == [3]
    assert taken(writer) == []


# --- sending again ------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-96")
def test_a_recycled_number_resends_all_unsettled_contents_after_a_pause() -> None:
    writer = flow()
    publish(writer, 1, 1, 1, 1)
    taken(writer)
    publish(writer, 1)
    writer.received(commands.Confirm(1, multiple=True), 9.0)
    assert not writer.received(commands.Reject(3, multiple=False, recycle=True), 10.0)
    assert writer.due == 10.0 + RESEND_DELAY_S
    assert taken(writer, 10.0) == []
    assert taken(writer, 10.0 + RESEND_DELAY_S) == [2, 3, 4, 5]


def test_a_gap_on_a_live_flow_is_filled() -> None:
    writer, peer = flow(), Peer()
    for identity in (0, 1, 3):
        writer.publish("a", EMPTY, b"%d" % identity)
    first, _lost, last = writer.pop_unsent(0.0, 100)
    for sent in (first, last):
        peer.content(sent.item)
    for now in range(1, 10):
        while peer.replies:
            writer.received(peer.replies.popleft(), float(now))
        for sent in writer.pop_unsent(now + 0.5, 100):
            peer.content(sent.item)
        peer.sync()
    assert (peer.stored, writer.unconfirmed) == ([0, 1, 3], 0)


def test_a_run_is_pushed_back_once() -> None:
    writer = flow()
    publish(writer, *[1] * 5)
    taken(writer)
    writer.received(commands.Reject(3, multiple=False, recycle=True), 0.0)
    due = writer.due
    writer.received(commands.Reject(4, multiple=False, recycle=True), 0.0)
    writer.received(commands.Reject(3, multiple=False, recycle=True), 0.0)
    assert (writer.due, taken(writer, 1.0)) == (due, [1, 2, 3, 4, 5])
    writer.received(commands.Confirm(2, multiple=True), 1.0)
    writer.received(commands.Reject(2, multiple=False, recycle=True), 1.0)
    assert taken(writer, 2.0) == []


def test_the_pause_doubles_up_to_a_bound_and_progress_resets_it() -> None:
    writer = flow()
    publish(writer, 1, 1)
    pauses = []
    now = 0.0
    for _ in range(12):
        taken(writer, now)
        writer.received(commands.Reject(1, multiple=False, recycle=True), now)
        pauses.append((writer.due or 0.0) - now)
        now = writer.due or 0.0
    assert pauses[:3] == pytest.approx([RESEND_DELAY_S * 2**n for n in range(3)])
    assert pauses[-1] == pytest.approx(RESEND_DELAY_TOP_S)
    taken(writer, now)
    writer.received(commands.Confirm(1, multiple=True), now)
    writer.received(commands.Reject(2, multiple=False, recycle=True), now)
    assert writer.due == pytest.approx(now + RESEND_DELAY_S)


def test_the_writer_records_whether_its_contents_were_sent_back() -> None:
    writer = flow()
    publish(writer, 1, 1)
    states, again = [writer.sent_back], commands.Reject(1, multiple=False, recycle=True)
    for now, came in enumerate((again, None, again, commands.Confirm(1, multiple=True))):
        taken(writer, now)
        if came is None:
            writer.lost()
        else:
            writer.received(came, now)
        states.append(writer.sent_back)
    assert states == [False, True, False, True, False]


def test_a_refused_content_is_recorded_and_its_number_used_up() -> None:
    writer = flow()
    publish(writer, 1, 10, 1)
    taken(writer)
    assert writer.received(commands.Reject(11, multiple=False, recycle=False), 0.0)
    assert list(writer.refused) == [RefusedContent("a", 2, 11)]
    assert writer.received(commands.Confirm(12, multiple=True), 0.0)
    assert (writer.unconfirmed, writer.confirmed) == (0, 12)


def test_the_number_of_a_refused_content_is_used_up_again_on_a_new_flow() -> None:
    writer = flow()
    publish(writer, 1, 1, 1)
    taken(writer)
    writer.received(commands.Confirm(1, multiple=True), 0.0)
    writer.received(commands.Reject(2, multiple=False, recycle=False), 0.0)
    writer.lost()
    assert taken(writer) == [2, 3]
    assert not writer.received(commands.Reject(2, multiple=False, recycle=False), 0.0)
    assert len(writer.refused) == 1
    writer.received(commands.Confirm(3, multiple=True), 0.0)
    writer.lost()
    assert taken(writer) == []


def test_a_confirm_does_not_drop_a_refused_content_awaiting_its_resend() -> None:
    writer = flow()
    publish(writer, 1, 1, 1)
    taken(writer)
    writer.received(commands.Reject(2, multiple=False, recycle=False), 0.0)
    writer.received(commands.Reject(1, multiple=False, recycle=True), 0.0)  # the disk did not keep it
    assert [sent.first for sent in writer.pop_unsent(1.0, 1)] == [1]
    writer.received(commands.Confirm(1, multiple=True), 1.0)
    assert taken(writer, 1.0) == [2, 3]


def test_unconfirmed_contents_are_resent_after_a_loss_in_identical_frames() -> None:
    writer = flow()
    publish(writer, 1, 5, 1)
    first = [sent.item for sent in writer.pop_unsent(0.0, 100)]
    writer.received(commands.Confirm(1, multiple=True), 0.0)
    writer.lost()
    assert [sent.item for sent in writer.pop_unsent(0.0, 100)] == first[1:]


# --- against a peer that loses, pushes back, refuses and crashes --------------------------------------------


class Peer:
    """A broker by PROTOCOL.md 5.4: no gaps accepted, duplicates confirmed, the durable prefix confirmed."""

    def __init__(self) -> None:
        self.stored: list[int] = []
        """Identities of contents that are durable, in order."""
        self.pending: list[tuple[int, list[int]]] = []
        self.durable = 0
        self.highest_received = 0
        """The highest number that came on this flow. Nothing is confirmed before it came: the Confirm would also cover
        a number whose Reject was lost with the flow before."""
        self.expected = 1
        self.resumed = False
        self.gapped = False
        self.overloaded = False
        self.replies: deque[commands.Confirm | commands.Reject] = deque()

    def content(self, content: commands.Content) -> None:
        count = packed_count(content.properties) or 1
        last = content.sequence + count - 1
        if self.resumed and content.sequence <= self.expected:
            self.expected, self.resumed = content.sequence, False
        if content.sequence > self.expected:
            if not self.gapped:
                self.push_back(content.sequence)
            return
        self.gapped = False
        self.highest_received = max(self.highest_received, last)
        bodies = [int(part) for part in bytes(content.body).split(b",")]
        if any(identity % 5 == 2 for identity in bodies):
            self.expected = max(self.expected, last + 1)
            self.replies.append(commands.Reject(last, multiple=False, recycle=False))
            return
        taken = max([self.durable, *(number for number, _ in self.pending)])
        if last <= taken:
            self.expected = max(self.expected, last + 1)
            if last <= self.durable:
                self.replies.append(commands.Confirm(last, multiple=True))
            return
        assert content.sequence > taken, "partly stored: a resend was not the identical frame"
        if self.overloaded:
            self.overloaded = False
            self.push_back(content.sequence)
            return
        self.expected = last + 1
        self.pending.append((last, bodies))

    def push_back(self, sequence: int) -> None:
        self.gapped = True
        self.replies.append(commands.Reject(sequence, multiple=False, recycle=True))

    def sync(self) -> None:
        for last, bodies in self.pending:
            self.stored += bodies
            self.durable = last
        if self.pending and self.highest_received:
            self.replies.append(commands.Confirm(min(self.durable, self.highest_received), multiple=True))
        self.pending.clear()

    def fail(self) -> None:
        """The write of the group failed: its first number is requested again, and all that follow."""
        if self.pending:
            self.expected = self.pending[0][0] - len(self.pending[0][1]) + 1
            self.push_back(self.expected)
            self.pending.clear()

    def rebind(self) -> None:
        self.replies.clear()
        self.gapped = False
        self.highest_received = 0
        self.resumed = True

    def crash(self) -> None:
        self.rebind()
        self.pending.clear()
        self.expected = self.durable + 1


class Writing(RuleBasedStateMachine):
    """The writer and its connection, lost and crashed at any moment."""

    @initialize()
    def begin(self) -> None:
        self.writer = WriterFlow(50, 100_000)
        self.peer = Peer()
        self.wire: deque[commands.Content] = deque()
        self.published: list[int] = []
        self.now = 0.0

    @rule(count=st.integers(1, 4))
    def publish(self, count: int) -> None:
        first = len(self.published)
        bodies = list(range(first, first + count))
        body = b",".join(b"%d" % identity for identity in bodies)
        if self.writer.room(count, len(body)):
            self.published += bodies
            properties = EMPTY if count == 1 else packed_properties(count)
            self.writer.publish("a", properties, body, count)

    @rule(most=st.integers(1, 10), accepted=st.integers(0, 10))
    def send(self, most: int, accepted: int) -> None:
        batch = self.writer.pop_unsent(self.now, most)
        self.wire.extend(sent.item for sent in batch[:accepted])
        self.writer.push_unsent(batch[accepted:])

    @precondition(lambda self: self.wire)
    @rule(count=st.integers(1, 10))
    def deliver(self, count: int) -> None:
        for _ in range(min(count, len(self.wire))):
            self.peer.content(self.wire.popleft())

    @precondition(lambda self: len(self.wire) > 1 and not self.peer.resumed and not self.peer.gapped)
    @rule(at=st.integers(0, 100))
    def lose(self, at: int) -> None:
        """A gap on a live flow. Later contents reveal it: a loss without disconnection never affects the first contents
        of a flow, contents requested by the broker, or the last content.
        """
        del self.wire[at % (len(self.wire) - 1)]

    @rule()
    def sync(self) -> None:
        self.peer.sync()

    @precondition(lambda self: self.peer.replies)
    @rule()
    def reply(self) -> None:
        self.writer.received(self.peer.replies.popleft(), self.now)

    @rule()
    def overload(self) -> None:
        self.peer.overloaded = True

    @rule()
    def fail(self) -> None:
        self.peer.fail()

    @rule(seconds=st.floats(0.001, 2.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def cut(self) -> None:
        self.wire.clear()
        self.peer.rebind()
        self.writer.lost()

    @rule()
    def crash(self) -> None:
        self.wire.clear()
        self.peer.crash()
        self.writer.lost()

    @invariant()
    def what_is_confirmed_is_durable(self) -> None:
        assert self.writer.confirmed - len(self.refused_numbers) <= self.peer.durable or self.writer.refused

    @property
    def refused_numbers(self) -> set[int]:
        return {n for sent in self.writer.refused for n in range(sent.first, sent.last + 1)}

    def teardown(self) -> None:
        for _ in range(1_000):
            if not self.writer.unconfirmed:
                break
            self.now += RESEND_DELAY_TOP_S
            self.send(100, 100)
            self.deliver(100)
            self.sync()
            while self.peer.replies:
                self.reply()
        assert self.writer.unconfirmed == 0
        assert self.writer.confirmed == len(self.published)
        # Numbers count from 1, identities from 0.
        assert self.peer.stored == [i for i in self.published if i + 1 not in self.refused_numbers]


Writing.TestCase.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
TestWriting = Writing.TestCase
