"""`python -m tests.bridging.application publish|read PROTOCOL PLACE RESOURCE START [COUNT]`: the process whose kill,
or whose door's kill, is tested. It transfers numbered contents, prints its progress, and reconnects after the end of
its connection.
"""

from __future__ import annotations

import asyncio
import sys

from mtl.errors import MtlError
from tests.bridging.ends import ENDS, End

TOGETHER = 50
"""Contents in flight before the application waits for their acknowledgement."""

AGAIN_S = 0.05
"""Seconds between two connections, while the other end restarts."""


async def publish(end: End, place: str, resource: str, start: int, count: int) -> None:
    """Publish the numbers from `start` to `count`; prints the number of acknowledged ones, including all before
    `start`.
    """
    acknowledged = start
    while acknowledged < count:
        try:
            async with end.connect(place) as c, end.writer(c, resource) as writer:
                while acknowledged < count:
                    after = min(acknowledged + TOGETHER, count)
                    for number in range(acknowledged, after):
                        await end.put(writer, str(number).encode(), {})
                    await writer.flush()
                    acknowledged = after
                    print(acknowledged, flush=True)
        except MtlError:
            await asyncio.sleep(AGAIN_S)


async def read(end: End, place: str, resource: str, start: int) -> None:
    """Print sequence and body of each content from sequence `start` on, until killed."""
    following = start
    while True:
        try:
            async with end.connect(place) as c, end.reader(c, resource, following) as reader:
                print("reading", flush=True)
                while (content := await reader.next()) is not None:
                    assert content.sequence is not None
                    following = content.sequence + 1
                    print(content.sequence, bytes(content.body).decode(), flush=True)
        except MtlError:
            await asyncio.sleep(AGAIN_S)


def main() -> None:
    """The command line."""
    what, protocol, place, resource, start, *count = sys.argv[1:]
    if what == "publish":
        asyncio.run(publish(ENDS[protocol], place, resource, int(start), int(count[0])))
    else:
        asyncio.run(read(ENDS[protocol], place, resource, int(start)))


if __name__ == "__main__":
    main()
