"""`mtl broker`: a server with its signal handlers, until it is stopped."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from mtl.broker.runtime.config import BrokerConfig
from mtl.broker.runtime.server import Server
from mtl.errors import OptionError
from mtl.log.files import file_limit, file_limit_text
from mtl.log.reserve import reserved_files
from mtl.net.descriptors import raise_file_limit

log = logging.getLogger("mtl.broker")


class Companions(Protocol):
    """Clients that start and stop with the broker: the doors of its configuration."""

    def start(self, endpoint: str) -> None:
        """The broker listens at `endpoint`."""

    def stop(self) -> None:
        """The broker is about to stop; it waits for this call, and still confirms meanwhile. Harmless when repeated."""


def serve(
    config: BrokerConfig,
    print_line: Callable[[str], None] = print,
    companions: Companions | None = None,
    *,
    reload: Callable[[], None] = lambda: None,
    until_eof: bool = False,
) -> int:
    """Run a broker until SIGTERM or SIGINT, with `until_eof` also until standard input ends. Prints one line when it is
    ready; returns the exit code 0. SIGHUP reads the users again and calls `reload`; an `OptionError` of `reload` is
    logged, and the broker continues with its settings.

    Raises `OptionError` for an invalid configuration, `StorageError` for a data directory that is in use, of a newer
    version, full or damaged, and `BindFailed`.
    """
    config.check_exposure()
    config.check_logins()
    raise_file_limit(reserved_files())
    report_file_sizes(config.segment_bytes)
    started: list[Server] = []

    def read_again() -> None:
        try:
            reload()
        except OptionError as error:
            log.error("SIGHUP: the log settings are unchanged: %s", error)
        for server in started:
            server.read_users()
        log.info("SIGHUP: users and log settings are read again")

    # Before the start, which may take a while: without a handler SIGHUP ends the process.
    signal.signal(signal.SIGHUP, lambda *_: threading.Thread(target=read_again, daemon=True).start())
    server = _started(config)
    started.append(server)

    def stop() -> None:
        if companions is not None:
            companions.stop()
        server.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        # In a thread, since the loop has to run meanwhile.
        signal.signal(number, lambda *_: threading.Thread(target=stop, daemon=True).start())
    if until_eof:
        threading.Thread(target=_after_input, args=(stop,), daemon=True).start()
    print_line(f"mtl broker ready at {server.endpoint} (data {config.data}, pid {os.getpid()})")
    try:
        if companions is not None:
            companions.start(server.endpoint)
        server.run()
    except BaseException:
        server.stop()  # the process has to end after any error
        raise
    finally:
        if companions is not None:
            companions.stop()
    return 0


def report_file_sizes(segment_bytes: int) -> None:
    """Log a limit of file sizes (ulimit -f) below a segment's size: segments end there, and no larger group fits."""
    limit = file_limit()
    if limit is not None and limit < segment_bytes:
        log.warning(
            "%s: the segments of logs end there instead of at segment-bytes (%d octets). Contents, and records in "
            "broker.db, that need a larger file are refused",
            file_limit_text(),
            segment_bytes,
        )


def _started(config: BrokerConfig) -> Server:
    """Without garbage collection: the objects of a start stay. With 10,000 resources collections took a third of it."""
    gc.disable()
    try:
        return Server(config)
    finally:
        gc.enable()


def _after_input(then: Callable[[], None]) -> None:
    """Read standard input up to its end, ignoring the octets. One that is closed is at its end."""
    with suppress(OSError):
        while os.read(sys.stdin.fileno(), 4096):
            pass
    then()
