from __future__ import annotations

import os
import threading

import pytest

from mtl.client import io
from mtl.client.io import IoThread
from mtl.errors import Closed, MtlError
from tests.support.memory_network import MemoryNetwork


def test_the_end_abandons_every_member_and_refuses_later_posts() -> None:
    abandoned = threading.Event()

    class Member:
        def abandoned(self, error: MtlError) -> None:
            abandoned.set()

    loop = IoThread()
    loop.members.add(Member())
    loop.start()
    done = threading.Event()
    loop.post(done.set)
    assert done.wait(10)
    loop.stop()
    assert abandoned.is_set()
    with pytest.raises(Closed):
        loop.post(done.set)


def test_a_post_after_the_end_is_refused_and_one_before_is_run() -> None:
    """Between the append of a call and its wake-up the loop may end."""
    loop, ran = IoThread(MemoryNetwork()), list[str]()
    loop._asleep = True
    loop.poll.wake = loop.run  # type: ignore[method-assign]
    loop.running = False
    with pytest.raises(Closed):
        loop.post(lambda: ran.append("once"))
    assert ran == ["once"]


def test_an_interrupted_post_wakes_the_loop() -> None:
    loop, wakes = IoThread(MemoryNetwork()), list[None]()

    def wake() -> None:
        wakes.append(None)
        if len(wakes) == 1:
            raise KeyboardInterrupt

    loop.poll.wake = wake  # type: ignore[method-assign]
    loop._asleep = True
    with pytest.raises(KeyboardInterrupt):
        loop.post(lambda: None)
    assert len(wakes) == 2


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_process_has_one_io_thread_and_a_child_its_own() -> None:
    mine = io.io_thread()
    assert io.io_thread() is mine
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        own = io.io_thread()
        ran = threading.Event()
        own.post(ran.set)
        message = (
            b"own" if own is not mine and own.pid == os.getpid() == io.process() and ran.wait(10) else b"not"
        )
        os.write(write, message)
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"own"
    os.close(read)
    os.close(write)
    assert io.io_thread() is mine
