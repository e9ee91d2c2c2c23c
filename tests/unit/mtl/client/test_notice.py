from __future__ import annotations

import os
import signal
import threading

import pytest

from mtl.client.notice import Notice


def test_a_notice_ends_the_waits_of_all_threads_whose_condition_is_true() -> None:
    notice, over, ended = Notice(), list[int](), list[bool]()
    threads = [
        threading.Thread(target=lambda: ended.append(notice.wait(lambda: bool(over), 30.0))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    while notice.waiters < len(threads):
        notice.notify()  # a wake-up without a change does not end them
    over.append(1)
    notice.notify()
    for thread in threads:
        thread.join(30.0)
    assert ended == [True] * 3
    assert notice.waiters == 0


def test_a_wait_is_bounded_and_leaves_nothing_behind() -> None:
    notice = Notice()
    assert not notice.wait(lambda: False, 0.0)
    assert not notice.wait(lambda: False, 0.001)
    assert notice.wait(lambda: True)
    assert notice.waiters == 0


def test_a_change_right_before_the_sleep_is_not_missed() -> None:
    notice, checks = Notice(), list[int]()

    def is_over() -> bool:
        checks.append(1)
        return len(checks) > 1  # becomes true between the check and the sleep, without a notification

    assert notice.wait(is_over, 30.0)


def test_an_interrupted_wait_leaves_nothing_behind() -> None:
    notice, woken = Notice(), threading.Event()

    def interrupt() -> None:
        assert woken.wait(30.0)
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)

    def is_over() -> bool:
        woken.set()
        return False

    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        notice.wait(is_over)
    interrupter.join()
    assert notice.waiters == 0
    notice.notify()
