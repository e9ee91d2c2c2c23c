"""A ROUTER socket that a thread serves."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

import zmq

_TURN_MS = 10
"""The longest time between two calls of `turn`; it also delays the end."""


class RouterThread(ABC):
    """A context manager that serves `endpoint` in a thread. `port` is the bound port."""

    def __init__(self, endpoint: str = "tcp://127.0.0.1:*") -> None:
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.LINGER, 0)
        # no limit: a ROUTER drops messages above its limit, and the checks need all of them
        self._router.setsockopt(zmq.SNDHWM, 0)
        self._router.bind(endpoint)
        self.endpoint: str = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        self.port = int(self.endpoint.rpartition(":")[2])
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="conformance-server")

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

    def _serve(self) -> None:
        while not self._over.is_set():
            self.turn()
            if self._router.poll(_TURN_MS):
                self.handle(self._router.recv_multipart())

    def turn(self) -> None:  # noqa: B027 a hook: most servers act on messages only
        """Called in the thread at least every 10 ms."""

    @abstractmethod
    def handle(self, frames: list[bytes]) -> None:
        """Handle one message: the sender's identity, then its frames."""
