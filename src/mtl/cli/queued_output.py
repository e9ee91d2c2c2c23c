"""Standard output and standard error of a serving process: no thread of it waits for their reader.

The reader may be a paused terminal, or a parent that ignores the pipe. A write to it would wait without limit once the
pipe has its 64 KiB. Here one thread writes. Text that finds too much before it is dropped and counted.
"""

from __future__ import annotations

import atexit
import io
import os
import select
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TextIO, cast

WAITING_CHARACTERS: Final = 1 << 20
"""Text that may wait for the reader: some 5,000 log lines, as many as a start logs at once for damaged resources."""

WAITING_RESERVED: Final = 1 << 20
"""The same, in addition, for reserved text, so that other text cannot displace it."""

LAST_TEXT_S: Final = 1.0
"""Seconds for which an ending process waits for the reader: one that reads needs milliseconds."""


@dataclass
class _Text:
    text: str
    reserved: bool


@dataclass
class _Gap:
    """Dropped lines, and how many of them were reserved."""

    lines: int = 0
    reserved: int = 0

    def add(self, text: str, *, reserved: bool) -> None:
        lines = text.count("\n")
        self.lines += lines
        self.reserved += lines if reserved else 0


class QueuedOutput(io.TextIOBase):
    """A text stream in front of `target`, which nothing else writes to; None is a closed descriptor, which discards all
    text. Thread-safe. `report` makes the line that replaces dropped ones, from their number and the number of reserved
    ones among them.
    """

    def __init__(self, target: TextIO | None) -> None:
        super().__init__()
        self._target = target
        self._encoding = target.encoding if target is not None else "utf-8"
        self.report: Callable[[int, int], str] = _report
        self._state = threading.Condition(threading.Lock())
        self._waiting: list[_Text | _Gap] = []
        self._characters = 0
        """The length of all texts that are waiting or being written."""
        self._is_cut = False
        """Whether an error has left a line without its end."""
        self._over = target is None
        if target is not None:
            atexit.register(self._end)
            threading.Thread(target=self._write_all, name="mtl-output", daemon=True).start()

    def put(self, text: str, *, reserved: bool = False) -> None:
        """Have a text written. It is dropped if WAITING_CHARACTERS are waiting; if it is `reserved`, only with
        WAITING_RESERVED more.
        """
        with self._state:
            if self._over:
                return
            if self._characters + len(text) <= WAITING_CHARACTERS + (WAITING_RESERVED if reserved else 0):
                self._waiting.append(_Text(text, reserved))
                self._characters += len(text)
            else:
                if not self._waiting or not isinstance(self._waiting[-1], _Gap):
                    self._waiting.append(_Gap())
                gap = self._waiting[-1]
                assert isinstance(gap, _Gap)
                gap.add(text, reserved=reserved)
            self._state.notify_all()

    # --- as a text stream -----------------------------------------------------------------------------------

    @property
    def encoding(self) -> str:  # type: ignore[override]  # an attribute in typeshed
        """The encoding of `target`. Characters that it does not have are escaped."""
        return self._encoding

    def writable(self) -> bool:
        """True."""
        return True

    def isatty(self) -> bool:
        """Whether the reader is a terminal."""
        return self._target is not None and self._target.isatty()

    def fileno(self) -> int:
        """The descriptor of `target`. Raises `OSError` if it is closed."""
        if self._target is None:
            raise OSError("the descriptor is closed")
        return self._target.fileno()

    def write(self, text: str, /) -> int:
        """`put`. Raises `TypeError` for octets, as every text stream."""
        if not isinstance(text, str):
            raise TypeError(f"write() needs a str, not {type(text).__name__}")
        self.put(text)
        return len(text)

    def flush(self) -> None:
        """Wait until everything is written, LAST_TEXT_S at most."""
        with self._state:
            self._state.wait_for(lambda: self._over or not (self._waiting or self._characters), LAST_TEXT_S)

    def _end(self) -> None:
        """The process ends, and with it the thread."""
        self.flush()
        self._over = True

    # --- in the thread --------------------------------------------------------------------------------------

    def _write_all(self) -> None:
        lost = _Gap()
        """Lines that the descriptor did not take: a full disk may have room later."""
        while True:
            with self._state:
                self._state.wait_for(lambda: self._waiting)
                items, self._waiting = self._waiting, []
            texts = [item for item in (lost, *items) if isinstance(item, _Text) or item.lines]
            lost = self._write_texts(texts)
            with self._state:
                self._characters -= sum(len(item.text) for item in items if isinstance(item, _Text))
                self._state.notify_all()

    def _write_texts(self, items: Sequence[_Text | _Gap]) -> _Gap:
        """Write the texts, and reports for the gaps, in one step: for each step the thread has to wait for the
        interpreter. Returns the lost lines.
        """
        octets = [self._encoded(item) for item in items]
        unwritten = self._write_octets(b"".join([b"\n" if self._is_cut else b"", *octets]))
        lost = _Gap()
        for item, its in reversed(list(zip(items, octets, strict=True))):
            if unwritten <= 0:
                break
            unwritten -= len(its)
            if isinstance(item, _Text):
                lost.add(item.text, reserved=item.reserved)
            else:
                lost = _Gap(lost.lines + item.lines, lost.reserved + item.reserved)
        return lost

    def _encoded(self, item: _Text | _Gap) -> bytes:
        text = item.text if isinstance(item, _Text) else self.report(item.lines, item.reserved)
        return text.encode(self._encoding, "backslashreplace")

    def _write_octets(self, octets: bytes) -> int:
        """Write to the descriptor, without the locks of the stream, which the interpreter takes at its end. Returns the
        number of octets that an error has left.
        """
        self._is_cut = False
        left, descriptor = memoryview(octets), self.fileno()
        while left:
            try:
                left = left[os.write(descriptor, left) :]
            except BlockingIOError:  # another process with this terminal or pipe has made it non-blocking
                select.select([], [descriptor], [])
            except OSError:
                self._is_cut = octets[: len(octets) - len(left)][-1:] not in {b"", b"\n"}
                break
        return len(left)


def _report(lines: int, _: int) -> str:
    return f"{lines} lines were dropped here\n"


def never_wait() -> QueuedOutput:
    """Put a `QueuedOutput` in front of standard output and standard error, for the rest of the process: also for
    tracebacks and warnings. Returns the one of standard error.
    """
    errors = QueuedOutput(sys.stderr)
    sys.stdout, sys.stderr = cast(TextIO, QueuedOutput(sys.stdout)), cast(TextIO, errors)
    return errors
