"""Ctrl-C ends a command in time, also if its last output waits for a reader that does not read."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Final

END_S: Final = 5.0
"""Seconds between Ctrl-C and the end of the process: more than the client needs to close with a broker that is gone."""

_STATUS: Final = 128 + signal.SIGINT


def end_in_time() -> None:
    """From now on an interrupt raises KeyboardInterrupt, and the process ends END_S later at the latest. By a timer of
    the system, since a thread could not be started safely in the handler.
    """
    signal.signal(signal.SIGALRM, lambda *_: os._exit(_STATUS))
    signal.signal(signal.SIGINT, _interrupted)


def go_on() -> None:
    """The command has handled the interrupt, and continues."""
    signal.setitimer(signal.ITIMER_REAL, 0)


def _interrupted(number: int, frame: FrameType | None) -> None:
    signal.setitimer(signal.ITIMER_REAL, END_S)
    signal.default_int_handler(number, frame)
