from __future__ import annotations

import threading

import pytest

from mtl.client.waiter import Waiter
from mtl.errors import Closed, Refused
from mtl.wire import control
from tests.support.memory_network import Bench

LISTED = control.DescriptionList(resources=[])


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_waiter_returns_the_reply_or_raises_the_error(bench: Bench) -> None:
    waiter = Waiter(bench.loop)
    assert waiter.is_waiting(0.0)
    assert waiter.is_waiting(0.001)
    assert waiter.within(0.0) is None
    waiter.done(LISTED)
    assert not waiter.is_waiting(0.0)
    assert waiter.wait() == LISTED
    waiter = Waiter(bench.loop)
    waiter.done(Refused(404, "gone"))
    with pytest.raises(Refused, match="gone"):
        waiter.wait()


def test_a_wait_ends_with_the_outcome_from_another_thread(bench: Bench) -> None:
    for wait in (Waiter.wait, lambda waiter: waiter.within(60.0)):
        waiter = Waiter(bench.loop)
        other = threading.Timer(0.01, waiter.done, [LISTED])
        other.start()
        assert wait(waiter) == LISTED
        other.join()


def test_the_end_of_the_loop_ends_a_wait(bench: Bench) -> None:
    waiter, late, done = Waiter(bench.loop), Waiter(bench.loop), Waiter(bench.loop)
    waiter.start(lambda: None)
    done.start(lambda: done.done(LISTED))
    bench.run()
    late.start(lambda: None)
    bench.loop.end()
    with pytest.raises(Closed):
        waiter.wait()
    with pytest.raises(Closed):
        late.wait()
    with pytest.raises(Closed):
        Waiter(bench.loop).start(lambda: None)
    assert done.wait() == LISTED
