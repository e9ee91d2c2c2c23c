"""Ctrl-C ends a command in time, also if its last output waits for a reader that does not read."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import Final

END_S: Final = 2.0
"""Seconds between Ctrl-C and the end of the process: more than the client needs to close with a broker that is gone."""

_STATUS: Final = 128 + signal.SIGINT

_interrupted = False


def end_in_time() -> None:
    """From now on an interrupt raises KeyboardInterrupt, and the process ends END_S later at the latest. By a timer of
    the system, since a thread could not be started safely in the handler.
    """
    signal.signal(signal.SIGALRM, lambda *_: os._exit(_STATUS))
    signal.signal(signal.SIGINT, _interrupt)


def go_on() -> None:
    """The command has handled the interrupt, and continues."""
    global _interrupted
    _interrupted = False
    signal.setitimer(signal.ITIMER_REAL, 0)


def end_if_interrupted() -> None:
    """The last step of a command. After an interrupt the process ends here, since the interpreter's own end takes a
    good part of END_S, and the timer would kill it without a status.
    """
    if _interrupted:
        atexit._run_exitfuncs()  # noqa: SLF001 there is no other way to run them before `os._exit`
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # closed, or its reader has ended
                stream.flush()
        os._exit(_STATUS)


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _interrupted
    _interrupted = True
    signal.setitimer(signal.ITIMER_REAL, END_S)
    signal.default_int_handler(number, frame)
