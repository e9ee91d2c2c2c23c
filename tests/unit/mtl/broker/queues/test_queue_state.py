"""The states of a queue's contents: the table, each transition, and a model with crashes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mtl.broker.queues import limits as queue_limits
from mtl.broker.queues.queue_state import MOVES, At, Letter, QueueEvent, QueueState, Run, backoff
from mtl.broker.queues.settled import Settled

END = 1_000


def state(low: int = 1, **more: Any) -> QueueState:
    return QueueState(Settled(low), **more)


def nobody_takes(_: int) -> bool:
    """No other consumer has room."""
    return False


def others_take(_: int) -> bool:
    """Another consumer has room."""
    return True


def take(queue: QueueState, most: int = 1, consumer: str = "a", *, alone: bool = False) -> Run | None:
    first = queue.peek(END, consumer, nobody_takes if alone else others_take)
    return None if first is None else queue.hand_out(first, first + most - 1, QueueEvent.DELIVER)


# --- the table ----------------------------------------------------------------------------------------------


def test_every_state_except_the_final_one_has_a_transition() -> None:
    reached = {At.READY}
    while True:
        more = reached | {after for at in reached for after in MOVES[at].values()}
        if more == reached:
            break
        reached = more
    assert reached == set(At)
    assert MOVES[At.SETTLED] == {}
    assert all(QueueEvent.GONE in MOVES[at] for at in At if at is not At.SETTLED)


def test_dead_is_entered_from_delivered_and_left_when_kept_or_gone() -> None:
    assert {at for at in At if At.DEAD in MOVES[at].values()} == {At.DELIVERED}
    assert set(MOVES[At.DEAD]) == {QueueEvent.KEPT, QueueEvent.GONE}


# --- handing out --------------------------------------------------------------------------------------------


def test_contents_are_handed_out_once_and_in_order() -> None:
    queue = state(5)
    assert [take(queue, 3), take(queue), take(queue, 2)] == [
        Run(5, 7, again=False),
        Run(8, 8, again=False),
        Run(9, 10, again=False),
    ]
    assert queue.peek(11, "a", nobody_takes) is None


def test_settled_contents_are_skipped() -> None:
    queue = QueueState(Settled(2, [(4, 6)]), doubtful=7)
    assert [take(queue, 10) for _ in range(3)] == [
        Run(2, 3, again=True),
        Run(6, 6, again=True),
        Run(7, 16, again=False),
    ]


@pytest.mark.requirement("MTL-96")
def test_released_contents_are_delivered_first() -> None:
    queue = state()
    take(queue, 4)
    queue.release([2, 3], left=True)
    assert take(queue, 10) == Run(2, 3, again=True)
    assert take(queue, 2) == Run(5, 6, again=False)


def test_a_released_content_that_was_never_sent_is_not_marked() -> None:
    queue = state()
    take(queue, 2)
    queue.release([1, 2], left=False)
    assert take(queue, 2) == Run(1, 2, again=False)
    assert queue.deliveries() == {}


# --- settling -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-87")
def test_confirmed_contents_are_settled_in_any_order() -> None:
    queue = state()
    take(queue, 4)
    queue.confirm([3, 4])
    assert (queue.settled.low, list(queue.settled), queue.held) == (1, [(3, 5)], 2)
    queue.confirm([1, 2])
    assert (queue.settled.low, queue.held, queue.unsettled(10)) == (5, 0, 5)


def test_claimed_contents_are_settled_in_the_record_before_sending() -> None:
    queue = state()
    queue.hand_out(1, 3, QueueEvent.CLAIM)
    assert (queue.settled.low, queue.claimed().low) == (1, 4)
    queue.sent([1])
    queue.release([2, 3], left=False)
    assert queue.claimed().low == queue.settled.low == 2
    assert take(queue, 5) == Run(2, 3, again=False)


@pytest.mark.requirement("MTL-88")
def test_a_rejected_content_stays_dead_until_its_letter_is_kept() -> None:
    queue = state()
    take(queue, 2)
    queue.reject([2])
    queue.confirm([1, 2])
    assert queue.letters == {2: Letter(1, "rejected", 1)}
    assert queue.settled.low == 2
    queue.letter_stored(2)
    assert (queue.settled.low, queue.letters, queue.buried) == (3, {}, 1)


@pytest.mark.requirement("MTL-96")
def test_delays_of_a_recycled_content_grow_until_it_is_dead() -> None:
    queue = state(max_deliveries=3)
    now = 10.0
    for delivery in (1, 2):
        take(queue, alone=True)
        queue.recycle([1], "a", now)
        due = queue.next_due or 0.0
        assert due == pytest.approx(now + backoff(delivery))
        assert not queue.end_backoffs(due - 0.001)
        assert queue.end_backoffs(due)
        now = due
    assert take(queue, alone=True) == Run(1, 1, again=True)
    queue.recycle([1], "a", now)
    assert queue.letters == {1: Letter(1, "deliveries", 3)}
    assert queue.next_due is None


def test_the_backoff_is_bounded() -> None:
    assert backoff(1) == queue_limits.QUEUE_BACKOFF_S
    assert backoff(3) == 4 * queue_limits.QUEUE_BACKOFF_S
    assert backoff(10_000) == queue_limits.QUEUE_BACKOFF_TOP_S


def test_a_recycled_content_goes_to_another_consumer_if_one_exists() -> None:
    queue = state()
    take(queue)
    queue.recycle([1], "a", 0.0)
    queue.end_backoffs(60.0)
    assert queue.peek(END, "a", others_take) == 2
    assert queue.peek(END, "b", others_take) == 1
    assert queue.peek(END, "a", nobody_takes) == 1


def test_a_delivery_counts_if_its_consumer_is_lost_but_not_if_released() -> None:
    queue = state(max_deliveries=2)
    take(queue, 2)
    queue.return_lost([1])
    queue.release([2], left=True)
    assert queue.deliveries() == {1: 1}
    assert take(queue, 2) == Run(1, 2, again=True)
    queue.return_lost([1, 2])
    assert queue.letters == {1: Letter(1, "deliveries", 2)}
    assert queue.deliveries() == {2: 1}


# --- bounds, retention, crashes -----------------------------------------------------------------------------


def test_at_the_limit_of_ranges_no_new_content_is_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_limits, "QUEUE_RANGES", 3)
    queue = state()
    take(queue, 8)
    queue.confirm([2, 4, 6])
    assert queue.peek(END, "a", nobody_takes) is None
    queue.return_lost([1])
    assert take(queue) == Run(1, 1, again=True)
    queue.confirm([1])
    assert queue.peek(END, "a", nobody_takes) == 9
    monkeypatch.setattr(queue_limits, "QUEUE_OUTSTANDING", 5)
    assert take(queue, 1) == Run(9, 9, again=False)
    assert queue.peek(END, "a", nobody_takes) is None
    monkeypatch.setattr(queue_limits, "QUEUE_OUTSTANDING", 100)
    monkeypatch.setattr(queue_limits, "QUEUE_RETURNED", 2)
    queue.recycle([3, 5], "a", 0.0)
    assert queue.peek(END, "a", nobody_takes) is None


def test_the_oldest_content_is_delivered_despite_too_many_ranges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_limits, "QUEUE_RANGES", 2)
    queue = QueueState(Settled(1, [(2, 3), (5, 6), (7, 8)]), doubtful=9)
    assert take(queue, 9) == Run(1, 1, again=True)
    assert take(queue, 9) is None
    queue.confirm([1])
    assert take(queue, 9) == Run(3, 4, again=True)
    queue.confirm([3, 4])
    assert take(queue, 9) == Run(6, 6, again=True)


def test_retention_removes_contents_in_any_state() -> None:
    queue = state()
    take(queue, 5)
    queue.recycle([1], "a", 0.0)
    queue.reject([2])
    queue.return_lost([3])
    queue.trim(5)
    assert (queue.settled.low, queue.held, queue.letters, queue.deliveries()) == (5, 1, {}, {})
    assert not queue.end_backoffs(100.0)
    queue.confirm([4, 5])
    assert (queue.settled.low, queue.next) == (6, 6)
    queue.trim(9)
    assert take(queue) == Run(9, 9, again=False)


def test_a_queue_continues_from_its_saved_state() -> None:
    before = state(max_deliveries=5)
    take(before, 5)
    before.confirm([1, 3])
    before.return_lost([2])
    before.reject([4])
    after = QueueState(
        before.claimed(),
        max_deliveries=5,
        doubtful=before.next,
        deliveries=before.deliveries(),
        letters=before.letters,
        buried=before.buried,
    )
    assert take(after, 9) == Run(2, 2, again=True)
    assert take(after, 9) == Run(5, 5, again=True)
    assert take(after, 1) == Run(6, 6, again=False)
    assert after.letters == {4: Letter(1, "rejected", 1)}
    after.return_lost([2])
    assert after.deliveries() == {2: 2}


class Queueing(RuleBasedStateMachine):
    """Two consumers, a broker that crashes, and retention. Every content ends settled or dead exactly once."""

    @initialize()
    def begin(self) -> None:
        self.queue = state(max_deliveries=3)
        self.written = 1
        self.earliest = 1
        self.now = 0.0
        self.hands: dict[str, dict[int, bool]] = {"a": {}, "b": {}}
        """Per consumer what it has, and whether that had been delivered before."""
        self.claims: dict[int, None] = {}
        self.at_risk: set[int] = set()
        """Without confirmation: what a crash loses, at most once, since it was written as settled before it left."""
        self.done: dict[int, str] = {}
        self.seen: set[int] = set()
        self.numbers: set[int] = set()
        self.saved = self.snapshot()

    def snapshot(self) -> QueueState:
        queue = self.queue
        return QueueState(
            queue.claimed(),
            max_deliveries=3,
            doubtful=max(queue.next, queue.doubtful),
            deliveries=queue.deliveries(),
            letters=queue.letters,
            buried=queue.buried,
        )

    @rule(count=st.integers(1, 6))
    def write(self, count: int) -> None:
        self.written += count

    @rule(consumer=st.sampled_from("ab"), most=st.integers(1, 5), alone=st.booleans())
    def deliver(self, consumer: str, most: int, alone: bool) -> None:
        # The broker writes how far it may deliver before it does; here that is the same step.
        run = self.hand_out(consumer, most, QueueEvent.DELIVER, alone=alone)
        for sequence in run:
            self.hands[consumer][sequence] = sequence in self.seen
        self.seen |= set(run)
        self.saved.doubtful = max(self.saved.doubtful, self.queue.next)

    @rule(most=st.integers(1, 5))
    def claim(self, most: int) -> None:
        for sequence in self.hand_out("c", most, QueueEvent.CLAIM, alone=True):
            self.claims[sequence] = None

    def hand_out(self, consumer: str, most: int, event: QueueEvent, *, alone: bool) -> range:
        first = self.queue.peek(self.written, consumer, nobody_takes if alone else others_take)
        if first is None:
            return range(0)
        run = self.queue.hand_out(first, min(first + most, self.written) - 1, event)
        for sequence in range(run.first, run.last + 1):
            assert self.earliest <= sequence < self.written
            assert sequence not in self.done, "handed out after it was done with"
            assert all(sequence not in hand for hand in self.hands.values()), "handed out twice at once"
            assert sequence not in self.claims
            if sequence in self.seen:
                assert run.again, "delivered again without a mark"
        return range(run.first, run.last + 1)

    @precondition(lambda self: any(self.hands.values()))
    @rule(
        data=st.data(),
        what=st.sampled_from(["confirm", "reject", "recycle", "lose", "release", "unsent"]),
    )
    def answer(self, data: st.DataObject, what: str) -> None:
        consumer = data.draw(st.sampled_from([c for c, hand in self.hands.items() if hand]))
        hand = self.hands[consumer]
        some = sorted(data.draw(st.sets(st.sampled_from(sorted(hand)), min_size=1)))
        for sequence in some:
            if not hand.pop(sequence) and what == "unsent":
                self.seen.discard(sequence)
        if what == "confirm":
            self.queue.confirm(some)
            self.done |= dict.fromkeys(some, "confirmed")
        elif what == "reject":
            self.queue.reject(some)
        elif what == "recycle":
            self.queue.recycle(some, consumer, self.now)
        elif what == "lose":
            self.queue.return_lost(some)
        else:
            self.queue.release(some, left=what == "release")

    @precondition(lambda self: self.claims)
    @rule(left=st.booleans())
    def send_claimed(self, left: bool) -> None:
        self.save()
        claims, self.claims = list(self.claims), {}
        if left:
            self.queue.sent(claims)
            self.done |= dict.fromkeys(claims, "sent")
            self.seen |= set(claims)
        else:
            self.queue.release(claims, left=False)

    @rule(seconds=st.floats(0.01, 5.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.queue.end_backoffs(self.now)

    @rule()
    def save(self) -> None:
        self.saved = self.snapshot()
        self.at_risk = set(self.claims)

    @rule()
    def bury(self) -> None:
        """The record is durable, so its letters are appended; their settlement is not durable yet."""
        self.save()
        for sequence, letter in list(self.queue.letters.items()):
            if letter.number not in self.numbers:
                assert sequence not in self.done, "a dead letter of a content that was done with"
                self.numbers.add(letter.number)
                self.done[sequence] = "dead"
            self.queue.letter_stored(sequence)

    @rule()
    def crash(self) -> None:
        """The saved state remains and consumers are gone. Dead letters that arrived are known by number."""
        self.done |= {s: "claimed" for s in self.at_risk if s not in self.done}
        self.queue = self.saved
        for sequence in [s for s, how in self.done.items() if how == "confirmed"]:
            if sequence not in self.queue.settled:
                del self.done[sequence]  # the Confirm is lost: the content is redelivered
        self.claims.clear()
        for hand in self.hands.values():
            hand.clear()
        for sequence, letter in list(self.queue.letters.items()):
            if letter.number in self.numbers:
                self.queue.letter_stored(sequence)
        self.queue.trim(self.earliest)
        self.saved = self.snapshot()

    @rule(count=st.integers(1, 3))
    def retain(self, count: int) -> None:
        self.earliest = min(self.earliest + count, self.written)
        self.queue.trim(self.earliest)
        for hand in self.hands.values():
            for sequence in [s for s in hand if s < self.earliest]:
                del hand[sequence]
        self.claims = {s: None for s in self.claims if s >= self.earliest}

    @invariant()
    def every_content_is_somewhere(self) -> None:
        queue = self.queue
        counts = {at: queue.count(at) for at in At}
        assert sum(counts.values()) == queue.held
        assert counts[At.DELIVERED] == sum(map(len, self.hands.values()))
        assert counts[At.DEAD] == len(queue.letters)
        for sequence in range(self.earliest, min(queue.next, self.written)):
            assert (sequence in queue.settled) or sequence in queue._held
            if sequence in queue.settled:
                assert sequence in self.done

    def teardown(self) -> None:
        """With a consumer that confirms, every content is settled in the end."""
        for hand in self.hands.values():
            self.queue.release(list(hand), left=True)
            hand.clear()
        self.queue.release(list(self.claims), left=False)
        self.claims.clear()
        for _ in range(1_000):
            self.wait(queue_limits.QUEUE_BACKOFF_TOP_S)
            run = self.hand_out("z", 10, QueueEvent.DELIVER, alone=True)
            self.queue.confirm(run)
            self.done |= dict.fromkeys(run, "confirmed")
            self.bury()
            if not run and not self.queue.held:
                break
        assert self.queue.settled.low == self.written
        assert set(range(self.earliest, self.written)) <= set(self.done)
        assert (self.queue.held, len(self.queue.settled), self.queue.deliveries()) == (0, 0, {})


Queueing.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestQueueing = Queueing.TestCase
