"""A server that checks a client: it implements RFC 11, records the client's messages, and creates special situations.

Each of these once: no reply to the first request after the 201 (the client has to time out, MTL-05); a required log-in
before the profile is selected, and another one at the first request for a lease (MTL-28); contents with numbers that
repeat, fall and are 0; a Ping. The server has one resource under any profile, ANONYMOUS log-ins, and both confirmation
models except in `test`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from mtl.conformance import frames as rfc
from mtl.conformance.router import RouterThread

PROFILES = ["test", "log", "queue"]
NUMBERS = (0, 5, 5, 3, 2**64 - 1)
"""The sequence numbers of the contents for a reader."""


@dataclass
class TwinLease:
    """A granted lease: its request, and the client's use of it."""

    kind: str
    confirm: str
    resources: list[str]
    peer: bytes = b""
    summoned: set[str] = field(default_factory=set)
    dismissed: set[str] = field(default_factory=set)
    sent: list[int] = field(default_factory=list)
    settled: list[rfc.DataCommand] = field(default_factory=list)


@dataclass
class UnmetRequirement:
    """A requirement that the client did not meet, and why."""

    requirement: str
    reason: str
    frames: list[str]


class Twin(RouterThread):
    """The checking server. `exercised` are the requirements that the client used, `wrong` the violations."""

    def __init__(self, endpoint: str = "tcp://127.0.0.1:*") -> None:
        super().__init__(endpoint)
        self.exercised: set[str] = set()
        self.wrong: list[UnmetRequirement] = []
        self.frames: list[str] = []
        self._sessions: dict[bytes, str] = {}
        """Identity of a REQ socket -> its session's state: open, or the profile's name."""
        self._challenged: dict[bytes, str] = {}
        """Identity of a REQ socket -> the request that got a 401, until the client authenticates."""
        self._leases: dict[str, TwinLease] = {}
        self._flows: dict[bytes, list[TwinLease]] = {}
        self._numbers: dict[bytes, set[int]] = {}
        self._traps = {"silence", "log-in", "log-in again"}
        self._dropped: bytes | None = None
        self._commands: dict[int, Callable[[bytes, rfc.DataCommand], None]] = {
            rfc.LEASE: self._lease,
            rfc.SUMMON: self._summon,
            rfc.DISMISS: self._dismiss,
            rfc.CONTENT: self._content,
            rfc.CONFIRM: self._settle,
            rfc.REJECT: self._settle,
            rfc.PING: lambda peer, _: self._send(peer, bytes([rfc.PONG])),
            rfc.PONG: self._pong,
        }

    def handle(self, frames: list[bytes]) -> None:
        """Record and handle one message of the client."""
        peer, *frames = frames
        self.frames.append(f"< {rfc.format_frames(frames)}")
        if self._is_request(peer, frames):
            begin = frames.index(b"") + 1  # REQ_CORRELATE puts a frame before the empty one
            self._request(peer, frames[:begin], frames[begin:])
        else:
            self._command(peer, frames)

    def _is_request(self, peer: bytes, frames: list[bytes]) -> bool:
        """PROTOCOL.md 1: a request has an envelope, which ends with its first empty frame."""
        is_data = peer in self._flows or (len(frames) == 2 and bool(frames[0]))
        return not is_data and b"" in frames

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        for name in self._challenged.values():
            self._check("MTL-29", False, f"no Connection.Authorize came after the 401 to {name}")

    def _check(self, requirement: str, met: bool, reason: str) -> bool:
        """Record that a requirement was exercised, and whether it was met. Returns `met`."""
        self.exercised.add(requirement)
        if not met:
            self.wrong.append(UnmetRequirement(requirement, reason, self.frames[-6:]))
        return met

    # --- control --------------------------------------------------------------------------------------------

    def _request(self, peer: bytes, envelope: list[bytes], frames: list[bytes]) -> None:
        if not self._check("MTL-15", len(frames) == 2, f"a request of {len(frames)} frames"):
            return
        try:
            body = json.loads(frames[1])
        except ValueError:
            body = None
        if not self._check("MTL-08", isinstance(body, dict), "a request whose body is not a JSON object"):
            return
        assert isinstance(body, dict)
        name = frames[0].decode("utf-8", "replace").lower()
        if self._withhold_reply(peer, name):
            return
        code, reply = self._answer(peer, name, body)
        text = json.dumps(reply).encode()
        self.frames.append(f"> {code} | {text.decode()}")
        self._router.send_multipart([peer, *envelope, b"%d" % code, text])

    def _withhold_reply(self, peer: bytes, name: str) -> bool:
        """Whether this request gets no reply: the first Connection.Profile."""
        if self._dropped is not None and name == "connection.open" and peer != self._dropped:
            self._check("MTL-05", True, "")
            self._dropped = None
        if "silence" in self._traps and name == "connection.profile":
            self._traps.remove("silence")
            self._dropped = peer
            self._sessions.pop(peer, None)
            return True
        return False

    def _answer(self, peer: bytes, name: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        state = self._sessions.get(peer)
        if name == "connection.open":
            return self._open(peer, body)
        if not self._check("MTL-21", state is not None, f"{name} before Connection.Open"):
            return 400, {"status": "Bad Request"}
        if name == "connection.authorize":
            self._check(
                "MTL-30", {"mechanism", "response"} <= body.keys(), f"an Authorize with {sorted(body)}"
            )
            if self._challenged.pop(peer, None) is not None:
                self._check("MTL-29", True, "")
            return self._ready()
        if self._must_log_in(peer, name):
            return 401, {"status": "Unauthorized", "mechanisms": ["ANONYMOUS"]}
        if name == "connection.profile":
            profile = str(body.get("profile")).lower()
            known = self._check("MTL-36", profile in PROFILES, f"the profile {profile!r} is not in the 201")
            self._sessions[peer] = profile if known else "open"
            return (200, {"status": "OK"}) if known else (400, {"status": "Bad Request"})
        if name in {"connection.reader", "connection.writer"}:
            return self._grant(name, str(state), body)
        return 501, {"status": "Not implemented"}

    def _must_log_in(self, peer: bytes, name: str) -> bool:
        """Whether this request gets a 401: the first one after the 201, the first for a lease, and any without the
        Authorize that is due.
        """
        if peer in self._challenged:
            self._check("MTL-29", False, f"{name} after a 401, in place of Connection.Authorize")
            return True
        if "log-in" in self._traps:
            self._traps.remove("log-in")
        elif "log-in again" in self._traps and name in {"connection.reader", "connection.writer"}:
            self._traps.remove("log-in again")
        else:
            return False
        self._challenged[peer] = name
        return True

    def _open(self, peer: bytes, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        protocol = body.get("protocol")
        right = isinstance(protocol, dict) and protocol.get("name") == "MTL" and protocol.get("version") == 1
        self._check("MTL-22", right, f"an Open with the protocol {protocol!r}")
        self._check("MTL-21", True, "")
        self._sessions[peer] = "open"
        return self._ready()

    def _ready(self) -> tuple[int, dict[str, Any]]:
        return 201, {"status": "Ready", "profiles": PROFILES}

    def _grant(self, name: str, state: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if not self._check("MTL-45", state in PROFILES, f"{name} before Connection.Profile"):
            return 400, {"status": "Bad Request"}
        resources, confirm = body.get("resources"), body.get("confirm")
        listed = isinstance(resources, list) and all(isinstance(x, str) for x in resources)
        right = listed and confirm in {"none", "full"}
        if not self._check("MTL-44", right, f"resources {resources!r} and confirm {confirm!r}"):
            return 400, {"status": "Bad Request"}
        if confirm == "full" and state == "test":
            return 501, {"status": "Not implemented"}
        token = f"lease {len(self._leases)}"
        self._leases[token] = TwinLease(name.rpartition(".")[2], str(confirm), list(resources or []))
        return 202, {"status": "Data Lease", "port": self.port, "lease": token}

    # --- data -----------------------------------------------------------------------------------------------

    def _command(self, peer: bytes, frames: list[bytes]) -> None:
        if not self._check("MTL-57", len(frames) == 2, f"a data command of {len(frames)} frames"):
            return
        try:
            command = rfc.command(*frames)
        except ValueError as error:
            self._check("MTL-58", False, str(error))
            return
        known = command.kind in self._commands
        if not self._check("MTL-58", known, f"a command of type {command.kind}") or not self._first(
            peer, command
        ):
            return
        self._commands[command.kind](peer, command)

    def _first(self, peer: bytes, command: rfc.DataCommand) -> bool:
        """Check that a data connection begins with a Lease."""
        expected = command.kind == rfc.LEASE or peer in self._flows
        return self._check("MTL-60", expected, f"{command} before the first Lease")

    def _check_name_field(self, requirement: str, command: rfc.DataCommand) -> bool:
        """Check that a Lease, Summon or Dismiss has one name and no other field."""
        whole = bool(command.rest) and len(command.rest) == 1 + command.rest[0]
        return self._check(requirement, whole, f"{command} has the fields {rfc.octets(command.rest)}")

    def _lease(self, peer: bytes, command: rfc.DataCommand) -> None:
        if not self._check_name_field("MTL-61", command):
            return
        lease = self._leases.get(command.name)
        self._check("MTL-60", lease is not None, f"a Lease with {command.name!r}, which was in no 202")
        if lease is not None:
            lease.peer = peer
            lease.summoned.clear()
            lease.dismissed.clear()
            self._flows.setdefault(peer, []).append(lease)
        self._send(peer, rfc.numbered(rfc.RESPONSE, command.number), b"403" if lease is None else b"200")
        self._send(peer, bytes([rfc.PING]))

    def _find_lease(self, peer: bytes, kind: str) -> TwinLease | None:
        return next((x for x in reversed(self._flows[peer]) if x.kind == kind and x.peer == peer), None)

    def _find_covering(self, peer: bytes, requirement: str, command: rfc.DataCommand) -> TwinLease | None:
        """The peer's lease for reading, if the resource of this Summon or Dismiss belongs to it."""
        lease = self._find_lease(peer, "reader")
        named = lease is not None and (not lease.resources or command.name in lease.resources)
        self._check(requirement, named, f"{command}, whose resource does not belong to the lease")
        return lease if named else None

    def _summon(self, peer: bytes, command: rfc.DataCommand) -> None:
        if not self._check_name_field("MTL-67", command):
            return
        lease, name = self._find_covering(peer, "MTL-69", command), command.name
        self._check(
            "MTL-70",
            lease is None or name not in lease.summoned,
            f"a second Summon of {name!r} without a Dismiss",
        )
        if lease is None or name in lease.summoned:
            self._send(peer, rfc.numbered(rfc.RESPONSE, command.number), b"400")
            return
        lease.summoned.add(name)
        lease.dismissed.discard(name)
        self._send(peer, rfc.numbered(rfc.RESPONSE, command.number), b"200")
        for place, number in enumerate(NUMBERS):
            lease.sent.append(number)
            self._send(peer, rfc.content(number, name), b"%d" % place)

    def _dismiss(self, peer: bytes, command: rfc.DataCommand) -> None:
        if not self._check_name_field("MTL-73", command):
            return
        lease, name = self._find_covering(peer, "MTL-74", command), command.name
        self._check(
            "MTL-75",
            lease is None or name not in lease.dismissed,
            f"a second Dismiss of {name!r} without a Summon",
        )
        if lease is None or name not in lease.summoned:
            self._send(peer, rfc.numbered(rfc.RESPONSE, command.number), b"400")
            return
        lease.summoned.discard(name)
        lease.dismissed.add(name)
        self._send(peer, rfc.numbered(rfc.RESPONSE, command.number), b"200")

    def _content(self, peer: bytes, command: rfc.DataCommand) -> None:
        whole = bool(command.rest) and len(command.rest) > command.rest[0]
        if not self._check("MTL-78", whole, f"{command} has the fields {rfc.octets(command.rest)}"):
            return
        lease = self._find_lease(peer, "writer")
        if not self._check("MTL-43", lease is not None, "a Content without a writing lease"):
            return
        assert lease is not None
        needed = len(lease.resources) != 1
        self._check(
            "MTL-79",
            bool(command.name) or not needed,
            "a Content without a name, under a lease of several resources",
        )
        if lease.confirm == "full":
            self._send(peer, rfc.numbered(rfc.CONFIRM, command.number, b"\0"))

    def _settle(self, peer: bytes, command: rfc.DataCommand) -> None:
        """Check a Confirm or Reject."""
        requirement, fields = ("MTL-89", 1) if command.kind == rfc.CONFIRM else ("MTL-94", 2)
        whole = len(command.rest) == fields and set(command.rest) <= {0, 1}
        if not self._check(requirement, whole, f"{command} has the fields {rfc.octets(command.rest)}"):
            return
        lease = self._find_lease(peer, "reader")
        confirms = lease is not None and lease.confirm == "full"
        if not self._check("MTL-85", confirms, f'{command}, but the lease has confirm "none"'):
            return
        assert lease is not None
        sent = command.number in lease.sent
        self._check("MTL-87", sent, f"{command}, but the contents had the numbers {lease.sent}")
        lease.settled.append(command)

    def _pong(self, _peer: bytes, command: rfc.DataCommand) -> None:
        self._check("MTL-100", not command.rest, "a Pong with fields")

    def _send(self, peer: bytes, header: bytes, body: bytes = b"") -> None:
        self.frames.append(f"> {rfc.format_frames([header, body])}")
        self._router.send_multipart([peer, header, body])
