from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator

import pytest

from mtl.cli.logs import write_lines
from mtl.cli.queued_output import WAITING_CHARACTERS, QueuedOutput
from tests.support.unread import fill

log = logging.getLogger("mtl.test")
HOSTILE = "a\nb\x1b[31m\u202e\x07"


class Written:
    """A pipe for log lines."""

    def __init__(self) -> None:
        self._reader, self.descriptor = os.pipe()
        self._target = os.fdopen(self.descriptor, "w", encoding="utf-8")
        self.output = QueuedOutput(self._target)

    def lines(self) -> list[str]:
        """The lines up to now, and a last one that tells that there are no more."""
        self.output.put("END\n", reserved=True)
        found = b""
        while not found.endswith(b"END\n"):
            found += os.read(self._reader, 1 << 20)
        return found.decode().splitlines()[:-1]

    def close(self) -> None:
        os.close(self._reader)
        self._target.close()


@pytest.fixture
def written() -> Iterator[Written]:
    """Pytest's handlers are restored at the end."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    made = Written()
    yield made
    root.handlers[:] = before
    root.setLevel(level)
    made.close()


def test_control_characters_in_a_text_line_are_escaped(written: Written) -> None:
    write_lines(written.output, "info", "text")
    log.info("resource %s", HOSTILE)
    (line,) = written.lines()
    assert line.endswith(r"INFO mtl.test: resource a\nb\x1b[31m\u202e\x07")


def test_a_line_of_json_has_the_message_or_the_fields(written: Written) -> None:
    write_lines(written.output, "info", "json")
    log.info("resource %s", HOSTILE)
    log.warning("unused", extra={"fields": {"event": "login", "user": HOSTILE}})
    text_record, fields_record = (json.loads(line) for line in written.lines())
    assert text_record.pop("time").endswith("+00:00")
    assert text_record == {"level": "info", "logger": "mtl.test", "message": f"resource {HOSTILE}"}
    assert fields_record.pop("time")
    assert fields_record == {"level": "warning", "logger": "mtl.test", "event": "login", "user": HOSTILE}


def test_a_traceback_in_json_is_a_member_of_the_line(written: Written) -> None:
    write_lines(written.output, "info", "json")
    try:
        int("why")
    except ValueError:
        log.exception("failed")
    (line,) = written.lines()
    assert "ValueError: invalid" in json.loads(line)["traceback"]


@pytest.mark.parametrize(("level", "count"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_lines_below_the_last_configured_level_are_not_written(
    written: Written, level: str, count: int
) -> None:
    write_lines(written.output, "error", "text")
    write_lines(written.output, level, "text")
    for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        log.log(number, "x")
    assert len(written.lines()) == count


def test_dropped_lines_are_a_line_in_the_format_of_the_others(written: Written) -> None:
    write_lines(written.output, "info", "json")
    filled = fill(written.descriptor)
    long = "." * (WAITING_CHARACTERS // 4)
    for _ in range(4):
        log.info(long)
    audit = logging.getLogger("mtl.audit")
    audit.warning("login-refused", extra={"fields": {"event": "login-refused"}})
    audit.info("x", extra={"fields": {"event": "." * 2 * WAITING_CHARACTERS}})
    first, *_, gap, refused, last = written.lines()
    assert first.startswith("." * filled)
    assert (json.loads(gap)["dropped"], json.loads(gap)["dropped-audit"]) == (1, 0)
    assert json.loads(refused)["event"] == "login-refused"
    found = json.loads(last)
    assert (found["level"], found["logger"]) == ("warning", "mtl.log")
    assert (found["dropped"], found["dropped-audit"]) == (1, 1)
    assert "1 of them of the audit log" in found["message"]
