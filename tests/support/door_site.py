"""Doors whose peers are users: a broker with users, and the credentials of their peers at every door."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from mtl.broker.runtime.users import Users, new_password
from mtl.client.settings import Settings
from mtl.doors.config import DoorConfig
from mtl.doors.logins import Logins
from mtl.doors.running import Door, running
from mtl.net.curve import write_keys
from mtl.storage.records import GrantRecord
from mtl.testing import RunningBroker, broker
from tests.support.tls import Certificates

TOKEN, TOKEN_OF_BOB = "0123456789abcdef", "fedcba9876543210"


class Site:
    """A broker with the users alice and bob, who have all rights on resources of their initial, and the user door."""

    def __init__(self, running: RunningBroker, place: Path) -> None:
        self.broker = running
        self.files = Certificates(place)
        self.place = place
        self.settings = Settings(running.endpoint, user="door", password_file=str(place / "password"))
        self.tls = {"certificate_file": self.files.certificate, "key_file": self.files.key}
        for name in ("mc0", "alice", "bob", "eve"):
            write_keys(place / name)
        tokens = place / "tokens"
        tokens.touch(0o600)
        tokens.write_text(f"alice {TOKEN}\nbob {TOKEN_OF_BOB}\n")

    @asynccontextmanager
    async def door(self, name: str, **members: Any) -> AsyncIterator[Door]:
        config = DoorConfig(**({"listen": "127.0.0.1:0", "create": ("*",)} | members))
        async with (
            Logins(self.settings).own() as connection,
            running(name, config, connection) as opened,
        ):
            yield opened


@contextmanager
def door_site(place: Path) -> Iterator[Site]:
    """The site, with its files in this directory."""
    config, data = place / "broker.toml", place / "data"
    config.write_text("[authentication]\nanonymous = false\n")
    (place / "password").write_text("of the door\n")
    with Users(data) as users:
        for name, password in (("alice", "of alice"), ("bob", "of bob"), ("door", "of the door")):
            users.add(name, new_password(password, os.urandom, 4096), [])
        for name in ("alice", "bob"):
            rights = [GrantRecord("/", right, f"{name[0]}.*") for right in ("read", "write", "manage")]
            users.grant(name, rights)
        users.grant("door", [GrantRecord("/", "act-as", "alice|bob")])
    with broker(data, config) as running:
        yield Site(running, place)
