"""A plugin of pytest: collects the tests once, then tries each mutant in a fork of the process with all imports.

    python -m pytest -p mutation.forked --requests FD --changed CODE

FD is a stream socket with one JSON document in a line. A request is {"path": a file in CODE, "source": its changed
text, "tests": [names]}; with an empty path the code is unchanged. The reply is {"failed": test}: "" if all passed, null
if a fork cannot decide it, because the import executes the change or none of these tests was collected.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from mutation.project import UNIT_TEST_S


class OnImportError(Exception):
    """The import executes the change; existing functions do not have it."""


class Plugin:
    """Answers requests instead of running the tests."""

    def __init__(self, requests: socket.socket, code: Path) -> None:
        self._requests = requests
        self._below = f"{code}/"
        self._sources = {str(path): path.read_bytes() for path in code.rglob("*.py")}
        self._functions: defaultdict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        self._report_pipe: int | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if self._report_pipe is not None:
            return None
        items = {item.nodeid: item for item in session.items}
        for found in gc.get_objects():
            if isinstance(found, FunctionType) and found.__code__.co_filename.startswith(self._below):
                self._functions[_name(found.__code__)].append(found)
        gc.freeze()  # the forks share it
        with self._requests.makefile("rw", encoding="utf-8") as stream:
            for line in stream:
                asked = json.loads(line)
                tests = [items[name] for name in asked["tests"] if name in items]
                stream.write(json.dumps({"failed": self._tried(session, asked, tests)}) + "\n")
                stream.flush()
        return True

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._report("begun", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._report("failed", report.nodeid)

    def _report(self, what: str, test: str) -> None:
        if self._report_pipe is not None:
            os.write(self._report_pipe, f"{what} {test}\n".encode())

    def _tried(self, session: pytest.Session, asked: dict[str, Any], tests: list[pytest.Item]) -> str | None:
        try:
            changes = self._changes(asked["path"], asked["source"]) if asked.get("path") else []
        except OnImportError:
            return None
        if not tests:
            return None
        reading, writing = os.pipe()
        place = tempfile.mkdtemp(prefix="mm")
        process = os.fork()
        if process == 0:
            os.close(reading)
            self._report_pipe = writing
            self._run(session, tests, changes, place)
        os.close(writing)
        try:
            return _awaited(reading)
        finally:
            os.close(reading)
            _end(process)
            shutil.rmtree(place, ignore_errors=True)

    def _run(
        self,
        session: pytest.Session,
        tests: list[pytest.Item],
        changes: Sequence[tuple[FunctionType, CodeType]],
        place: str,
    ) -> None:
        """In the fork: run the tests with these changes, then exit."""
        try:
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(nothing, descriptor)
            os.environ["PYTEST_DEBUG_TEMPROOT"] = place
            for function, code in changes:
                function.__code__ = code
            session.items = list(tests)
            session.testsfailed = 0
            session.config.option.maxfail = 1
            session.config.hook.pytest_runtestloop(session=session)
            self._report("end", "")
        finally:
            os._exit(0)

    def _changes(self, path: str, source: str) -> list[tuple[FunctionType, CodeType]]:
        """The functions whose code differs in this source. A module that is not imported yet will be imported with the
        change.
        """
        if not any(getattr(module, "__file__", None) == path for module in list(sys.modules.values())):
            return []
        before = compile(self._sources[path], path, "exec", dont_inherit=True)
        found = []
        for old, new, outermost in _changed(
            before, compile(source, path, "exec", dont_inherit=True), within=False
        ):
            functions = self._functions.get(_name(old), [])
            if outermost and not (functions and len(old.co_freevars) == len(new.co_freevars)):
                raise OnImportError
            found += [
                (function, new) for function in functions if len(old.co_freevars) == len(new.co_freevars)
            ]
        return found


def _changed(old: CodeType, new: CodeType, *, within: bool) -> Iterator[tuple[CodeType, CodeType, bool]]:
    """Pairs of functions that differ, and whether the function is an outermost one."""
    inner, other = _codes(old), _codes(new)
    alike = [code.co_name for code in inner] == [code.co_name for code in other]
    function = bool(old.co_flags & inspect.CO_NEWLOCALS)
    if function:
        yield old, new, not within
    elif not alike or _own(old) != _own(new):
        raise OnImportError
    if alike:
        for old_code, new_code in zip(inner, other, strict=True):
            if old_code != new_code:
                yield from _changed(old_code, new_code, within=within or function)


def _codes(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _own(code: CodeType) -> tuple[bytes, tuple[str, ...], list[str]]:
    """The code of a function without its inner functions."""
    return code.co_code, code.co_names, [repr(x) for x in code.co_consts if not isinstance(x, CodeType)]


def _name(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _awaited(reading: int) -> str | None:
    """The test that failed, that did not end in time or that ended its process; "" if all passed."""
    text, running = "", None
    while True:
        ready, _, _ = select.select([reading], [], [], UNIT_TEST_S)
        new = os.read(reading, 1 << 16).decode() if ready else ""
        if not new:
            return running
        text += new
        *lines, text = text.split("\n")
        for line in lines:
            what, _, running = line.partition(" ")
            if what in {"failed", "end"}:
                return running


def _end(process: int) -> None:
    """End the process and its children."""
    for end in (os.killpg, os.kill):
        try:
            end(process, signal.SIGKILL)
        except ProcessLookupError:
            pass
    os.waitpid(process, 0)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Called by pytest."""
    parser.addoption("--requests", type=int)
    parser.addoption("--changed", type=Path)


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest."""
    number = config.getoption("--requests")
    if number is not None:
        requests = socket.socket(fileno=number)
        config.pluginmanager.register(Plugin(requests, config.getoption("--changed").resolve()), "forked")
