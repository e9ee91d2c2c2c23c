"""The IO thread of the blocking client: one per process, started on first use.

It owns every socket of the blocking connections, their heartbeats and reconnects, so that connections survive while the
application blocks, or is suspended in a generator.

Other threads pass work to it with `post` and wait on their own conditions. After a fork the child starts another one.
"""

from __future__ import annotations

import atexit
import os
import threading

from mtl.client.loop import Loop
from mtl.net.endpoint import Network

_STOP_S = 2.0


class IoThread(Loop):
    """A loop that a thread runs. Any thread may call `post`."""

    def __init__(self, network: Network | None = None) -> None:
        super().__init__(network)
        self.pid = os.getpid()
        self._asleep = False
        self._waking = threading.Lock()
        """Held to wake the poll and to close it, because the descriptor of a closed poll may be reused."""
        self._thread = threading.Thread(target=self.run, name="mtl-io", daemon=True)

    def lock(self) -> threading.Lock:
        """See `Loop`."""
        return threading.Lock()

    # --- from any thread ------------------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._asleep:
            with self._waking:
                if self._asleep:
                    self._asleep = False
                    self.poll.wake()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for its end, _STOP_S seconds at most."""
        if self.running:
            self.post(self._stop)
        self._thread.join(_STOP_S)

    # --- in the thread --------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run rounds until stopped."""
        try:
            while self.running:
                self.step(None)
        finally:
            self.end()

    def step(self, patience: float | None) -> None:
        """See `Loop`. A call that is posted during the wait ends it."""
        self._asleep = True
        happened = self.poll.wait(self._pause(patience))
        self._asleep = False
        self._handle(happened)

    def _close_poll(self) -> None:
        with self._waking:
            self._asleep = False
            self.poll.close()

    def _stop(self) -> None:
        self.running = False


# --- the IO thread of this process --------------------------------------------------------------------------

_thread: IoThread | None = None
_lock = threading.Lock()
_pid = os.getpid()


def process() -> int:
    """The id of this process, without a system call: the call would take a tenth of the time to publish a
    content.
    """
    return _pid


def io_thread() -> IoThread:
    """The IO thread of this process, started if necessary."""
    global _thread
    with _lock:
        if _thread is None or not _thread.running:
            _thread = IoThread()
            _thread.start()
        return _thread


def _forget() -> None:
    """Run in the child of a fork. The child does not have the thread and must not use its sockets."""
    global _thread, _lock, _pid
    _abandoned.append(_thread)  # keep a reference: finalizers would use the parent's sockets
    _thread = None
    _lock = threading.Lock()
    _pid = os.getpid()


def _stop() -> None:
    if _thread is not None and _thread.pid == os.getpid():
        _thread.stop()


_abandoned: list[IoThread | None] = []
os.register_at_fork(after_in_child=_forget)
atexit.register(_stop)
