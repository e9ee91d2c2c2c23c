from __future__ import annotations

import threading

from mtl.client.notice import Notice


def test_a_notice_wakes_waiting_threads() -> None:
    notice = Notice()
    ready, woken = threading.Event(), threading.Event()

    def wait() -> None:
        with notice.waiting():
            ready.set()
            if notice.condition.wait(10.0):
                woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert ready.wait(10.0)
    notice.notify()
    thread.join(10.0)
    assert woken.is_set()
