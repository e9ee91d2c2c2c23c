"""Connections to brokers, kept by worker processes and shared by their tasks.

Spark reuses a Python worker for many tasks, and a connection costs some round trips. Connections are keyed by process,
since workers are forked, and by all settings of the connection. zmq is first imported here.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import TYPE_CHECKING

from pyspark_mtl.options.settings import Connect
from pyspark_mtl.workers import set_modules_aside

if TYPE_CHECKING:
    from mtl.client import Connection

_connections: dict[tuple[int, Connect], Connection] = {}
_lock = Lock()


def connection(to: Connect) -> Connection:
    """The process's connection to a broker, made on first use. Raises Unreachable if the broker does not answer."""
    key = (os.getpid(), to)
    with _lock:
        if key not in _connections:
            from mtl.client import connect  # noqa: PLC0415 loads zmq, which planning does not need

            _connections[key] = connect(
                to.endpoint,
                virtual_host=to.virtual_host,
                request_timeout=to.request_timeout,
                retry_deadline=to.retry_deadline,
                user=to.user,
                password=to.password,
                password_file=to.password_file,
                password_env=to.password_env,
                sasl_mechanism=to.sasl_mechanism,
                curve_server_key=to.curve_server_key,
                curve_key_file=to.curve_key_file,
            )
        set_modules_aside()  # the task or commit has loaded all its modules by now
        return _connections[key]
