"""A broker with a door of every protocol, each a separate process that can be killed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mtl.testing import RunningBroker, broker
from tests.bridging.ends import DOORS, MTL, End
from tests.support.doors import await_line, door_process


class Site:
    """The endpoints of the protocols; a restarted door has the same endpoint."""

    def __init__(self, running: RunningBroker) -> None:
        self.broker = running
        self.places: dict[str, str] = {}
        self._doors: dict[str, tuple[subprocess.Popen[bytes], ExitStack]] = {}
        self.start(*DOORS.values())
        self.places[MTL] = running.endpoint

    def start(self, *ends: End) -> None:
        """Start doors, all at once; return when each is ready."""
        for end in ends:
            stack = ExitStack()
            listen = self.places.get(end.name, "").removeprefix("ws://") or end.listen
            arguments = [end.name, "--connect", self.broker.endpoint, "--listen", listen]
            self._doors[end.name] = stack.enter_context(door_process(*arguments)), stack
        for end in ends:
            output = self._doors[end.name][0].stdout
            assert output is not None
            self.places[end.name] = await_line(output.fileno(), rf"mtl door {end.name} ready at (\S+) ")

    def kill(self, end: End) -> None:
        """SIGKILL to a door."""
        _, stack = self._doors.pop(end.name)
        stack.close()

    def close(self) -> None:
        """End all doors."""
        for name in list(self._doors):
            self.kill(DOORS[name])


@contextmanager
def everything(place: Path) -> Iterator[Site]:
    """The broker and its doors."""
    with broker(place / "broker") as running:
        site = Site(running)
        try:
            yield site
        finally:
            site.close()
