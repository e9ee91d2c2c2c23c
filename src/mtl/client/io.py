"""The IO thread of the blocking client: one per process, started on first use.

It owns every socket of the blocking connections, their heartbeats and reconnects, so that connections survive while the
application blocks, or is suspended in a generator.

Other threads pass work to it with `post` and wait for a `Notice`: `mtl.client.notice` has the rule that keeps it alive
when they are interrupted. After a fork the child starts another one.
"""

from __future__ import annotations

import atexit
import os
import signal
from _thread import allocate_lock, start_new_thread
from contextlib import suppress

from mtl.client.loop import Loop
from mtl.client.turn import Turn
from mtl.errors import Closed
from mtl.net.endpoint import Network
from mtl.net.network import ZmqNetwork

_STOP_S = 2.0


class IoThread(Loop):
    """A loop that a thread runs. Any thread may call `post`."""

    def __init__(self, network: Network | None = None) -> None:
        super().__init__(network or ZmqNetwork(own_thread=True))
        self.pid = os.getpid()
        self._asleep = False
        self._living = allocate_lock()
        """Held until the thread has ended."""

    # --- from any thread ------------------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._asleep:
            try:
                self._asleep = False
                self.poll.wake()
            except BaseException:  # interrupted: others rely on this wake-up
                self.poll.wake()
                raise

    def start(self) -> None:
        """Start the thread. `threading.Thread.start` waits for it under a lock that the thread takes, too: the thread
        would hang if that wait is interrupted.
        """
        self._living.acquire()
        start_new_thread(self._main, ())

    def stop(self) -> None:
        """Stop the thread, and wait for its end, _STOP_S seconds at most."""
        with suppress(Closed):  # it has ended
            self.post(self._stop)
        if self._living.acquire(timeout=_STOP_S):
            self._living.release()

    # --- in the thread --------------------------------------------------------------------------------------

    def _main(self) -> None:
        # For the main thread: a signal that this thread took would not end a wait there.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            self.run()
        finally:
            self._living.release()

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
        self._asleep = False
        super()._close_poll()

    def _stop(self) -> None:
        self.running = False


# --- the IO thread of this process --------------------------------------------------------------------------

_thread: IoThread | None = None
_turn = Turn()
_pid = os.getpid()


def process() -> int:
    """The id of this process, without a system call: the call would take a tenth of the time to publish a
    content.
    """
    return _pid


def io_thread() -> IoThread:
    """The IO thread of this process, started if necessary."""
    return _turn.run(_started)


def _started() -> IoThread:
    global _thread
    if _thread is None or not _thread.running:
        made = IoThread()
        try:
            made.start()
            _thread = made
        except BaseException:  # interrupted: nobody else has it
            made.running = False
            made.poll.wake()
            raise
    return _thread


def _forget() -> None:
    """Run in the child of a fork. The child does not have the thread and must not use its sockets."""
    global _thread, _turn, _pid
    _abandoned.append(_thread)  # keep a reference: finalizers would use the parent's sockets
    _thread = None
    _turn = Turn()
    _pid = os.getpid()


def _stop() -> None:
    if _thread is not None and _thread.pid == os.getpid():
        _thread.stop()


_abandoned: list[IoThread | None] = []
os.register_at_fork(after_in_child=_forget)
atexit.register(_stop)
