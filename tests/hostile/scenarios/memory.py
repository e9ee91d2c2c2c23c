"""Shared memory: packs that their writer changes while the broker checks them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mtl.net.machine import machine_mark
from mtl.testing import RunningBroker
from mtl.wire.packs import encode_pack
from mtl.wire.ranges import SHARED_FROM, Span
from tests.hostile.harness import scenario
from tests.support.minimal_client import CONFIRM, minimal_client
from tests.support.processes import killed_after

CONTENTS = 4_000
"""Contents of a pack, each with properties of its own: the broker takes some milliseconds to check them."""

_CHANGE = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
memory = memoryview(mmap.mmap(fd, os.fstat(fd).st_size)).cast("i")
first, last = int(sys.argv[2]) // 4, int(sys.argv[3]) // 4
good = memory[first:last].tolist()
print("changing", flush=True)
while True:
    for at in range(first, last, 97):
        memory[at] = 0x7FFFFFF0
        memory[at] = good[at - first]
"""
"""Sets offsets of a pack far behind its end for a moment, one after the other, forever."""


@contextmanager
def changing(file: str, first: int, last: int) -> Iterator[None]:
    """Another process changes the numbers from octet `first` to octet `last` of a memory file."""
    command = [sys.executable, "-c", _CHANGE, file, str(first), str(last)]
    with killed_after(subprocess.Popen(command, stdout=subprocess.PIPE)) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"changing\n"
            yield
        finally:
            process.kill()


def offsets_of(pack: bytes) -> tuple[int, int]:
    """The range of the properties' offsets in a pack: 4 octets for each content, which grow by the same number."""
    step = len(TABLE % 0)
    begin = pack.index(b"".join((n * step).to_bytes(4, "little") for n in range(4)))
    return begin, begin + 4 * (CONTENTS + 1)


TABLE = b"\0\0\0\x0b\x04%04dS\0\0\0\1x"
"""A field table: a name of four digits, and a text of one octet."""


@scenario(memory=160)
def packs_that_change_while_they_are_checked(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Octets checked in the writer's memory may change a moment later: the broker uses its own copy."""
    count = 500 if heavy else 60
    pack = bytes(encode_pack([b"x"] * CONTENTS, [TABLE % n for n in range(CONTENTS)]))
    first, last = offsets_of(pack)
    with minimal_client(broker.endpoint) as client:
        client.ask("Resource.Create", resource="packs")
        granted = client.granted(
            "Writer", resources=["packs"], confirm="full", packed=True, local=machine_mark()
        )
        writer = client.connect(granted["port"])
        writer.lease(granted["lease"])
        file = granted["memory"]["file"]
        with Path(file).open("r+b", buffering=0) as memory:
            memory.seek(SHARED_FROM)
            memory.write(pack)
        table, stored = Span(SHARED_FROM, len(pack)).properties(CONTENTS), 0
        with changing(file, SHARED_FROM + first, SHARED_FROM + last):
            for number in range(1, count + 1):
                writer.content(number * CONTENTS - CONTENTS + 1, b"", table=table)
                header, _ = writer.receive()
                assert int.from_bytes(header[1:9], "big") == number * CONTENTS
                stored += header[:1] == CONFIRM
        reader = client.lease("Reader", resources=["packs"], packed=True, **{"from": "earliest"})
        reader.summon("packs")
        for _ in range(stored):
            assert len(reader.read()[3]) == len(pack)
        assert client.ask("Resource.Describe", resource="packs")[1]["resources"][0].get("trouble") is None
        yield f"{count:,} packs, {stored:,} whole when they were copied"
