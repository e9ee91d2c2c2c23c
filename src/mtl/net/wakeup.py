"""A file descriptor that one thread waits on and any thread makes readable."""

from __future__ import annotations

import os


class Wakeup:
    """An eventfd where the system has it, else a pipe. Any thread and any signal handler may call `wake`; the waiting
    thread calls `clear`.
    """

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):
            self._fd = self._write = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._fd, self._write = os.pipe()
            os.set_blocking(self._fd, False)
            os.set_blocking(self._write, False)

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._fd

    def wake(self) -> None:
        """Make the descriptor readable. Does nothing after `close`: the number may belong to another file by then."""
        if self._write < 0:
            return
        try:
            os.write(self._write, b"\0\0\0\0\0\0\0\1")
        except BlockingIOError:
            pass  # it is full of wake-ups already

    def clear(self) -> None:
        """Undo every `wake` so far."""
        try:
            os.read(self._fd, 4096)
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Close the descriptors. No other thread may call `wake` at the same time; without `close` they are closed
        with the last reference.
        """
        opened, self._fd, self._write = {self._fd, self._write}, -1, -1
        for fd in opened - {-1}:
            os.close(fd)

    def __del__(self) -> None:
        self.close()
