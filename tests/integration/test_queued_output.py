from __future__ import annotations

import io
import os
import select
import threading
import time
from collections.abc import Iterator
from typing import TextIO

import pytest

from mtl.cli.queued_output import LAST_TEXT_S, WAITING_CHARACTERS, WAITING_RESERVED, QueuedOutput
from tests.support.unread import fill


class Reader:
    """A pipe, and the queued output in front of it."""

    def __init__(self) -> None:
        self.descriptor, self._written = os.pipe()
        self.target: TextIO = os.fdopen(self._written, "w", encoding="ascii")
        self.output = QueuedOutput(self.target)
        self.output.report = lambda lines, reserved: f"<{lines} {reserved}>\n"

    def fill(self) -> int:
        """Let the pipe take nothing more; the octets to read before it takes something again."""
        return fill(self._written)

    def read(self, until: str = "\n") -> str:
        """Everything up to a text."""
        found = b""
        while not found.endswith(until.encode()):
            assert select.select([self.descriptor], [], [], 20)[0], found[-1_000:]
            found += os.read(self.descriptor, 1 << 20)
        return found.decode()

    def replace(self, descriptor: int) -> None:
        """Let the output write elsewhere."""
        os.dup2(descriptor, self._written)

    def close(self) -> None:
        self.output._over = True
        os.close(self.descriptor)
        self.target.close()


@pytest.fixture
def reader() -> Iterator[Reader]:
    made = Reader()
    yield made
    made.close()


def lines(characters: int) -> str:
    """This many characters, as lines of 64."""
    return ("." * 63 + "\n") * (characters // 64)


def test_text_is_written_in_the_encoding_of_the_target(reader: Reader) -> None:
    assert (reader.output.write("größer\n"), reader.output.encoding) == (7, "ascii")
    assert reader.read() == "gr\\xf6\\xdfer\n"
    assert reader.output.fileno() == reader.target.fileno()
    assert (reader.output.writable(), reader.output.isatty()) == (True, False)
    with pytest.raises(TypeError, match="bytes"):
        reader.output.write(b"octets")  # type: ignore[arg-type]


def test_without_a_reader_text_is_dropped_above_the_limit_and_counted_where_it_is_missing(
    reader: Reader,
) -> None:
    filled = reader.fill()
    kept = lines(WAITING_CHARACTERS // 2)
    began = time.monotonic()
    for text in (kept, kept, "dropped\n", "dropped\n"):
        reader.output.put(text)
    reader.output.put("audit\n", reserved=True)
    reader.output.put("dropped\ntwo lines\n")
    reader.output.put(lines(WAITING_RESERVED - 64), reserved=True)
    reader.output.put(lines(64), reserved=True)
    assert time.monotonic() - began < 5
    text = reader.read("<1 1>\n")[filled:]
    assert text == f"{kept}{kept}<2 0>\naudit\n<2 0>\n{lines(WAITING_RESERVED - 64)}<1 1>\n"


def test_a_flush_waits_for_the_reader_a_bounded_time(reader: Reader) -> None:
    filled = reader.fill()
    reader.output.put("late\n")
    began = time.monotonic()
    reader.output.flush()
    assert LAST_TEXT_S <= time.monotonic() - began < LAST_TEXT_S + 5
    reading = threading.Thread(target=reader.read, args=("late\n",))
    reading.start()
    reader.output.flush()
    reading.join()
    began = time.monotonic()
    reader.output.flush()
    assert time.monotonic() - began < LAST_TEXT_S
    assert filled


def test_lines_that_cannot_be_written_are_counted_when_there_is_room_again(reader: Reader) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    pipe = os.dup(reader.target.fileno())
    reader.replace(full)
    reader.output.put("lost\nlost\n")
    reader.output.flush()
    reader.output.put("lost\n", reserved=True)
    reader.output.flush()
    reader.replace(pipe)
    reader.output.put("there\n")
    assert reader.read("there\n") == "<3 1>\nthere\n"
    os.close(pipe)
    os.close(full)


def test_a_line_that_an_error_has_cut_ends_before_the_next_text(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []

    def write(_: int, octets: memoryview) -> int:
        if written == [b"whole\ncu"]:
            written.append(b"|")
            raise OSError(28, "No space left on device")
        written.append(bytes(octets)[:8] if not written else bytes(octets))
        return len(written[-1])

    monkeypatch.setattr(os, "write", write)
    reader.output.put("whole\ncut line\n")
    reader.output.flush()
    reader.output.put("next\n")
    reader.output.flush()
    assert b"".join(written) == b"whole\ncu|\n<2 0>\nnext\n"


def test_a_descriptor_that_another_process_made_non_blocking_is_waited_for(reader: Reader) -> None:
    filled = reader.fill()
    os.set_blocking(reader.target.fileno(), False)
    reader.output.put("late\n")
    assert reader.read("late\n")[filled:] == "late\n"


def test_a_closed_descriptor_discards_everything() -> None:
    output = QueuedOutput(None)
    output.write("x\n")
    output.flush()
    assert (output.encoding, output.isatty()) == ("utf-8", False)
    with pytest.raises(OSError, match="closed"):
        output.fileno()
    assert isinstance(output, io.TextIOBase)
