"""Connections to brokers, kept by worker processes and shared by their tasks.

Spark reuses a Python worker for many tasks, and a connection costs some round trips. Connections are keyed by process,
since workers are forked, and by all settings of the connection. zmq is first imported here.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import TYPE_CHECKING

from mtl.client.settings import Settings
from pyspark_mtl.workers import set_modules_aside

if TYPE_CHECKING:
    from mtl.client.connection import Connection

_connections: dict[tuple[int, Settings], Connection] = {}
_lock = Lock()


def connection(to: Settings) -> Connection:
    """The process's connection to a broker, made on first use. Raises Unreachable if the broker does not answer."""
    key = (os.getpid(), to)
    with _lock:
        if key not in _connections:
            from mtl.client.connection import open_connection  # noqa: PLC0415 loads zmq; planning needs none

            _connections[key] = open_connection(to)
        set_modules_aside()  # the task or commit has loaded all its modules by now
        return _connections[key]
