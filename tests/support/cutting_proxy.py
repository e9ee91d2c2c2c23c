"""A TCP proxy that can cut and hold connections: the ports of a broker on 127.0.0.1 are available on 127.0.0.2 as
well.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

HERE, BEHIND = "127.0.0.2", "127.0.0.1"


class CuttingProxy:
    """The same ports on another address of the machine, so that a port in a reply leads through the proxy as well."""

    def __init__(self, *ports: int) -> None:
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listeners = {socket.create_server((HERE, self.local(port))): port for port in ports}
        self._over = False
        self._holding = False
        self.cuts = 0
        self.accepted: Counter[int] = Counter()
        """The number of accepted connections so far, by port."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @staticmethod
    def local(port: int) -> int:
        """The port of the proxy for a port behind it."""
        return port

    def cut(self) -> None:
        """Reset every connection, in the middle of its transfers."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
            for pair in pairs:
                for end in pair:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.close()
            self.cuts += len(pairs)

    @contextmanager
    def held(self) -> Iterator[None]:
        """A half-open network: octets sent during the block arrive after it, and no end detects a disconnection."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        self._thread.join()
        self.cut()
        for listener in self._listeners:
            listener.close()

    def _run(self) -> None:
        while not self._over:
            with self._lock:
                pairs = [] if self._holding else self._pairs
                there = dict(way for pair in pairs for way in self._ways(pair))
                ready, _, _ = select.select([*there, *self._listeners], [], [], 0.005)
                for readable in ready:
                    if readable in self._listeners:
                        self._accept(readable)
                    else:
                        self._pass_on(readable, there[readable])

    def _ways(
        self, pair: tuple[socket.socket, socket.socket]
    ) -> Iterable[tuple[socket.socket, socket.socket]]:
        """The directions of forwarding, as pairs of sockets."""
        return pair, pair[::-1]

    def _accept(self, listener: socket.socket) -> None:
        near, _ = listener.accept()
        try:
            far = socket.create_connection((BEHIND, self._listeners[listener]))
        except OSError:
            near.close()  # the broker is not there just now
            return
        self._pairs.append((near, far))
        self.accepted[self._listeners[listener]] += 1

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        try:
            data = source.recv(1 << 16)
            if data:
                target.sendall(data)
                return
        except OSError:
            pass
        self._pairs = [pair for pair in self._pairs if source not in pair]
        source.close()
        target.close()


class Tunnel(CuttingProxy):
    """One port on another address under another number, as by `docker -p`, `kubectl port-forward` and ssh."""

    @staticmethod
    def local(_port: int) -> int:
        """Any free one."""
        return 0

    @property
    def endpoint(self) -> str:
        """Its end of the tunnel."""
        (listener,) = self._listeners
        return f"tcp://{HERE}:{listener.getsockname()[1]}"
