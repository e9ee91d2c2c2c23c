from __future__ import annotations

from itertools import pairwise

from mtl.broker.runtime.watch import AWAKE_S, LoopWatch
from mtl.net.ports import Port

POLL_S = AWAKE_S / 10


class Peers:
    """The polled sockets: a message arrives when `due` is reached."""

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
        """Called when the loop yields the processor to other processes."""


class OneProcessor(Peers):
    """Peers run, and send, only while the loop sleeps."""

    def poll(self, patience_ms: int) -> set[Port]:
        self.polls.append(patience_ms)
        self.now += POLL_S
        return {Port.PLAIN} if patience_ms else set()


class Behind(Peers):
    """Peers on the loop's processor: they run, and send, only when the loop yields or sleeps."""

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
    """A loop that waits for one content after the other; each arrives a given time after the previous Confirm."""

    def __init__(self) -> None:
        self.peers = Peers()
        self.watch = LoopWatch(self.peers, self.peers.clock, self.peers.run)

    def wait(self, after: float, *, awaited: bool = True) -> bool:
        """Whether the loop was awake when the content arrived."""
        self.peers.polls.clear()
        self.peers.due = self.peers.now + after
        assert self.watch.wait(1_000, awaited=awaited) == {Port.PLAIN}
        return self.peers.polls[-1] == 0

    def short_waits(self) -> int:
        """The number of waits for a quick writer until the loop is awake for one."""
        return next(n for n in range(1_000) if self.wait(AWAKE_S / 2))


def test_a_loop_stays_awake_for_a_writer_that_sends_again_at_once() -> None:
    loop = Loop()
    assert not loop.wait(AWAKE_S / 2), "the speed of this writer is not known yet"
    assert all(loop.wait(AWAKE_S / 2) for _ in range(10))


def test_a_loop_sleeps_if_writers_are_slow() -> None:
    loop = Loop()
    assert not any(loop.wait(0.01) for _ in range(10))
    assert loop.peers.polls == [1_000], "no time was spent awake"


def test_a_loop_sleeps_if_no_content_was_confirmed() -> None:
    loop = Loop()
    loop.short_waits()
    assert not loop.wait(AWAKE_S / 2, awaited=False)
    assert loop.wait(AWAKE_S / 2)


def test_a_loop_with_pending_work_polls_without_waiting() -> None:
    loop = Loop()
    loop.short_waits()
    loop.peers.polls.clear()
    loop.peers.due = loop.peers.now + 1
    assert loop.watch.wait(0, awaited=True) == set()
    assert loop.peers.polls == [0]


def test_staying_awake_is_tried_less_often_after_failures() -> None:
    loop = Loop()
    waits = []
    for _ in range(8):
        waits.append(loop.short_waits())
        assert not loop.wait(AWAKE_S * 2), "awake without result, then asleep"
        assert sum(loop.peers.polls) == 1_000
    assert waits == [1, 2, 2, 2, 2, 2, 2, 2], "one success makes up for a failure"


def test_staying_awake_always_fails_on_one_processor_without_yield() -> None:
    """The attempts become rare, so that they cost little in the long run."""
    peers = OneProcessor()
    watch = LoopWatch(peers, peers.clock, peers.run)
    vain = []
    for turn in range(400):
        peers.polls.clear()
        assert watch.wait(1_000, awaited=True) == {Port.PLAIN}
        if 0 in peers.polls:
            vain.append(turn)
    assert [after - before for before, after in pairwise(vain)][:9] == [3, 5, 9, 17, 33, 65, 65, 65, 65]


def test_an_awake_loop_yields_the_processor_to_its_peers() -> None:
    peers = Behind()
    watch = LoopWatch(peers, peers.clock, peers.run)
    for _ in range(10):
        assert watch.wait(1_000, awaited=True) == {Port.PLAIN}
    assert peers.polls == [1_000, *[0] * 9], "one sleep, then awake for every content"


def test_an_awake_loop_returns_when_it_is_woken() -> None:
    loop = Loop()
    loop.short_waits()
    peers = loop.peers
    peers.polls.clear()
    peers.due, peers.wakes_at = peers.now + 1, peers.now + AWAKE_S / 2
    assert loop.watch.wait(1_000, awaited=True) == set()
    assert set(peers.polls) == {0}
    assert peers.now < peers.due
