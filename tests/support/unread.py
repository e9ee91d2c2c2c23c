"""Outputs that nobody reads, or that take nothing."""

from __future__ import annotations

import os
import pty
import tty
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass


@dataclass
class Unread:
    """`descriptor` is for a process that writes, `reader` for the reader."""

    descriptor: int
    reader: int


def fill(descriptor: int) -> int:
    """Write until a further write would wait; the number of octets."""
    os.set_blocking(descriptor, False)
    filled = 0
    try:
        while True:
            filled += os.write(descriptor, b"." * 1024)
    except BlockingIOError:
        return filled
    finally:
        os.set_blocking(descriptor, True)


@contextmanager
def full_pipe() -> Iterator[Unread]:
    """A pipe that a parent ignores: it has taken all that it can."""
    reader, descriptor = os.pipe()
    fill(descriptor)
    yield from _closed(Unread(descriptor, reader))


@contextmanager
def paused_terminal() -> Iterator[Unread]:
    """A terminal whose program is stopped: it has taken all that it can."""
    reader, descriptor = pty.openpty()
    tty.setraw(descriptor)
    fill(descriptor)
    yield from _closed(Unread(descriptor, reader))


@contextmanager
def pipe_without_reader() -> Iterator[Unread]:
    """A pipe whose reader has ended."""
    reader, descriptor = os.pipe()
    os.close(reader)
    yield from _closed(Unread(descriptor, os.open(os.devnull, os.O_RDONLY)))


@contextmanager
def full_disk() -> Iterator[Unread]:
    """A file on a full disk."""
    yield from _closed(Unread(os.open("/dev/full", os.O_WRONLY), os.open(os.devnull, os.O_RDONLY)))


def _closed(unread: Unread) -> Iterator[Unread]:
    try:
        yield unread
    finally:
        os.close(unread.descriptor)
        os.close(unread.reader)


OUTPUTS: dict[str, Callable[[], AbstractContextManager[Unread]]] = {
    "full pipe": full_pipe,
    "paused terminal": paused_terminal,
    "pipe without reader": pipe_without_reader,
    "full disk": full_disk,
}
