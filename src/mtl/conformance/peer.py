"""A checking client: its sockets, and a record of all their frames."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import uuid4

import zmq

from mtl.conformance import frames as rfc
from mtl.conformance.report import Failed, NotSeen

TEST = "test"
"""The RFC's own profile, with one resource and no confirmation."""

SILENCE_S = 0.3
"""A server counts as silent after this time without a message."""


@dataclass(frozen=True)
class Target:
    """The server and the credentials. `resource` is an existing one, or None if the checks may use new names."""

    endpoint: str
    profile: str
    virtual_host: str | None = None
    resource: str | None = None
    user: str | None = None
    password: str | None = None
    patience_s: float = 5.0


class ProbeReply(NamedTuple):
    """A reply of the control flow."""

    code: int
    body: dict[str, Any]


class Probe:
    """The sockets of one check; `close` at its end."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.frames: list[str] = []
        self._context = zmq.Context()
        self._sockets: list[zmq.Socket[bytes]] = []

    def close(self) -> None:
        """Close every socket."""
        for socket in self._sockets:
            socket.close(linger=0)
        self._context.term()

    def socket(self, kind: int, endpoint: str) -> zmq.Socket[bytes]:
        """A socket that connects to the endpoint."""
        opened = self._context.socket(kind)
        opened.setsockopt(zmq.LINGER, 0)
        opened.setsockopt(zmq.SNDTIMEO, int(self.target.patience_s * 1000))
        opened.connect(endpoint)
        self._sockets.append(opened)
        return opened

    # --- frames ---------------------------------------------------------------------------------------------

    def send(self, socket: zmq.Socket[bytes], frames: Sequence[bytes]) -> None:
        """Send one message."""
        self.frames.append(f"> {rfc.format_frames(frames)}")
        socket.send_multipart(list(frames))

    def receive(self, socket: zmq.Socket[bytes], patience_s: float) -> list[bytes] | None:
        """The next message; None if none comes in `patience_s` seconds."""
        if not socket.poll(int(patience_s * 1000)):
            self.frames.append(f"  nothing within {patience_s:.1f} s")
            return None
        frames = socket.recv_multipart()
        self.frames.append(f"< {rfc.format_frames(frames)}")
        return frames

    # --- control --------------------------------------------------------------------------------------------

    def requester(self) -> Requester:
        """A new REQ socket without a session."""
        return Requester(self, self.socket(zmq.REQ, self.target.endpoint))

    def dealer(self) -> zmq.Socket[bytes]:
        """A socket on the control port for messages that a REQ socket cannot send."""
        return self.socket(zmq.DEALER, self.target.endpoint)

    def session(self) -> Requester:
        """A REQ socket with an open session and the selected profile."""
        opened = self.requester()
        opened.log_in()
        reply = opened.ask("Connection.Profile", {"profile": self.target.profile})
        if reply.code != 200:
            raise NotSeen(f"the server refuses the profile {self.target.profile!r}: {reply.code}")
        return opened

    def resource(self, session: Requester) -> str:
        """A resource of this profile: the only one of `test`, the target's, or a new one."""
        if self.target.profile == TEST:
            return "resource"
        if self.target.resource is not None:
            return self.target.resource
        name = f"conformance-{uuid4().hex[:8]}"
        # other servers refuse this command and create resources on first use
        session.ask("Resource.Create", {"resource": name})
        return name

    def require_confirmation(self) -> None:
        """Raises `NotSeen` if the profile has no confirmation."""
        session = self.session()  # its own: a server may grant a session one lease of a kind only
        reply = session.ask("Connection.Writer", {"resources": [self.resource(session)], "confirm": "full"})
        if reply.code == 501:
            raise NotSeen("the profile has no confirmation")


class Requester:
    """One control session."""

    def __init__(self, peer: Probe, socket: zmq.Socket[bytes]) -> None:
        self.peer = peer
        self.socket = socket
        self.token: str | None = None
        self.ready: dict[str, Any] = {}

    def open_body(self) -> dict[str, Any]:
        """The body of a Connection.Open."""
        body: dict[str, Any] = {"protocol": {"name": "MTL", "version": 1}}
        if self.peer.target.virtual_host is not None:
            body["virtual-host"] = self.peer.target.virtual_host
        return body

    def ask(self, command: str, body: dict[str, Any]) -> ProbeReply:
        """Send a request and return its reply, which has to be well-formed (MTL-16)."""
        if self.token is not None:
            body = {**body, "session": self.token}
        self.peer.send(self.socket, [command.encode(), json.dumps(body).encode()])
        frames = self.peer.receive(self.socket, self.peer.target.patience_s)
        if frames is None:
            raise Failed(f"no reply to {command} within {self.peer.target.patience_s} s")
        return parse_reply(frames)

    def log_in(self) -> ProbeReply:
        """Open the session, and log in if the server requires it."""
        reply = self.ask("Connection.Open", self.open_body())
        if reply.code == 401:
            offered = [str(name).upper() for name in reply.body.get("mechanisms", [])]
            mechanism, response = self._credentials(offered)
            reply = self.ask("Connection.Authorize", {"mechanism": mechanism, "response": response})
        if reply.code != 201:
            raise NotSeen(f"the session is refused: {reply.code} {reply.body}")
        self.ready = reply.body
        token = reply.body.get("session")  # PROTOCOL.md 2; a server of RFC 11 only gives none
        self.token = token if isinstance(token, str) else None
        return reply

    def _credentials(self, offered: list[str]) -> tuple[str, str]:
        target = self.peer.target
        if target.user is not None and "PLAIN" in offered:
            plain = f"\0{target.user}\0{target.password or ''}".encode()
            return "PLAIN", base64.b64encode(plain).decode()
        if "ANONYMOUS" in offered:
            return "ANONYMOUS", ""
        raise NotSeen(
            f"the server offers the mechanisms {offered}; expected ANONYMOUS, or PLAIN with a given user"
        )

    def lease(self, kind: str, resources: list[str], confirm: str) -> dict[str, Any]:
        """Request a lease, and return the body of its 202."""
        reply = self.ask(f"Connection.{kind}", {"resources": resources, "confirm": confirm})
        if reply.code != 202:
            raise NotSeen(f"the lease is refused: {reply.code} {reply.body}")
        return reply.body

    def connect(self, lease: dict[str, Any]) -> ProbeFlow:
        """A data connection for a lease, without the Lease command."""
        endpoint = (
            lease.get("endpoint") or f"{self.peer.target.endpoint.rpartition(':')[0]}:{lease.get('port')}"
        )
        return ProbeFlow(self.peer, self.peer.socket(zmq.DEALER, endpoint))

    def flow(self, kind: str, resources: list[str], confirm: str) -> ProbeFlow:
        """A data connection whose lease was accepted."""
        lease = self.lease(kind, resources, confirm)
        flow = self.connect(lease)
        try:
            flow.expect_response(flow.ask(rfc.LEASE, str(lease.get("lease"))), b"200")
        except Failed as failed:  # a finding of MTL-62 and MTL-64, not of each check of the data flow
            raise NotSeen(f"the Lease had no success: {failed}") from failed
        return flow


class ProbeFlow:
    """One data connection. It answers Pings and does not return them."""

    def __init__(self, peer: Probe, socket: zmq.Socket[bytes]) -> None:
        self.peer = peer
        self.socket = socket
        self._sequence = 100

    def send(self, header: bytes, body: bytes = b"") -> None:
        """Send one command."""
        self.peer.send(self.socket, [header, body])

    def ask(self, kind: int, name: str) -> int:
        """Send a Lease, Summon or Dismiss, and return its number."""
        self._sequence += 7
        self.send(rfc.numbered(kind, self._sequence, rfc.short(name)))
        return self._sequence

    def next(self, patience_s: float | None = None) -> rfc.DataCommand | None:
        """The next command except Pings; None if none comes in time."""
        patience = self.peer.target.patience_s if patience_s is None else patience_s
        until = time.monotonic() + patience
        while True:
            frames = self.peer.receive(self.socket, max(0.0, until - time.monotonic()))
            if frames is None:
                return None
            if len(frames) != 2:
                raise Failed(f"a data command of {len(frames)} frames")
            try:
                command = rfc.command(*frames)
            except ValueError as error:
                raise Failed(str(error)) from error
            if command.kind != rfc.PING:
                return command
            self.send(bytes([rfc.PONG]))

    def expect_command(
        self, kind: int, test: Callable[[rfc.DataCommand], bool] = lambda _: True
    ) -> rfc.DataCommand:
        """The next command, which has to be one of this kind."""
        command = self.next()
        if command is None or command.kind != kind or not test(command):
            raise Failed(f"expected a {rfc.NAMES[kind]}, received {command or 'nothing'}")
        return command

    def expect_response(self, number: int, *codes: bytes) -> bytes:
        """The next command, a Response to this number with one of these codes."""
        expected = b" or ".join(codes).decode()
        response = self.next()
        if (
            response is None
            or (response.kind, response.number) != (rfc.RESPONSE, number)
            or response.body not in codes
        ):
            raise Failed(f"expected Response {number} with {expected}, received {response or 'nothing'}")
        return response.body

    def summon(self, resource: str) -> None:
        """Summon, with success."""
        self.expect_response(self.ask(rfc.SUMMON, resource), b"200")

    def expect_silence(self, reason: str) -> None:
        """Raises `Failed` if a command comes within SILENCE_S; `reason` says why none may come."""
        command = self.next(SILENCE_S)
        if command is not None:
            raise Failed(f"{reason}, but the server sent {command}")


def parse_reply(frames: Sequence[bytes]) -> ProbeReply:
    """The reply in two frames (MTL-16)."""
    if len(frames) != 2:
        raise Failed(f"a reply of {len(frames)} frames, not 2 (MTL-16)")
    code, text = frames
    if len(code) != 3 or not code.isdigit() or not 200 <= int(code) <= 599:
        raise Failed(f"a reply with the status {code!r} (MTL-16)")
    try:
        body = json.loads(text)
    except ValueError:
        raise Failed("a reply whose body is not JSON (MTL-16)") from None
    if not isinstance(body, dict):
        raise Failed("a reply whose body is not an object (MTL-16)")
    return ProbeReply(int(code), body)


def expect(condition: bool, message: str) -> None:
    """Raises `Failed` unless the condition is true."""
    if not condition:
        raise Failed(message)
