"""One ZeroMQ context per process. A forked process never uses its parent's context."""

from __future__ import annotations

import os

import zmq

from mtl.net.limits import MAX_SOCKETS

_made: tuple[int, zmq.Context[zmq.Socket[bytes]]] | None = None


def context() -> zmq.Context[zmq.Socket[bytes]]:
    """This process's context. Call it from one thread at a time: the clients' IO thread, or the broker's loop."""
    global _made
    if _made is None or _made[0] != os.getpid():
        made = zmq.Context()
        made.set(zmq.MAX_SOCKETS, MAX_SOCKETS)
        _made = (os.getpid(), made)
    return _made[1]
