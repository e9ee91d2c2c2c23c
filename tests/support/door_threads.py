"""A door with a peer in one event loop: prints the names of the process's threads while contents pass. That of pyzmq,
which releases memory that was sent without copying, is left out.

python -m tests.support.door_threads NAME ENDPOINT
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

from zmq.utils.garbage import GarbageCollectorThread

from mtl.doors.mbws import client as mbws
from mtl.doors.mc0 import client as mc0
from mtl.doors.micromessage import client as micromessage
from mtl.doors.reactive import client as reactive
from tests.support.doors import door

PEERS: dict[str, Any] = {
    "mbws": mbws.connect,
    "mc0": mc0.connect,
    "micromessage": micromessage.connect,
    "reactive": reactive.connect,
}


async def pass_contents(name: str, endpoint: str) -> None:
    """Publish through the door, and read the contents."""
    address = "topic/orders" if name == "micromessage" else "orders"
    async with (
        door(name, endpoint, "127.0.0.1:0") as (listening, _),
        PEERS[name](listening.endpoint) as peer,
        peer.reader(address) as reader,
        peer.writer(address) as writer,
    ):
        for n in range(100):
            await writer.send(b"%d" % n)
        bodies = [(await reader.next()).body for _ in range(100)]
        assert bodies == [b"%d" % n for n in range(100)]
        threads = [x.name for x in threading.enumerate() if not isinstance(x, GarbageCollectorThread)]
        sys.stdout.write(",".join(sorted(threads)) + "\n")


if __name__ == "__main__":
    asyncio.run(pass_contents(*sys.argv[1:]))
