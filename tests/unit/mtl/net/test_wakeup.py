from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator

import pytest

from mtl.net.wakeup import Wakeup


@pytest.fixture(params=["eventfd", "pipe"])
def wakeup(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wakeup]:
    if request.param == "pipe":
        monkeypatch.delattr("os.eventfd", raising=False)
    made = Wakeup()
    yield made
    made.close()


def readable(wakeup: Wakeup, seconds: float = 0.0) -> bool:
    return bool(select.select([wakeup], [], [], seconds)[0])


def test_a_wakeup_is_readable_from_wake_to_clear(wakeup: Wakeup) -> None:
    assert not readable(wakeup)
    wakeup.wake()
    wakeup.wake()
    assert readable(wakeup)
    wakeup.clear()
    assert not readable(wakeup)
    wakeup.clear()


def test_any_thread_may_call_wake(wakeup: Wakeup) -> None:
    thread = threading.Thread(target=wakeup.wake)
    thread.start()
    assert readable(wakeup, 10)
    thread.join()


def test_wake_never_blocks(wakeup: Wakeup) -> None:
    for _ in range(20_000):
        wakeup.wake()
    assert readable(wakeup)


def test_wake_after_close_does_not_write_to_a_reused_descriptor() -> None:
    """A signal may arrive at any time, when the descriptor number already belongs to another file."""
    wakeup = Wakeup()
    number = wakeup.fileno()
    wakeup.close()
    reader, writer = os.pipe()
    try:
        assert number in {reader, writer}
        wakeup.wake()
        assert not select.select([reader], [], [], 0)[0]
    finally:
        os.close(reader)
        os.close(writer)
