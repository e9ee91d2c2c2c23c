from __future__ import annotations

import threading

import pytest

from mtl.client.turn import Turn


def test_calls_run_one_after_the_other() -> None:
    turn, inside, most = Turn(), list[int](), list[int]()

    def call() -> None:
        inside.append(1)
        most.append(len(inside))
        inside.pop()

    threads = [threading.Thread(target=lambda: [turn.run(call) for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}


def test_no_failure_leaves_the_turn_taken() -> None:
    turn = Turn()

    def fail(leak: bool) -> None:
        if leak:
            turn._lock.acquire()  # as an interrupt between the acquisition and the block would
        raise KeyboardInterrupt

    for leak in (False, True):
        with pytest.raises(KeyboardInterrupt):
            turn.run(fail, leak)
        got: list[int] = []
        other = threading.Thread(target=lambda got=got: got.append(turn.run(lambda: 7)))
        other.start()
        other.join(30.0)
        assert got == [7]
