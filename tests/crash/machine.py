"""A machine with a broker that is started and killed, loses its power, and has a bad disk: its data directory."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.crash.image import Image, Survives
from tests.crash.shim import Control

ROOT = Path(__file__).parents[2]

READY_S = 120.0
"""How long a start may take: a tenth of a second, and more where the machine has much other work."""

STOP_S = 40.0
"""The timeout of a stop: the broker's own limit for its disk (limits.STOP_S), and a margin."""


TRACEBACK = "Traceback (most recent call last)"


class MachineFailed(Exception):
    """The broker failed to start, or to stop on request."""


class _Child:
    """A process of the fork server, which reports its events as lines."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}
        self.news = threading.Condition()

    def record(self, facts: dict[str, Any]) -> None:
        with self.news:
            self.known |= facts
            self.news.notify_all()

    def wait(self, names: Sequence[str], seconds: float) -> str | None:
        """The first of these events; None after the timeout."""

        def known() -> str | None:
            return next((name for name in names if name in self.known), None)

        with self.news:
            self.news.wait_for(lambda: known() is not None, seconds)
        return known()


class ForkServer:
    """The process that forks brokers (forks.py), for as long as the block lasts."""

    def __init__(self, shim: Path | None) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        if shim is not None:
            environment["LD_PRELOAD"] = str(shim)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.forks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
        )
        self._children: list[_Child] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def run(self, log: Path, **asked: object) -> _Child:
        """Start a child (forks.py); its output goes to `log`."""
        child = _Child()
        number = len(self._children)
        self._children.append(child)
        assert self._process.stdin is not None
        line = {"id": number, "log": str(log), **asked}
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()
        return child

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            facts = json.loads(line)
            self._children[facts.pop("id")].record(facts)
        for child in self._children:
            child.record({"code": None})

    def close(self) -> None:
        """End the fork server and its children."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Machine:
    """One data directory, and at most one broker on it."""

    def __init__(
        self,
        server: ForkServer,
        place: Path,
        *,
        journaled: bool = False,
        source: Path | None = None,
        **settings: object,
    ) -> None:
        """`settings` are members of the broker's configuration; with `journaled` its power can be cut. The directory
        begins as a copy of `source`, or empty.
        """
        place.mkdir(parents=True)
        self.data = place / "data"
        self.log = place / "broker.log"
        self.endpoint = f"ipc://{place / 's'}"
        self._server = server
        self._place = place
        self._before = place / "before" if journaled else None
        self._journal = place / "journal"
        self._child: _Child | None = None
        self._control: Control | None = None
        if source is not None:
            shutil.copytree(source, self.data)
        else:
            self.data.mkdir()
        self._settings = settings

    # --- the process ----------------------------------------------------------------------------------------

    def launch(self, log: Path | None = None) -> None:
        """Start the broker without waiting. Faults may be set in `control` from now on. `log` takes its output instead
        of the usual log.
        """
        assert self._child is None
        if self._before is not None:
            shutil.rmtree(self._before, ignore_errors=True)
            shutil.copytree(self.data, self._before)
            self._journal.unlink(missing_ok=True)
        if self._control is not None:
            self._control.close()
        self._control = Control(self._place / "control")
        self._child = self._server.run(
            log or self.log,
            broker={**self._settings, "data": str(self.data), "endpoint": self.endpoint},
            below=str(self.data),
            journal=str(self._journal) if self._before is not None else None,
            control=str(self._place / "control"),
        )

    def await_ready(self) -> bool:
        """Wait until the broker is ready; False if it ended instead, as after a planned kill during the start."""
        child = self._running()
        found = child.wait(("ready", "code"), READY_S)
        if found is None:
            self.kill()
            raise MachineFailed(f"the broker was not ready after {READY_S:.0f} s; {self.tail()}")
        return found == "ready"

    def start(self) -> None:
        """Start the broker and wait until it is ready."""
        self.launch()
        if not self.await_ready():
            raise MachineFailed(f"the broker ended instead of starting; {self.tail()}")

    def await_end(self, seconds: float) -> bool:
        """Whether the broker ends within this time."""
        return self._running().wait(("code",), seconds) is not None

    def kill(self) -> None:
        """SIGKILL. Raises `MachineFailed` if the broker had ended before."""
        child = self._running()
        if child.wait(("pid", "code"), READY_S) == "pid" and "code" not in child.known:
            try:
                os.kill(child.known["pid"], signal.SIGKILL)
            except ProcessLookupError:
                pass
        child.wait(("code",), READY_S)
        if (code := self._gone()) != -signal.SIGKILL:
            raise MachineFailed(f"the broker ended by itself, with {code}; {self.tail()}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the running broker."""
        os.kill(self._running().known["pid"], number)

    def limit_files(self, octets: int | None) -> None:
        """Limit the size of the broker's files; None ends that. For as long as the process runs."""
        limit = resource.RLIM_INFINITY if octets is None else octets
        pid = self._running().known["pid"]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    def await_rest(self, seconds: float) -> None:
        """Wait until the broker has not used its disk for this time."""
        operations, since, until = -1, 0.0, time.monotonic() + READY_S
        while time.monotonic() - since < seconds and time.monotonic() < until:
            if (now := self.control["operations"]) != operations:
                operations, since = now, time.monotonic()
            time.sleep(0.05)

    def stop(self) -> int:
        """SIGTERM; returns the exit code. Raises `MachineFailed` if the broker does not end."""
        child = self._running()
        self.signal(signal.SIGTERM)
        if child.wait(("code",), STOP_S) is None:
            self.kill()
            raise MachineFailed(f"the broker did not stop within {STOP_S:.0f} s; {self.tail()}")
        code = self._gone()
        assert code is not None
        return code

    @property
    def control(self) -> Control:
        """The control of the shim of the last started broker."""
        assert self._control is not None
        return self._control

    def ended(self) -> int | None:
        """The exit code of a broker that ended by itself: negative for a signal."""
        return self._gone()

    @property
    def running(self) -> bool:
        return self._child is not None and "code" not in self._child.known

    def command(self, *argv: str) -> tuple[int, str]:
        """Run another command of `mtl` as a process; returns its exit code and output."""
        log = self._place / "command.log"
        log.unlink(missing_ok=True)
        child = self._server.run(log, argv=argv)
        if child.wait(("code",), STOP_S) is None:
            raise MachineFailed(f"mtl {' '.join(argv)} did not end within {STOP_S:.0f} s")
        return child.known["code"], log.read_text(errors="replace")

    def _running(self) -> _Child:
        assert self._child is not None, "the broker was not started"
        return self._child

    def _gone(self) -> int | None:
        child, self._child = self._running(), None
        code: int | None = child.known["code"]
        return code

    def log_text(self, since: int = 0) -> str:
        """The broker's log from this offset on."""
        if not self.log.exists():
            return ""
        return self.log.read_bytes()[since:].decode(errors="replace")

    def tail(self) -> str:
        """The end of its log, for messages."""
        return "its log ends:\n" + "\n".join(self.log_text().splitlines()[-12:])

    # --- power ----------------------------------------------------------------------------------------------

    def lose(self, survives: Survives, chance: random.Random) -> None:
        """After a kill, lose all, some or no unsynced octets."""
        assert self._before is not None
        image = Image(self._before, str(self.data), chance)
        if self._journal.exists():
            image.replay(self._journal.read_bytes())
        shutil.rmtree(self.data)
        image.write(self.data, survives)


def wait_until(done: Any, seconds: float, step: float = 0.01) -> bool:
    """Whether `done()` became true in time."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(step)
    return True
