"""A client of RFC 11/MTL written from the RFC and PROTOCOL.md alone.

It uses pyzmq, json and struct, and no code of the project, which tests/integration/minimal checks.
No session token before a log-in, no member beyond the RFC's unless a test names one, one REQ, and a DEALER for each
lease or for two.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import zmq

from tests.support.minimal_scram import log_in

PATIENCE_MS = 20_000
EMPTY = b"\0\0\0\0"
LEASE, RESPONSE, SUMMON, DISMISS, CONTENT, CONFIRM, REJECT, PING, PONG = (bytes([n]) for n in range(1, 10))


def u64(number: int) -> bytes:
    return struct.pack(">Q", number)


def short(text: str) -> bytes:
    raw = text.encode()
    return bytes([len(raw)]) + raw


class Flow:
    """One data connection. Every command of it that gets a Response has the next command sequence."""

    def __init__(self, dealer: zmq.Socket[bytes]) -> None:
        self.dealer = dealer
        self.sequence = 0

    def send(self, kind: bytes, fields: bytes = b"", body: bytes = b"") -> None:
        self.dealer.send_multipart([kind + fields, body])

    def ask(self, kind: bytes, name: str) -> int:
        """Send a Lease, Summon or Dismiss, and do not wait for the Response."""
        self.sequence += 1
        self.send(kind, u64(self.sequence) + short(name))
        return self.sequence

    def responded(self, sequence: int, code: bytes) -> None:
        """The next command is this Response."""
        assert self.receive() == (RESPONSE + u64(sequence), code)

    def lease(self, token: str, code: bytes = b"200") -> None:
        self.responded(self.ask(LEASE, token), code)

    def summon(self, resource: str, code: bytes = b"200") -> None:
        self.responded(self.ask(SUMMON, resource), code)

    def dismiss(self, resource: str, code: bytes = b"200") -> None:
        self.responded(self.ask(DISMISS, resource), code)

    def content(self, sequence: int, body: bytes, resource: str = "", table: bytes = EMPTY) -> None:
        self.send(CONTENT, u64(sequence) + short(resource) + table, body)

    def confirm(self, sequence: int, *, multiple: bool = False) -> None:
        self.send(CONFIRM, u64(sequence) + bytes([multiple]))

    def reject(self, sequence: int, *, multiple: bool = False, recycle: bool = False) -> None:
        self.send(REJECT, u64(sequence) + bytes([multiple, recycle]))

    def receive(self) -> tuple[bytes, bytes]:
        """The next command except Pings, which are answered."""
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while time.monotonic() < deadline:
            header, body = self.dealer.recv_multipart()
            if header != PING:
                return header, body
            self.send(PONG)
        raise TimeoutError("nothing but Pings")

    def read(self) -> tuple[int, str, bytes, bytes]:
        """The next command, a Content: sequence, resource, properties, body."""
        header, body = self.receive()
        assert header[:1] == CONTENT, header
        (sequence,) = struct.unpack_from(">Q", header, 1)
        end = 10 + header[9]
        return sequence, header[10:end].decode(), header[end:], body

    def confirmed(self) -> int:
        """The next command, a Confirm(multiple): its sequence."""
        header, _ = self.receive()
        assert (header[:1], header[9:]) == (CONFIRM, b"\x01"), header
        return int.from_bytes(header[1:9], "big")

    def await_confirm(self, sequence: int) -> None:
        while self.confirmed() < sequence:
            pass

    def quiet(self) -> None:
        """Check that no command is in flight: the answer to a Ping is the next command."""
        self.send(PING)
        assert self.receive() == (PONG, b"")


Keys = tuple[bytes, bytes, bytes]
"""CURVE: the server's public key, and the client's public and secret key, in Z85."""


class MinimalClient:
    """A REQ to the broker, and as many DEALERs as asked for."""

    def __init__(
        self, endpoint: str, options: dict[int, int] | None = None, keys: Keys | None = None
    ) -> None:
        self.endpoint = endpoint
        self.token: dict[str, str] = {}
        """The member `session` of every request after a log-in."""
        self.keys = keys
        self.context = zmq.Context()
        self.sockets: list[zmq.Socket[bytes]] = []
        self.req = self.socket(zmq.REQ)
        for option, value in (options or {}).items():
            self.req.setsockopt(option, value)
        self.req.connect(endpoint)

    def socket(self, kind: int, hwm: int = 1_000) -> zmq.Socket[bytes]:
        made = self.context.socket(kind)
        made.setsockopt(zmq.LINGER, 0)
        made.setsockopt(zmq.RCVTIMEO, PATIENCE_MS)
        made.setsockopt(zmq.SNDTIMEO, PATIENCE_MS)
        made.setsockopt(zmq.RCVHWM, hwm)
        if self.keys is not None:
            made.curve_serverkey, made.curve_publickey, made.curve_secretkey = self.keys
        self.sockets.append(made)
        return made

    def ask(self, command: str, **body: Any) -> tuple[int, dict[str, Any]]:
        self.req.send_multipart([command.encode(), json.dumps(self.token | body).encode()])
        code, text = self.req.recv_multipart()
        return int(code), json.loads(text)

    def open(self, profile: str, virtual_host: str = "/", login: tuple[str, str] | None = None) -> None:
        """Open a session, as a user with a password if there is a `login`, and select the profile."""
        protocol = {"name": "MTL", "version": 1}
        code, ready = self.ask("Connection.Open", protocol=protocol, **{"virtual-host": virtual_host})
        if login is None:
            assert code == 201, ready
            assert profile in ready["profiles"]
        else:
            assert code in {201, 401}, ready
            self.token = {"session": log_in(self.ask, *login)}
        assert self.ask("Connection.Profile", profile=profile) == (200, {"status": "OK"})

    def granted(self, kind: str, **body: Any) -> dict[str, Any]:
        """The 202 to a Connection.Reader or Connection.Writer."""
        code, lease = self.ask(f"Connection.{kind}", **body)
        assert (code, lease["status"]) == (202, "Data Lease"), lease
        return lease

    def connect(self, port: int, hwm: int = 1_000, identity: bytes = b"") -> Flow:
        """A data connection without a lease. With an identity it is returned after its handshake."""
        dealer = self.socket(zmq.DEALER, hwm)
        events = dealer.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED) if identity else None
        if identity:
            dealer.setsockopt(zmq.IDENTITY, identity)
        dealer.connect(f"{self.endpoint.rpartition(':')[0]}:{port}")
        if events is not None:
            assert events.poll(PATIENCE_MS)
            dealer.disable_monitor()
            events.close()
        return Flow(dealer)

    def lease(self, kind: str, **body: Any) -> Flow:
        """Request a lease and present it on a new connection."""
        hwm = body.pop("hwm", 1_000)
        lease = self.granted(kind, **body)
        flow = self.connect(lease["port"], hwm)
        flow.lease(lease["lease"])
        return flow

    def close(self) -> None:
        for socket in self.sockets:
            socket.close()
        self.context.term()


@contextmanager
def minimal_client(
    endpoint: str, profile: str = "log", virtual_host: str = "/", login: tuple[str, str] | None = None
) -> Iterator[MinimalClient]:
    """A client whose session is open, under `profile`; `login` is a user with its password."""
    client = MinimalClient(endpoint)
    try:
        client.open(profile, virtual_host, login)
        yield client
    finally:
        client.close()


def written(client: MinimalClient, resource: str, *bodies: bytes) -> Flow:
    """A resource with these contents, and the writer they came from."""
    client.ask("Resource.Create", **{"resource": resource, "exist-ok": True})
    writer = client.lease("Writer", resources=[resource], confirm="full")
    for number, body in enumerate(bodies, 1):
        writer.content(number, body)
    if bodies:
        writer.await_confirm(len(bodies))
    return writer


def earliest(**more: Any) -> dict[str, Any]:
    return {"from": "earliest", **more}
