"""A server of RFC 11/MTL by somebody who has read the RFC and nothing else: the `test` profile, one ROUTER.

pyzmq, json and struct are all it knows. It gives no session token, echoes nothing and says nothing of heartbeats; its
data flows use the control socket (MTL-56). `silent` makes it deaf to Pings, for which it is only a SHOULD to answer.
"""

from __future__ import annotations

import json
import struct
import threading
from types import TracebackType
from typing import Any, Self

import zmq

OK, READY, LEASED, BAD, NOT_IMPLEMENTED = b"200", b"201", b"202", b"400", b"501"


class MinimalServer:
    """A context manager; what happened is in `requests` and `leases`."""

    def __init__(self, *, silent: bool = False) -> None:
        self.silent = silent
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.leases: list[str] = []
        """The tokens that were presented, in order."""
        self._granted: list[str] = []
        self._numbers: dict[bytes, int] = {}
        """Who has summoned the resource, and the number of the last content."""
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.LINGER, 0)
        self.port = self._router.bind_to_random_port("tcp://127.0.0.1")
        self.endpoint = f"tcp://127.0.0.1:{self.port}"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._router.close()
        self._context.term()

    def _run(self) -> None:
        while not self._over.is_set():
            if self._router.poll(20):
                frames = self._router.recv_multipart()
                if len(frames) == 3 and frames[1]:
                    self._command(*frames)
                else:
                    self._request(*frames)

    # --- control --------------------------------------------------------------------------------------------

    def _request(self, peer: bytes, empty: bytes, command: bytes, text: bytes) -> None:
        name, body = command.decode().lower(), json.loads(text)
        self.requests.append((name, body))
        code, reply = self._answer(name, body)
        self._router.send_multipart([peer, empty, code, json.dumps(reply, indent=2).encode()])

    def _answer(self, name: str, body: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
        if name == "connection.open":
            return READY, {"status": "Ready", "profiles": ["test"]}
        if name == "connection.profile" and body["profile"].lower() == "test":
            return OK, {"status": "OK"}
        if name not in {"connection.reader", "connection.writer"} or body.get("confirm", "none") != "none":
            return NOT_IMPLEMENTED, {"status": "Not implemented"}
        lease = f"lease {len(self._granted)}"
        self._granted.append(lease)
        return LEASED, {"status": "Data Lease", "port": self.port, "lease": lease}

    # --- data -----------------------------------------------------------------------------------------------

    def _command(self, peer: bytes, header: bytes, body: bytes) -> None:
        if header[0] == 1:
            lease = header[10:].decode()
            self.leases.append(lease)
            self._respond(peer, header, b"200" if lease in self._granted else b"403")
        elif header[0] in {3, 4}:
            known = header[10:] == b"resource" and (peer in self._numbers) is (header[0] == 4)
            if known and header[0] == 3:
                self._numbers[peer] = 0
            elif known:
                del self._numbers[peer]
            self._respond(peer, header, OK if known else BAD)
        elif header[0] == 5:
            self._fan_out(header[10 + header[9] :], body)
        elif header[0] == 8 and not self.silent:
            self._router.send_multipart([peer, b"\x09", b""])

    def _respond(self, peer: bytes, header: bytes, code: bytes) -> None:
        self._router.send_multipart([peer, b"\x02" + header[1:9], code])

    def _fan_out(self, properties: bytes, body: bytes) -> None:
        for peer in self._numbers:
            self._numbers[peer] += 1
            header = struct.pack(">BQB", 5, self._numbers[peer], 8) + b"resource" + properties
            self._router.send_multipart([peer, header, body])
