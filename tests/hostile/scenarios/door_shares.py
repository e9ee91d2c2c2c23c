"""Doors: one user, or one address, that takes as much as it can of what all peers of a door share."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from mtl.doors.addresses import host_and_port
from mtl.doors.mbws import client as mbws
from mtl.doors.mc0 import client as mc0
from mtl.doors.micromessage import client as micromessage
from mtl.doors.reactive import client as reactive
from mtl.errors import MtlError
from mtl.net.curve import write_keys
from mtl.testing import RunningBroker
from tests.hostile.harness import PASSWORD, PATIENCE_S, scenario
from tests.support.doors import await_line, door_process
from tests.support.tls import Certificates

CONNECT: dict[str, Any] = {
    "mbws": mbws.connect,
    "mc0": mc0.connect,
    "micromessage": micromessage.connect,
    "reactive": reactive.connect,
}
SESSIONS = 60
SILENT = 300
"""More than DOOR_PENDING_ADDRESS."""

GREEDY, MODEST = "greedy", "modest"
GRANTS = ("read m", "write m", "manage m")
USERS = {GREEDY: GRANTS, MODEST: GRANTS, "door": (f"act-as {GREEDY}|{MODEST}", *GRANTS)}
ROUNDS = 5
"""How often the modest user logs in at each door, during the attack and after it."""


class Doors:
    """The credentials of the users and of the door, in files beside the broker's data."""

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        self._place = Path(tempfile.mkdtemp(dir=broker.data.parent))
        for name in (GREEDY, MODEST, "mc0"):
            write_keys(self._place / name)
        self._files = Certificates(self._place)
        password = self._place / "door.password"
        password.touch(0o600)
        password.write_text(f"{PASSWORD}\n")
        self._own = ["--user", "door", "--password-file", str(password)]

    @contextmanager
    def door(self, name: str, *, users: bool) -> Iterator[str]:
        """The endpoint of a door, whose peers are users or nobody."""
        lines = [f"[doors.{name}]", f"max-sessions = {SESSIONS}"]
        if users and name == "mc0":
            lines.append(f'curve-key-file = "{self._place}/mc0.key"')
            keys = ", ".join(f'{each} = ["{self._place}/{each}.pub"]' for each in (GREEDY, MODEST))
            lines.append(f"peer-keys = {{ {keys} }}")
        elif users:
            files = self._files
            lines.append(f'certificate-file = "{files.certificate}"\nkey-file = "{files.key}"')
            lines.append(f'client-authority-file = "{files.authority}"')
        config = self._place / f"{name}.toml"
        config.write_text("\n".join(lines), encoding="utf-8")
        arguments = [name, "--config", str(config), "--connect", self._broker.endpoint]
        arguments += ["--listen", "127.0.0.1:0"]
        with door_process(*arguments, before=self._own) as process:
            assert process.stdout is not None
            yield await_line(process.stdout.fileno(), r"ready at (\S+) ")

    def peer(self, name: str, endpoint: str, who: str | None = None) -> Any:
        """A client at this door; of this user if its peers are users."""
        how: dict[str, Any] = {}
        if who is not None and name == "mc0":
            how = {"curve_server": f"{self._place}/mc0.pub", "curve_key_file": f"{self._place}/{who}.key"}
            how["retry_deadline"] = PATIENCE_S
        elif who is not None:
            how = {"tls": self._files.client(who)}
        return CONNECT[name](endpoint, **how)

    async def slowest(self, name: str, endpoint: str, who: str | None = None) -> float:
        """The longest time in which this user logs in, writes a content and leaves. Each time it succeeds."""
        times = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            address = "topic/m" if name == "micromessage" else "m"
            async with (
                asyncio.timeout(PATIENCE_S),
                self.peer(name, endpoint, who) as connection,
                connection.writer(address) as writer,
            ):
                await (await writer.send(b"mine"))
            times.append(time.perf_counter() - began)
        return max(times)


@scenario(users=USERS)
def door_shares(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """A user that opens all the sessions that a door gives it and says nothing, while another user comes and goes."""
    doors, names = Doors(broker), list(CONNECT) if heavy else ["mbws"]
    times: list[float] = []

    async def take_all(name: str, endpoint: str, sessions: AsyncExitStack) -> None:
        admitted, refusal = 0, ""
        while not refusal and admitted < SESSIONS:
            try:
                await sessions.enter_async_context(doors.peer(name, endpoint, GREEDY))
                admitted += 1
            except MtlError as refused:
                refusal = str(refused)
        assert (admitted, "quotas.sessions" in refusal) == (SESSIONS // 4, True), (name, admitted, refusal)

    with ExitStack() as opened, asyncio.Runner() as runner:
        endpoints = {name: opened.enter_context(doors.door(name, users=True)) for name in names}
        sessions = AsyncExitStack()
        for name, endpoint in endpoints.items():
            runner.run(take_all(name, endpoint, sessions))
            times.append(runner.run(doors.slowest(name, endpoint, MODEST)))
        yield (
            f"{SESSIONS // 4} of {SESSIONS} sessions at {len(names)} doors; a log-in of another user took at most "
            f"{max(times) * 1000:.0f} ms"
        )
        runner.run(sessions.aclose())
        for name, endpoint in endpoints.items():
            runner.run(doors.slowest(name, endpoint, MODEST))


@scenario(users=USERS)
def door_silent(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Connections of one address that say nothing: peers of the same address log in at once all the while."""
    doors, names = Doors(broker), list(CONNECT) if heavy else ["micromessage"]
    times: list[float] = []
    with ExitStack() as opened, asyncio.Runner() as runner:
        endpoints = {name: opened.enter_context(doors.door(name, users=False)) for name in names}
        with ExitStack() as silent:
            for name, endpoint in endpoints.items():
                place = host_and_port(endpoint.partition("://")[2] or endpoint)
                for _ in range(SILENT):
                    silent.enter_context(socket.create_connection(place, timeout=PATIENCE_S))
                times.append(runner.run(doors.slowest(name, endpoint)))
            yield (
                f"{SILENT} connections to each of {len(names)} doors; a log-in of another peer took at most "
                f"{max(times) * 1000:.0f} ms"
            )
        for name, endpoint in endpoints.items():
            runner.run(doors.slowest(name, endpoint))
