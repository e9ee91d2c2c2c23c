"""A plugin of pytest: the lines of the code that each test executes in the process of the tests.

    python -m pytest -p mutation.tracing --traced CODE --traced-to FILE

FILE becomes {test: {file: [lines]}} in JSON, of the tests that passed: a test that fails anyway proves nothing. Child
processes of a test are not traced.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import pytest


class Trace(Protocol):
    """The trace function that the interpreter calls."""

    def __call__(self, frame: FrameType, event: str, argument: Any, /) -> Trace | None:
        """Called for a call, a line, a return or an exception; the result traces the rest of the frame."""


class Tracer:
    """Collects (file, line) of the files below `code`."""

    def __init__(self, code: Path) -> None:
        self._below = f"{code}/"
        self._lines: set[tuple[str, int]] = set()

    def start(self) -> None:
        """Trace from here on, in this thread and in those that start later."""
        self._lines = set()
        threading.settrace(self._call)
        sys.settrace(self._call)

    def stop(self) -> dict[str, list[int]]:
        """The lines by file since the start."""
        sys.settrace(None)
        threading.settrace(None)
        lines: defaultdict[str, list[int]] = defaultdict(list)
        for path, line in sorted(self._lines):
            lines[path].append(line)
        return dict(lines)

    def _call(self, frame: FrameType, _event: str, _argument: Any) -> Trace | None:
        return self._line if frame.f_code.co_filename.startswith(self._below) else None

    def _line(self, frame: FrameType, _event: str, _argument: Any) -> Trace:
        self._lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line


class Plugin:
    """Traces every test with its fixtures."""

    def __init__(self, code: Path, to: Path) -> None:
        self._tracer = Tracer(code)
        self._to = to
        self._lines: dict[str, dict[str, list[int]]] = {}
        self._failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._tracer.start()
        try:
            return (yield)
        finally:
            self._lines[item.nodeid] = self._tracer.stop()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        passed = {test: lines for test, lines in self._lines.items() if test not in self._failed}
        self._to.write_text(json.dumps(passed), encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Called by pytest."""
    parser.addoption("--traced", type=Path)
    parser.addoption("--traced-to", type=Path)


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest."""
    to = config.getoption("--traced-to")
    if to is not None:
        config.pluginmanager.register(Plugin(config.getoption("--traced").resolve(), to))
