"""The minimal server with one odd reply: the table of what a server may send wrongly, at each step of a session.

`ODD` is run against the blocking and the asyncio client by tests/integration/test_odd_servers.py.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.minimal_server import MinimalServer

OPEN, PROFILE, READER, WRITER = (
    "connection.open",
    "connection.profile",
    "connection.reader",
    "connection.writer",
)
NAMES_OF_OURS: Mapping[str, object] = {
    "boot": 7,
    "heartbeat": "5",
    "user": {"id": 1},
    "max-content": -1,
    "session": 5,
}
GRANTED: Mapping[str, object] = {
    "epoch": "x",
    "from": -5,
    "heartbeat": -1,
    "history": [[5, "junk"]],
    "last": {"resource": -3},
    "local": 7,
    "memory": [],
    "packed": "yes",
    "window": {"contents": "many"},
    "log-epochs": {"resource": 3},
    "endpoint": 4,
}


@dataclass(frozen=True)
class Odd:
    """One oddity. `named` is a part of the error's text; None: it is tolerated."""

    step: str
    """The request whose reply is odd, or `data` for a message before the first content."""
    frames: Sequence[bytes] | None = None
    """Sent instead of the reply's frames."""
    status: bytes | None = None
    members: Mapping[str, object] | None = None
    """Replace members of the reply."""
    named: str | None = None
    deadline: float = 30.0
    """Seconds that the client may try."""


def short(name: bytes) -> bytes:
    return bytes((len(name),)) + name


CONTENT = struct.pack(">BQ", 5, 1) + short(b"resource")

ODD: dict[str, Odd] = {
    # --- frames of a reply
    **{f"one-frame-{step}": Odd(step, [b"200"], named="frames") for step in (OPEN, PROFILE, READER, WRITER)},
    "empty-frame": Odd(OPEN, [b""], named="frames"),
    "three-frames": Odd(READER, [b"202", b"{}", b"more"], named="frames"),
    "no-json": Odd(OPEN, [b"201", b"Ready"], named="JSON"),
    "no-object": Odd(PROFILE, [b"200", b"[]"], named="Connection.Profile"),
    "no-utf8": Odd(READER, [b"202", b"\xff"], named="UTF-8"),
    "deep": Odd(OPEN, [b"201", b"[" * 100_000], named="JSON"),
    # --- the status
    "status-302": Odd(OPEN, status=b"302", named="302"),
    "status-100": Odd(READER, status=b"100", named="100"),
    "status-text": Odd(PROFILE, status=b"OK", named="OK"),
    "status-empty": Odd(WRITER, status=b"", named="status"),
    "status-of-another-request": Odd(READER, status=b"201", named="201"),
    "status-599": Odd(READER, status=b"599", named="599"),
    "refusal-without-object": Odd(READER, [b"404", b"7"], named="404"),
    "refusal-with-odd-members": Odd(
        READER, status=b"404", members={"reason": 7, "message": [], "status": 3}, named="404"
    ),
    # --- members that the RFC has
    **{
        f"profiles-{name}": Odd(OPEN, members={"profiles": value}, named="profiles")
        for name, value in {"text": "test", "numbers": [1], "null": None}.items()
    },
    **{
        f"port-{name}": Odd(READER, members={"port": value}, named="port")
        for name, value in {"text": "5976", "negative": -1, "large": 65_536, "float": 1.5}.items()
    },
    "port-0": Odd(READER, members={"port": 0}, named="no answer", deadline=1.0),
    "lease-number": Odd(READER, members={"lease": 7}, named="lease"),
    "lease-long": Odd(WRITER, members={"lease": "x" * 300}, named="octets"),
    "lease-with-control-characters": Odd(READER, members={"lease": "a\nb"}, named="control characters"),
    "mechanisms-odd": Odd(OPEN, status=b"401", members={"mechanisms": "PLAIN"}, named="mechanisms"),
    # --- members that only this project has: another server may use their names
    "status-member": Odd(OPEN, members={"status": 7}),
    **{f"open-{name}": Odd(OPEN, members={name: value}) for name, value in NAMES_OF_OURS.items()},
    **{f"reader-{name}": Odd(READER, members={name: value}) for name, value in GRANTED.items()},
    **{f"writer-{name}": Odd(WRITER, members={name: value}) for name, value in GRANTED.items()},
    # --- data messages before a content
    **{
        f"data-{name}": Odd("data", frames)
        for name, frames in {
            "one-frame": [b"junk"],
            "one-empty-frame": [b""],
            "content-without-body": [CONTENT],
            "three-frames": [CONTENT, b"body", b"more"],
            "four-frames": [CONTENT, b"body", CONTENT, b"more"],
            "empty-header": [b"", b"body"],
            "unknown-type": [b"\x0a", b""],
            "cut-off": [CONTENT[:12], b"body"],
            "another-resource": [struct.pack(">BQ", 5, 1) + short(b"other"), b"body"],
            "broken-table": [CONTENT + b"\0\0\0\x09x", b"body"],
            "stray-response": [struct.pack(">BQ", 2, 77), b"200"],
            "odd-response": [struct.pack(">BQ", 2, 77), b"two"],
            "stray-confirm": [struct.pack(">BQB", 6, 2**64 - 1, 1), b""],
            "stray-pong": [b"\x09", b"9" * 30],
            "a-lease": [struct.pack(">BQ", 1, 1) + short(b"lease"), b""],
        }.items()
    },
}
"""Each oddity by its name."""


class OddServer(MinimalServer):
    """The minimal server with one oddity. It has the profile `test`."""

    def __init__(self, odd: Odd) -> None:
        super().__init__()
        self.odd = odd

    def decide(self, peer: bytes, name: str, body: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
        code, reply = super().decide(peer, name, body)
        if name != self.odd.step:
            return code, reply
        return self.odd.status if self.odd.status is not None else code, {**reply, **(self.odd.members or {})}

    def reply(self, envelope: list[bytes], name: str, frames: list[bytes]) -> None:
        if name == self.odd.step and self.odd.frames is not None:
            frames = list(self.odd.frames)
        super().reply(envelope, name, frames)

    def deliver(self, peer: bytes, number: int, name: str, table: bytes, body: bytes) -> None:
        if self.odd.step == "data":
            assert self.odd.frames is not None
            self._router.send_multipart([peer, *self.odd.frames])
            self._router.send_multipart([peer, *self.odd.frames])
        super().deliver(peer, number, name, table, body)
