"""A server of RFC 11/MTL without the additions of PROTOCOL.md: one ROUTER, profiles of any name.

It has its own encoding, and shares only the thread and the socket with `mtl conformance`. It gives no session token,
no echo and no heartbeat interval; its data flows use the control socket (MTL-56). In every
profile a content goes to all readers that summoned the resource. `test` has one resource and no confirmation. The
others have any resource and, if `full`, confirmation.

A test sends contents of its own with `send`, and answers a writer's contents by `answer` (by default each with a single
Confirm). With `silent` it does not answer Pings, which is only a SHOULD.
"""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from mtl.conformance.router import RouterThread

OK, READY, LEASED, BAD, NOT_FOUND, NOT_IMPLEMENTED = b"200", b"201", b"202", b"400", b"404", b"501"


class Answer(NamedTuple):
    """A Confirm (6) or Reject (7), received from a reader or sent to a writer."""

    kind: int
    number: int
    multiple: bool = False
    recycle: bool = False


class Received(NamedTuple):
    """A writer's content."""

    number: int
    body: bytes


def confirm_each(content: Received) -> Sequence[Answer]:
    """Confirm each content singly: the default."""
    return [Answer(6, content.number)]


class MinimalServer(RouterThread):
    """A context manager; `requests`, `leases`, `received` and `answers` record the session."""

    def __init__(
        self,
        *,
        profiles: Sequence[str] = ("test",),
        full: bool = False,
        silent: bool = False,
        answer: Callable[[Received], Sequence[Answer]] = confirm_each,
    ) -> None:
        super().__init__()
        self.profiles = profiles
        self.full = full
        self.silent = silent
        self.answer = answer
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.leases: list[str] = []
        """The tokens that were presented, in order."""
        self.received: list[Received] = []
        self.answers: list[Answer] = []
        """Confirms and Rejects of readers."""
        self._profile: dict[bytes, str] = {}
        self._granted: dict[str, tuple[str, str, list[str]]] = {}
        """Lease -> (connection.reader or .writer, confirm, resources)."""
        self._flows: dict[tuple[bytes, str], str] = {}
        """Peer of the data flow and kind of lease -> lease."""
        self._numbers: dict[tuple[bytes, str], int] = {}
        """The resources that each peer has summoned, and the number of the last content."""
        self._todo: deque[Callable[[], None]] = deque()

    def turn(self) -> None:
        while self._todo:
            self._todo.popleft()()

    def handle(self, frames: list[bytes]) -> None:
        if len(frames) == 3 and frames[1]:
            with suppress(struct.error, IndexError, UnicodeDecodeError):  # ill-formed (MTL-111)
                self.command(*frames)
        elif b"" in frames[1:-2] and len(frames[frames.index(b"", 1) :]) == 3:
            self.request(frames[:-2], frames[-2], frames[-1])

    # --- control --------------------------------------------------------------------------------------------

    def request(self, envelope: list[bytes], command: bytes, text: bytes) -> None:
        try:
            name, body = command.decode().lower(), json.loads(text)
        except ValueError:
            return  # ill-formed (MTL-51)
        self.requests.append((name, body))
        code, reply = self.decide(envelope[0], name, body) if isinstance(body, dict) else (BAD, {})
        self.reply(envelope, name, [code, json.dumps(reply, indent=2).encode()])

    def reply(self, envelope: list[bytes], name: str, frames: list[bytes]) -> None:
        """Send the reply to the request `name`."""
        self._router.send_multipart([*envelope, *frames])

    def decide(self, peer: bytes, name: str, body: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
        """The status and the body of the reply to a request."""
        if name == "connection.open":
            self._profile[peer] = ""
            return READY, {"status": "Ready", "profiles": list(self.profiles)}
        if peer not in self._profile:
            return BAD, {"status": "Bad Request"}
        if name == "connection.profile":
            wanted = str(body.get("profile")).lower()
            if wanted not in self.profiles:
                return BAD, {"status": "Bad Request"}
            self._profile[peer] = wanted
            return OK, {"status": "OK"}
        if name not in {"connection.reader", "connection.writer"}:
            return NOT_IMPLEMENTED, {"status": "Not implemented"}
        return self.lease(self._profile[peer], name, body)

    def lease(self, profile: str, name: str, body: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
        confirm, resources = body.get("confirm", "none"), body.get("resources", [])
        if not profile:
            return BAD, {"status": "Bad Request"}
        if confirm not in ({"none", "full"} if self.full and profile != "test" else {"none"}):
            return NOT_IMPLEMENTED, {"status": "Not implemented"}
        if profile == "test" and set(resources) - {"resource"}:
            return NOT_FOUND, {"status": "Not Found"}
        lease = f"lease {len(self._granted)}"
        self._granted[lease] = name, confirm, resources
        return LEASED, {"status": "Data Lease", "port": self.port, "lease": lease}

    # --- data -----------------------------------------------------------------------------------------------

    def command(self, peer: bytes, header: bytes, body: bytes) -> None:
        if header[0] == 1:
            lease = header[10:].decode()
            self.leases.append(lease)
            if lease in self._granted:
                self._flows[peer, self._granted[lease][0]] = lease
            self.respond(peer, header, OK if lease in self._granted else b"403")
        elif header[0] in {3, 4} and len(header) == 10 + header[9]:
            self.respond(peer, header, OK if self._summoned(peer, header) else BAD)
        elif header[0] == 5:
            self._content(peer, header, body)
        elif header[0] in {6, 7}:
            number, multiple = struct.unpack_from(">Q?", header, 1)
            self.answers.append(Answer(header[0], number, multiple, header[0] == 7 and header[10] == 1))
        elif header[0] == 8 and not self.silent:
            self._router.send_multipart([peer, b"\x09", b""])

    def _summoned(self, peer: bytes, header: bytes) -> bool:
        name = header[10:].decode()
        lease = self._flows.get((peer, "connection.reader"))
        known = lease is not None and name in (self._granted[lease][2] or ["resource"])
        if not known or ((peer, name) in self._numbers) is not (header[0] == 4):
            return False
        if header[0] == 3:
            self._numbers[peer, name] = 0
        else:
            del self._numbers[peer, name]
        return True

    def respond(self, peer: bytes, header: bytes, code: bytes) -> None:
        self._router.send_multipart([peer, b"\x02" + header[1:9], code])

    def _content(self, peer: bytes, header: bytes, body: bytes) -> None:
        lease = self._flows.get((peer, "connection.writer"))
        if lease is None:
            return
        _, confirm, resources = self._granted[lease]
        name = header[10 : 10 + header[9]].decode() or (resources or ["resource"])[0]
        content = Received(struct.unpack_from(">Q", header, 1)[0], body)
        self.received.append(content)
        for answer in self.answer(content) if confirm == "full" else ():
            self.answer_content(peer, answer)
        self.fan_out(name, header[10 + header[9] :], body)

    def answer_content(self, peer: bytes, answer: Answer) -> None:
        """Send a Confirm or Reject."""
        flags = (answer.multiple, answer.recycle)[: answer.kind - 5]
        self._router.send_multipart(
            [peer, struct.pack(">BQ", answer.kind, answer.number) + bytes(flags), b""]
        )

    def fan_out(self, name: str, table: bytes, body: bytes) -> None:
        for (peer, resource), number in self._numbers.items():
            if resource == name:
                self._numbers[peer, resource] = number + 1
                self.deliver(peer, number + 1, name, table, body)

    def readers(self, name: str) -> list[bytes]:
        """The identities of readers that summoned a resource."""
        return [peer for peer, resource in self._numbers if resource == name]

    def deliver(self, peer: bytes, number: int, name: str, table: bytes, body: bytes) -> None:
        short = name.encode()
        header = struct.pack(">BQB", 5, number, len(short)) + short + table
        self._router.send_multipart([peer, header, body])

    # --- the test's end -------------------------------------------------------------------------------------

    def send(
        self,
        numbers: Sequence[int],
        *,
        name: str = "resource",
        carried: str | None = None,
        table: bytes = b"",
    ) -> None:
        """Send contents with these numbers, whose bodies are their indexes in the list, to all readers that summoned
        `name`.

        `carried` is the name that they carry; without a `table` there is none.
        """

        def deliver() -> None:
            for place, number in enumerate(numbers):
                for peer, resource in self._numbers:
                    if resource == name:
                        self.deliver(peer, number, name if carried is None else carried, table, b"%d" % place)

        self._todo.append(deliver)
