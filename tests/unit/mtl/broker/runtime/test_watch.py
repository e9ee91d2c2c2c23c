from __future__ import annotations

from itertools import pairwise

from mtl.broker.runtime.watch import AWAKE_S, LoopWatch
from mtl.net.ports import Port

POLL_S = AWAKE_S / 10


class Peers:
    """What is polled: a message comes `after` seconds from the last one, for as long as there are any."""

    def __init__(self) -> None:
        self.now = 0.0
        self.woken = False
        self.polls: list[int] = []
        self.due = 0.0
        self.wakes_at: float | None = None

    def poll(self, patience_ms: int) -> set[Port]:
        self.polls.append(patience_ms)
        if patience_ms:
            self.now = max(self.now, self.due)
        else:
            self.now += POLL_S
        self.woken = self.wakes_at is not None and self.now >= self.wakes_at
        return {Port.PLAIN} if self.now >= self.due else set()

    def clock(self) -> float:
        return self.now

    def run(self) -> None:
        """The loop gives way to them."""


class OneProcessor(Peers):
    """Nobody else runs, and sends, before the loop sleeps."""

    def poll(self, patience_ms: int) -> set[Port]:
        self.polls.append(patience_ms)
        self.now += POLL_S
        return {Port.PLAIN} if patience_ms else set()


class Behind(Peers):
    """On the loop's own processor: they run, and send, only when it gives way or sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.ran = False

    def poll(self, patience_ms: int) -> set[Port]:
        self.polls.append(patience_ms)
        self.now += POLL_S
        sent, self.ran = self.ran or patience_ms > 0, False
        return {Port.PLAIN} if sent else set()

    def run(self) -> None:
        self.ran = True


class Loop:
    """Waits for one content after the other; each comes so long after the one before it was confirmed."""

    def __init__(self) -> None:
        self.peers = Peers()
        self.watch = LoopWatch(self.peers, self.peers.clock, self.peers.run)

    def wait(self, after: float, *, awaited: bool = True) -> bool:
        """Whether the loop was awake when it came."""
        self.peers.polls.clear()
        self.peers.due = self.peers.now + after
        assert self.watch.wait(1_000, awaited=awaited) == {Port.PLAIN}
        return self.peers.polls[-1] == 0

    def short_waits(self) -> int:
        """How many waits for a quick writer pass before the loop is awake for one."""
        return next(n for n in range(1_000) if self.wait(AWAKE_S / 2))


def test_a_loop_stays_awake_for_a_writer_that_sends_again_at_once() -> None:
    loop = Loop()
    assert not loop.wait(AWAKE_S / 2), "nobody knows yet how quick this one is"
    assert all(loop.wait(AWAKE_S / 2) for _ in range(10))


def test_it_sleeps_where_writers_take_their_time() -> None:
    loop = Loop()
    assert not any(loop.wait(0.01) for _ in range(10))
    assert loop.peers.polls == [1_000], "not a moment was spent on it"


def test_it_sleeps_when_nobody_was_waiting_for_it() -> None:
    loop = Loop()
    loop.short_waits()
    assert not loop.wait(AWAKE_S / 2, awaited=False)
    assert loop.wait(AWAKE_S / 2)


def test_it_looks_without_waiting_where_there_is_something_to_do() -> None:
    loop = Loop()
    loop.short_waits()
    loop.peers.polls.clear()
    loop.peers.due = loop.peers.now + 1
    assert loop.watch.wait(0, awaited=True) == set()
    assert loop.peers.polls == [0]


def test_what_was_in_vain_is_tried_ever_more_rarely() -> None:
    loop = Loop()
    waits = []
    for _ in range(8):
        waits.append(loop.short_waits())
        assert not loop.wait(AWAKE_S * 2), "awake for nothing, and asleep then"
        assert sum(loop.peers.polls) == 1_000
    assert waits == [1, 2, 2, 2, 2, 2, 2, 2], "one that was not in vain makes up for it"


def test_with_one_processor_and_nobody_who_gets_to_run_it_is_in_vain() -> None:
    """Each time, and costs little in the long run."""
    peers = OneProcessor()
    watch = LoopWatch(peers, peers.clock, peers.run)
    vain = []
    for turn in range(400):
        peers.polls.clear()
        assert watch.wait(1_000, awaited=True) == {Port.PLAIN}
        if 0 in peers.polls:
            vain.append(turn)
    assert [after - before for before, after in pairwise(vain)][:9] == [3, 5, 9, 17, 33, 65, 65, 65, 65]


def test_whoever_is_queued_behind_the_loop_gets_to_run_while_it_is_awake() -> None:
    peers = Behind()
    watch = LoopWatch(peers, peers.clock, peers.run)
    for _ in range(10):
        assert watch.wait(1_000, awaited=True) == {Port.PLAIN}
    assert peers.polls == [1_000, *[0] * 9], "asleep once, and never in vain"


def test_it_wakes_for_other_reasons() -> None:
    loop = Loop()
    loop.short_waits()
    peers = loop.peers
    peers.polls.clear()
    peers.due, peers.wakes_at = peers.now + 1, peers.now + AWAKE_S / 2
    assert loop.watch.wait(1_000, awaited=True) == set()
    assert set(peers.polls) == {0}
    assert peers.now < peers.due
