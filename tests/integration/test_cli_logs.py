from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator

import pytest

from mtl.cli.logs import write_lines

log = logging.getLogger("mtl.test")
HOSTILE = "a\nb\x1b[31m\u202e\x07"


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], list[str]]]:
    """The lines on standard error since the last call; pytest's handlers are restored at the end."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level

    def taken() -> list[str]:
        return capsys.readouterr().err.splitlines()

    yield taken
    root.handlers[:] = before
    root.setLevel(level)


Written = Callable[[], list[str]]


def test_control_characters_in_a_text_line_are_escaped(written: Written) -> None:
    write_lines("info", "text")
    log.info("resource %s", HOSTILE)
    (line,) = written()
    assert line.endswith(r"INFO mtl.test: resource a\nb\x1b[31m\u202e\x07")


def test_a_line_of_json_has_the_message_or_the_fields(written: Written) -> None:
    write_lines("info", "json")
    log.info("resource %s", HOSTILE)
    log.warning("unused", extra={"fields": {"event": "login", "user": HOSTILE}})
    text_record, fields_record = (json.loads(line) for line in written())
    assert text_record.pop("time").endswith("+00:00")
    assert text_record == {"level": "info", "logger": "mtl.test", "message": f"resource {HOSTILE}"}
    assert fields_record.pop("time")
    assert fields_record == {"level": "warning", "logger": "mtl.test", "event": "login", "user": HOSTILE}


def test_a_traceback_in_json_is_a_member_of_the_line(written: Written) -> None:
    write_lines("info", "json")
    try:
        int("why")
    except ValueError:
        log.exception("failed")
    (line,) = written()
    assert "ValueError: invalid" in json.loads(line)["traceback"]


@pytest.mark.parametrize(("level", "count"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_lines_below_the_last_configured_level_are_not_written(
    written: Written, level: str, count: int
) -> None:
    write_lines("error", "text")
    write_lines(level, "text")
    for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        log.log(number, "x")
    assert len(written()) == count
