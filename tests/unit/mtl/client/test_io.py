from __future__ import annotations

import os
import threading

import pytest

from mtl.client import io
from mtl.client.io import Loop
from mtl.errors import Closed
from mtl.net.endpoint import Link, Ready
from tests.support.memory_network import Bench, MemoryLink, MemoryNetwork


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_what_is_posted_runs_in_order_and_what_that_posts_in_the_next_round(bench: Bench) -> None:
    ran: list[int] = []
    bench.loop.post(lambda: ran.append(1))

    def second() -> None:
        ran.append(2)
        bench.loop.post(lambda: ran.append(4))

    bench.loop.post(second)
    bench.loop.post(lambda: ran.append(3))
    bench.loop.step(0.0)
    assert ran == [1, 2, 3]
    bench.loop.step(0.0)
    assert ran == [1, 2, 3, 4]


def test_timers_run_when_they_are_due_and_not_when_they_are_cancelled(bench: Bench) -> None:
    ran: list[str] = []
    bench.loop.after(2.0, lambda: ran.append("late"))
    bench.loop.after(1.0, lambda: ran.append("early"))
    bench.loop.after(1.5, lambda: ran.append("never")).cancel()
    bench.run(0.9)
    assert ran == []
    bench.run(0.2)
    assert ran == ["early"]
    bench.run(1.0)
    assert ran == ["early", "late"]


def test_a_timer_that_is_set_again_runs_in_the_next_round(bench: Bench) -> None:
    """Timers may run a moment early; one that finds so and waits for the rest would spin until the clock moved."""
    calls = 0

    def early() -> None:
        nonlocal calls
        calls += 1
        bench.loop.after(0.0005, early)

    bench.loop.after(0.0, early)
    bench.loop.step(0.0)
    assert calls == 1


def test_the_wait_ends_with_the_next_timer() -> None:
    waited: list[float | None] = []

    class Poll:
        def wait(self, timeout: float | None) -> list[tuple[object, Link, Ready]]:
            waited.append(timeout)
            return []

    loop = Loop(MemoryNetwork(), lambda: 10.0)
    loop.poll = Poll()  # type: ignore[assignment]
    loop.step(None)
    cancelled = loop.after(1.0, lambda: None)
    loop.after(3.0, lambda: None)
    loop.step(None)
    cancelled.cancel()
    loop.step(None)
    loop.step(2.0)
    loop.post(lambda: None)
    loop.step(None)
    assert waited == [None, 1.0, 3.0, 2.0, 0.0]


def test_links_are_told_to_their_watchers(bench: Bench) -> None:
    told: list[tuple[Link, Ready]] = []

    class Watcher:
        def ready(self, link: Link, what: Ready) -> None:
            told.append((link, what))

    link = MemoryLink(bench.network, "data", "x")
    bench.loop.poll.add(link, Watcher())
    link.put(b"a", b"b")
    link.down()
    bench.loop.step(0.0)
    assert told == [(link, Ready.READABLE | Ready.DOWN)]


def test_the_end_abandons_every_member_and_nothing_is_posted_after_it() -> None:
    abandoned = threading.Event()

    class Member:
        def abandoned(self) -> None:
            abandoned.set()

    loop = Loop()
    loop.members.add(Member())
    loop.start()
    done = threading.Event()
    loop.post(done.set)
    assert done.wait(10)
    loop.stop()
    assert abandoned.is_set()
    with pytest.raises(Closed):
        loop.post(done.set)


def test_a_poll_that_was_closed_meanwhile_is_not_woken() -> None:
    """The IO thread may see what was posted, end and close before whoever posted comes to wake it."""
    bench = Bench()
    loop, wakes = bench.loop, []

    class Lock:
        def __enter__(self) -> None:
            if loop.running:
                loop.running = False
                loop.run()

        def __exit__(self, *_: object) -> None:
            pass

    loop._waking = Lock()  # type: ignore[assignment]
    loop.poll.wake = lambda: wakes.append(loop.running)  # type: ignore[method-assign]
    loop._asleep = True
    loop.post(lambda: None)
    assert wakes == []


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_process_has_one_loop_and_a_child_its_own() -> None:
    mine = io.loop()
    assert io.loop() is mine
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        own = io.loop()
        ran = threading.Event()
        own.post(ran.set)
        said = (
            b"own" if own is not mine and own.pid == os.getpid() == io.process() and ran.wait(10) else b"not"
        )
        os.write(write, said)
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"own"
    os.close(read)
    os.close(write)
    assert io.loop() is mine
