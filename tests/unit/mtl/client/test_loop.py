from __future__ import annotations

import pytest

from mtl.client.loop import Loop
from mtl.errors import Closed
from mtl.net.endpoint import Link, LinkEvents
from tests.support.memory_network import Bench, MemoryLink, MemoryNetwork


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_posted_calls_run_in_order_and_their_own_posts_in_the_next_round(bench: Bench) -> None:
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


def test_timers_run_when_due_unless_cancelled(bench: Bench) -> None:
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


def test_a_timer_set_again_by_itself_runs_in_the_next_round(bench: Bench) -> None:
    """Timers may run a moment early; one that then sets itself for the rest would spin until the clock advances."""
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
        def wait(self, timeout: float | None) -> list[tuple[object, Link, LinkEvents]]:
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


def test_events_of_links_reach_their_watchers(bench: Bench) -> None:
    events: list[tuple[Link, LinkEvents]] = []

    class Watcher:
        def ready(self, link: Link, what: LinkEvents) -> None:
            events.append((link, what))

    link = MemoryLink(bench.network, "data", "x")
    bench.loop.poll.add(link, Watcher())
    link.put(b"a", b"b")
    link.down()
    bench.loop.step(0.0)
    assert events == [(link, LinkEvents.READABLE | LinkEvents.DOWN)]


def test_the_pause_until_the_next_round_is_computed(bench: Bench) -> None:
    assert bench.loop.pause() is None
    bench.loop.after(2.0, lambda: None)
    assert bench.loop.pause() == 2.0
    bench.loop.post(lambda: None)
    assert bench.loop.pause() == 0.0
    bench.loop.step(0.0)
    link = MemoryLink(bench.network, "data", "x")
    bench.loop.poll.add(link, bench.channel)
    link.put(b"a", b"b")
    assert bench.loop.pause() == 0.0


def test_the_end_abandons_every_member(bench: Bench) -> None:
    bench.loop.end()
    assert not bench.loop.members
    with pytest.raises(Closed):
        bench.loop.post(lambda: None)
