"""Commands of `mtl` in processes that another process forks: a fork takes milliseconds, the start of an interpreter and
the imports of the command line a second.
"""

from __future__ import annotations

import math
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

import msgspec

ROOT = Path(__file__).parents[2]

STUCK_S = 60.0
"""Seconds for a fork, on a loaded machine."""


@dataclass(frozen=True)
class Ended:
    """The end of a command: its exit code (negative: a signal), and the seconds since `interrupt`, without those for
    which it had to wait for a processor. So the load of the machine does not count.
    """

    code: int
    seconds: float


class ForkedCommands:
    """A context manager that starts commands, and kills those that are left at its end."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.support.forked_commands"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        self._lines = b""
        self._began: dict[int, float] = {}
        """The processes that run, with the moment of their interrupt."""
        self._ended: dict[int, Ended] = {}
        return self

    def start(self, arguments: list[str], output: Path) -> int:
        """Run `mtl` with these arguments and without standard input. Returns the id of the process."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode([str(output), *arguments]) + b"\n")
        self._process.stdin.flush()
        while not isinstance(pid := self._message(STUCK_S), int):
            assert pid is not None, "the process that forks is stuck"
        self._began[pid] = math.nan
        return pid

    def interrupt(self, pid: int) -> None:
        """Send SIGINT."""
        self._began[pid] = time.monotonic() - _waited(pid)
        os.kill(pid, signal.SIGINT)

    def wait(self, pid: int, seconds: float) -> Ended | None:
        """The end of a process; None if it does not end within `seconds`."""
        deadline = time.monotonic() + seconds
        while pid not in self._ended:
            if self._message(deadline - time.monotonic()) is None:
                return None
        return self._ended.pop(pid)

    def _message(self, seconds: float) -> object:
        """The next message of the process; None after `seconds`."""
        assert self._process.stdout is not None
        while b"\n" not in self._lines:
            if not select.select([self._process.stdout], [], [], max(0.0, seconds))[0]:
                return None
            octets = os.read(self._process.stdout.fileno(), 1 << 16)
            assert octets, "the process that forks has ended"
            self._lines += octets
        line, _, self._lines = self._lines.partition(b"\n")
        message = msgspec.json.decode(line)
        if isinstance(message, list):
            pid, code, at = message
            self._ended[pid] = Ended(code, at - self._began.pop(pid))
        return message

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in self._began:
            os.kill(pid, signal.SIGKILL)
        assert self._process.stdin is not None
        with self._process:
            self._process.stdin.close()


def _serve(awake: int) -> None:
    """A request is a line with the file for the output and the arguments. The process writes the id of each command,
    and at its end a list: id, exit code, time. `awake` is readable when one has ended.
    """
    requests = b""
    while True:
        ready, _, _ = select.select([0, awake], [], [])
        if awake in ready:
            os.read(awake, 1 << 10)
            _reap()
        if 0 in ready:
            octets = os.read(0, 1 << 16)
            if not octets:
                return
            *lines, requests = (requests + octets).split(b"\n")
            for line in lines:
                output, *arguments = msgspec.json.decode(line)
                _write(_fork(output, arguments))


def _reap() -> None:
    with suppress(ChildProcessError):  # none is left
        while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            at = time.monotonic() - _waited(found.si_pid)
            _, status = os.waitpid(found.si_pid, 0)
            _write([found.si_pid, os.waitstatus_to_exitcode(status), at])


def _waited(pid: int) -> float:
    """Seconds for which the main thread of a process was ready and had no processor; 0 if the system does not count."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def _write(message: object) -> None:
    os.write(1, msgspec.json.encode(message) + b"\n")


def _fork(output: str, arguments: list[str]) -> int:
    pid = os.fork()
    if not pid:
        _run(output, arguments)
    return pid


def _run(output: str, arguments: list[str]) -> NoReturn:
    """Become the command. It ends as every program does, by SystemExit."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for descriptor, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, written), (2, written)):
        os.dup2(source, descriptor)
    sys.argv = ["mtl", *arguments]
    from mtl.cli.main import main  # noqa: PLC0415 it is loaded

    main()
    sys.exit()


def _main() -> None:
    import mtl.cli.main  # noqa: F401, PLC0415 before the first fork

    awake, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _serve(awake)


if __name__ == "__main__":
    _main()
