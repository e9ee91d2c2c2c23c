"""Starts brokers quickly: a process that has imported all modules forks a child for each. Run as a module with the shim
preloaded; commands are lines of JSON on standard input, events are lines on standard output.

    {"id", "argv": [...], "log": path}    run `mtl` with these arguments
    {"id", "broker": configuration, "log": path, "below": directory, "journal": path or null, "control": path}
    {"id", "ready": endpoint}     the child is a broker that is ready
    {"id", "pid"}                 it was made
    {"id", "code"}                it ended; below 0 by that signal

There is no thread, socket or ZeroMQ context before the fork. A child dies with this process, and this process with its
standard input.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import selectors
import signal
import sys
import traceback
from typing import Any

import mtl.cli.main
import mtl.cli.verify
from mtl.broker.runtime.config import load
from mtl.broker.runtime.serving import serve
from mtl.cli.logs import write_lines
from mtl.cli.queued_output import never_wait
from mtl.errors import MtlError

_READY = re.compile(r"mtl broker ready at (\S+) ")
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def write_line(**what: Any) -> None:
    """Write one line, which is atomic in a pipe."""
    os.write(1, (json.dumps(what) + "\n").encode())


def child(asked: dict[str, Any]) -> int:
    """Be the command; its exit code."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    if asked.get("control"):
        journal = asked["journal"]
        paths = (asked["below"], journal, asked["control"])
        if _libc.crash_attach(*(None if path is None else path.encode() for path in paths)):
            raise RuntimeError("the shim is not attached")
    if "broker" in asked:
        return broker(asked)
    os.dup2(log, 1)
    sys.argv = ["mtl", *asked["argv"]]
    try:
        mtl.cli.main.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def broker(asked: dict[str, Any]) -> int:
    """Like `mtl broker`, without the time to build its command line."""

    def ready(line: str) -> None:
        found = _READY.match(line)
        assert found is not None
        write_line(id=asked["id"], ready=found[1])

    write_lines(never_wait(), "info", "text")
    try:
        return serve(load(None, **asked["broker"]), ready)
    except MtlError as error:
        sys.stderr.write(f"mtl: {error}\n")
        return 1


def fork(asked: dict[str, Any]) -> int:
    """Make a child; its process id."""
    made = os.fork()
    if made:
        return made
    code = 70
    try:
        code = child(asked)
    except BaseException:  # noqa: BLE001 after any error the child must not continue as its parent
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(code)


def main() -> None:
    """Until standard input ends."""
    gc.collect()
    gc.freeze()
    watched = selectors.DefaultSelector()
    watched.register(0, selectors.EVENT_READ)
    waiting = b""
    while True:
        for key, _ in watched.select():
            if key.fd == 0:
                octets = os.read(0, 65536)
                if not octets:
                    return
                *lines, waiting = (waiting + octets).split(b"\n")
                for line in lines:
                    asked = json.loads(line)
                    pid = fork(asked)
                    write_line(id=asked["id"], pid=pid)
                    watched.register(os.pidfd_open(pid), selectors.EVENT_READ, (asked["id"], pid))
            else:
                number, pid = key.data
                _, status = os.waitpid(pid, 0)
                watched.unregister(key.fd)
                os.close(key.fd)
                write_line(id=number, code=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
