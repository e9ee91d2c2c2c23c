"""Helper processes: publishers and readers outside of the measuring process. `python -m benchmarks.roles NAME`.

A role reads its arguments from standard input (JSON in a line, since ten thousand names are too long for a command),
writes a line to standard output when it is ready, waits for another line, works, and prints its result as JSON. Times
are of the monotonic clock, which all processes of the machine share.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks import memory

SCRIPTS = Path(__file__).parents[1]
READY_S = 180.0
"""The timeout for getting ready: a role may have to open a thousand connections first."""
RESULT_S = 1800.0

Result = dict[str, Any]
Prepare = Callable[..., tuple[Result, Callable[[], Result]]]
"""A role: it gets its arguments, prepares, and returns the facts to report and the work after the start signal."""


_NO_SPINNING = {"OPENBLAS_NUM_THREADS": "1"}
"""Loading pyarrow loads numpy, whose threads would keep a processor busy for the first tenth of a second."""


class RoleFailed(RuntimeError):
    """A helper process ended without a result; its error is on standard error."""


class Role:
    """A helper process. As a context manager it is stopped, by a kill if necessary."""

    def __init__(self, name: str, **arguments: object) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(_paths()), **_NO_SPINNING}
        self._name = name
        memory.settle()  # so that it is soon done once the role is ready: its connection wants to be looked after
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.roles", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self._send_line(json.dumps(arguments))

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def ready(self) -> Result:
        """Wait until the role is prepared; returns the facts that it reports."""
        return self._line(READY_S)

    def go(self) -> None:
        """Give the start signal."""
        self._send_line("go")

    def result(self) -> Result:
        """Wait for the result."""
        return self._line(RESULT_S)

    def run(self) -> Result:
        """`ready`, `go` and `result` in one call."""
        self.ready()
        memory.settle()
        self.go()
        return self.result()

    def close(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send_line(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _line(self, patience: float) -> Result:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], patience)[0]:
            raise RoleFailed(f"the role {self._name} said nothing for {patience:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise RoleFailed(f"the role {self._name} ended with exit code {self._process.wait()}")
        result: Result = json.loads(line)
        return result


def together(*roles: tuple[str, Mapping[str, object]]) -> list[Result]:
    """Run roles at the same time: each gets ready after the other, then all begin. Returns their results, in order."""
    with ExitStack() as stack:
        running = []
        for name, arguments in roles:
            role = stack.enter_context(Role(name, **arguments))
            role.ready()
            running.append(role)
        memory.settle()
        for role in running:
            role.go()
        return [role.result() for role in running]


def _paths() -> list[str]:
    return [str(SCRIPTS), *filter(None, [os.environ.get("PYTHONPATH")])]


def main() -> int:
    """The main function of a helper process."""
    from benchmarks import door_roles, plain_roles, raw_roles, rfc_roles  # noqa: PLC0415 the helper's alone

    roles: dict[str, Prepare] = {
        **door_roles.ROLES,
        **plain_roles.ROLES,
        **raw_roles.ROLES,
        **rfc_roles.ROLES,
    }
    [name] = sys.argv[1:]
    facts, work = roles[name](**json.loads(sys.stdin.readline()))
    print_result(facts)
    if not sys.stdin.readline():
        return 1  # the parent process has ended
    print_result(work())
    return 0


def print_result(result: Result) -> None:
    """Write a line to the parent process."""
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    sys.exit(main())
