"""A broker that is aborted as libzmq does it, and the time until it serves again."""

from __future__ import annotations

import os
import signal
import time
from typing import Final

import mtl
from mtl.testing import RunningBroker
from tests.support.contents import batch

RESOURCE: Final = "orders"
_BODY: Final = os.urandom(10_000)
_PACK: Final = 200


def fill(running: RunningBroker, octets: int) -> None:
    """Create the resource with a log of about so many octets."""
    with mtl.connect(running.endpoint) as connection:
        connection.create_resource(RESOURCE, durability="os")
        with connection.writer(RESOURCE, packed=True) as writer:
            for _ in range(octets // (_PACK * len(_BODY))):
                writer.send_pack(batch([_BODY] * _PACK))


def served_after_an_abort(running: RunningBroker, pause_s: float = 0.0) -> float:
    """Seconds from the abort to the first confirmed and the first read content. The broker is started again after
    `pause_s`, as a supervisor does.
    """
    began = time.perf_counter()
    running.kill(signal.SIGABRT)
    time.sleep(pause_s)
    running.start()
    with mtl.connect(running.endpoint) as connection:
        with connection.writer(RESOURCE) as writer:
            writer.send(b"after")
        end = connection.describe([RESOURCE])[RESOURCE].next
        with connection.reader(RESOURCE, start=end - 1, until=end) as reader:
            assert [x.body for x in reader] == [b"after"]
    return time.perf_counter() - began
