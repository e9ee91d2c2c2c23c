"""Standard streams that are closed, full, or have lost their reader: cron, init scripts, a full disk, `| head`."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import Any

from mtl.errors import LocalError

_USES = {0: os.O_WRONLY, 1: os.O_RDONLY, 2: os.O_WRONLY}
"""How /dev/null is opened for a closed descriptor. Input and output then still fail, as a closed descriptor does;
messages have no reader, and disappear."""


class OutputFailed(LocalError):
    """Standard output cannot be written: it is closed, or its disk is full."""


class _Output(io.FileIO):
    """Standard output. The error of a write names it."""

    def write(self, octets: Any) -> int:
        """As the base class. Raises `OutputFailed`; BrokenPipeError if the reader has ended."""
        try:
            return super().write(octets) or 0
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(f"cannot write to standard output: {error.strerror}") from error


class _Messages(io.FileIO):
    """Standard error. There is no place to report that it cannot be written."""

    def write(self, octets: Any) -> int:
        """As the base class, but errors are ignored."""
        try:
            return super().write(octets) or 0
        except OSError:
            return len(octets)


def prepare() -> None:
    """Give each of the three descriptors a file, so that no other file or socket of this process gets its number, and
    errors of writing a name.
    """
    for descriptor, use in _USES.items():
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, use)  # the lowest free number: the descriptor's
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 for the life of the process
    sys.stdout = _text(_Output(1, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Messages(2, "w", closefd=False), sys.stderr)


def _text(raw: io.FileIO, before: Any) -> io.TextIOWrapper:
    """A text stream as the interpreter had made it."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=before.encoding if before is not None else None,
        errors=before.errors if before is not None else "backslashreplace",
        line_buffering=raw.isatty() or raw.fileno() == 2,
    )


def abandon_output() -> None:
    """Standard output cannot be written any more: the interpreter shall not try it again at its end."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
