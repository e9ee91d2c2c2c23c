"""Processes that a test starts and that must not outlive it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import AnyStr


@contextmanager
def killed_after(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """A process that is killed at the end of the block if it still runs: `Popen` as a context manager waits for it
    without limit, even after a failure of the test.
    """
    with process:
        try:
            yield process
        finally:
            process.kill()
