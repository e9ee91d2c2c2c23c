"""One ZeroMQ context per process. A forked process never uses its parent's context."""

from __future__ import annotations

import os

import zmq

from mtl.net.limits import MAX_SOCKETS

_made: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}
"""By process. A context lives until its process ends: terminating it would wait for every linger."""


def context() -> zmq.Context[zmq.Socket[bytes]]:
    """This process's context, for any thread."""
    own = _made.get(os.getpid())
    if own is None:
        made = zmq.Context()
        made.set(zmq.MAX_SOCKETS, MAX_SOCKETS)
        own = _made.setdefault(os.getpid(), made)  # another thread may have been faster
    return own
