"""Holds, where a process of Spark waits to be killed: files, because they reach all of its processes.

An armed hold stops the first process that passes it, once: that process writes its id into the file and waits until
the file is removed. `KILLS_HOLDS` names the directory; without it, or without an armed hold, a hold has no effect.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

VARIABLE = "KILLS_HOLDS"
PATIENCE_S = 180.0
"""A timeout for a process to reach a step, on a busy machine."""

_POLL_S = 0.01


def hold(name: str) -> None:
    """Called by a process that may be held."""
    directory = os.environ.get(VARIABLE)
    if not directory:
        return
    armed, taken, held = (Path(directory) / f"{name}.{state}" for state in ("armed", "taken", "held"))
    try:
        armed.rename(taken)  # one process alone
    except FileNotFoundError:
        return
    taken.write_text(str(os.getpid()), encoding="ascii")
    taken.rename(held)
    while held.exists():
        time.sleep(_POLL_S)  # another process removes the file, or kills this one


class Holds:
    """The controlling side: holds of the processes with this `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True)

    def arm(self, name: str) -> None:
        """Stop the next process that reaches `name`."""
        (self.directory / f"{name}.armed").touch()

    def reached(self, name: str, alive: Callable[[], str | None]) -> int:
        """Wait for a process held at `name`; returns its id. `alive` returns the reason if waiting is useless."""
        held = self.directory / f"{name}.held"
        await_(held.exists, f"nothing came to {name!r}", alive)
        return int(held.read_text(encoding="ascii"))

    def let_go(self, name: str) -> None:
        """Release the process held at `name`."""
        (self.directory / f"{name}.held").unlink()

    def release(self) -> None:
        """Release all held processes, and disarm all holds."""
        for path in self.directory.iterdir():
            path.unlink(missing_ok=True)


def await_(there: Callable[[], bool], otherwise: str, alive: Callable[[], str | None] = lambda: None) -> None:
    """Wait for a condition met by another process. Raises AssertionError with the reason."""
    deadline = time.monotonic() + PATIENCE_S
    while not there():
        over = alive()
        assert over is None, f"{otherwise}: {over}"
        assert time.monotonic() < deadline, f"{otherwise} within {PATIENCE_S:.0f} s"
        time.sleep(_POLL_S)  # another process changes the condition
