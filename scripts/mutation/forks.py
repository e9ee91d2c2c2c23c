"""One process of pytest that has imported the project and its tests, and tries each mutant in a fork of itself."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from mutation.mutants import Mutant
from mutation.project import Failing, Project, ended, limited

STARTED_S = 600.0
"""The timeout for the collection of all tests."""


class Forks:
    """Tries mutants of `copy` with the tests of these files. The process starts with the first mutant."""

    def __init__(self, copy: Project, files: Sequence[str]) -> None:
        self._copy = copy
        self._files = sorted(set(files))
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None
        self._sound: dict[str, bool] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            ended(self._process)
        if self._requests is not None:
            self._requests.close()

    def failing(self, mutant: Mutant, tests: Sequence[str]) -> str | None:
        """The first test that fails with the mutant and passes without it, or ""; None if a fork cannot decide it.

        Raises `Failing`.
        """
        path = self._copy.place / mutant.path
        if self._requests is None:
            self._asked("", "", [])  # it imports the code as it is
        with self._copy.changed(mutant) as source:
            failed = self._asked(str(path), source.decode(), tests)
        if not failed:
            return failed
        if failed not in self._sound:
            self._sound[failed] = self._asked("", "", [failed]) == ""
        return failed if self._sound[failed] else None

    def _asked(self, path: str, source: str, tests: Sequence[str]) -> str | None:
        if self._requests is None:
            self._requests = self._started()
        # Line by line: a reply is short.
        self._requests.sendall(json.dumps({"path": path, "source": source, "tests": tests}).encode() + b"\n")
        reply = b""
        while not reply.endswith(b"\n"):
            more = self._requests.recv(1 << 16)
            if not more:
                raise Failing("the tests could not be collected: see `python -m pytest --collect-only`")
            reply += more
        failed: str | None = json.loads(reply)["failed"]
        return failed

    def _started(self) -> socket.socket:
        own, other = socket.socketpair()
        own.settimeout(STARTED_S)
        command = [
            sys.executable,
            "-B",
            "-m",
            "pytest",
            "-q",
            "-s",
            "-p",
            "no:cacheprovider",
            "-m",
            "not spark",
        ]
        command += [
            "-p",
            "mutation.forked",
            "--changed",
            str(self._copy.code),
            "--requests",
            str(other.fileno()),
        ]
        with other:
            self._process = subprocess.Popen(
                limited([*command, *self._files]),
                cwd=self._copy.place,
                env=self._copy.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                start_new_session=True,
            )
        return own
