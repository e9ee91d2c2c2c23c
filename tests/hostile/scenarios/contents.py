"""Contents: malformed packs, expensive properties, readers that do not read."""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import Iterator

import pyarrow as pa

from mtl import limits
from mtl.testing import RunningBroker
from mtl.wire.packs import SCHEMA, encode_pack
from tests.hostile.harness import MIB, scenario
from tests.support.minimal_client import EMPTY, REJECT, Flow, minimal_client, short, u64

UNDER_WAY = 1_000
"""Contents that a writer does not wait for: those beyond the broker's memory would be rejected with recycle."""


def count_of(contents: int) -> bytes:
    """The properties of a pack as octets: {"mtl-count": contents}."""
    entry = short("mtl-count") + b"l" + struct.pack(">q", contents)
    return struct.pack(">I", len(entry)) + entry


def settled(flow: Flow) -> int:
    """The number of the next Confirm or Reject."""
    header, _ = flow.receive()
    return int.from_bytes(header[1:9], "big")


def bomb() -> bytes:
    """A compressed batch: some KiB that would become 256 MiB."""
    column = pa.array([bytes(1 << 20)] * 256, pa.binary())
    batch = pa.RecordBatch.from_arrays([pa.nulls(256, pa.binary()), column], schema=SCHEMA)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    messages = list(pa.ipc.MessageReader.open_stream(sink.getvalue()))
    return bytes(messages[1].serialize())


@scenario(memory=160)
def packs_that_lie(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Compressed bombs, and a valid pack with changed lengths and offsets; each is settled, none is misread."""
    count = 20_000 if heavy else 1_000
    rng = random.Random(1)
    good, exploding = bytes(encode_pack([b"x" * n for n in range(16)])), bomb()
    with minimal_client(broker.endpoint) as client:
        client.ask("Resource.Create", resource="packs")
        writer = client.lease("Writer", resources=["packs"], confirm="full", packed=True)
        sequence = rejected = 0
        for number in range(count):
            image = bytearray(exploding if number % 50 == 0 else good)
            contents = 256 if number % 50 == 0 else 16
            for _ in range(rng.randint(1, 3)):
                at = rng.randrange(0, len(image) - 8) & -4
                image[at : at + 4] = rng.choice(
                    (b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\0\0\0\0", os.urandom(4))
                )
            writer.content(sequence + 1, bytes(image), table=count_of(contents))
            sequence += contents
            header, _ = writer.receive()
            assert int.from_bytes(header[1:9], "big") == sequence
            rejected += header[:1] == REJECT
        assert rejected > count / 2
        described = client.ask("Resource.Describe", resource="packs")[1]["resources"][0]
        reader = client.lease("Reader", resources=["packs"], **{"from": "earliest"})
        reader.summon("packs")
        for _ in range(described["next"] - 1):
            reader.read()
        yield f"{count:,} packs, {rejected:,} rejected"


def entries(octets: int, number: int = 0) -> bytes:
    """A field table of as many entries as fit: names of two octets, no values."""
    letters = [bytes([n]) for n in range(33, 127)]
    names = (a + b for a in letters for b in letters)
    body = b"".join(b"\2" + name + b"V" for _, name in zip(range(octets // 4), names, strict=False))
    body += b"\4" + b"%04d" % number + b"V"
    return struct.pack(">I", len(body)) + body


@scenario(memory=160)
def packs_of_distinct_properties(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """As many different tables, of as many entries, as a pack can hold: all have to be checked."""
    packs, contents, octets = (200, 15, 33_000) if heavy else (10, 15, 33_000)
    pack = bytes(encode_pack([b""] * contents, [entries(octets, n) for n in range(contents)]))
    with minimal_client(broker.endpoint) as client:
        client.ask("Resource.Create", resource="packs")
        writer = client.lease("Writer", resources=["packs"], confirm="full", packed=True)
        for number in range(packs):
            writer.content(number * contents + 1, pack, table=count_of(contents))
        while settled(writer) < packs * contents:
            pass
        yield f"{packs} packs of {contents} tables with {octets // 4:,} entries"


@scenario(memory=256)  # TAIL_BYTES, the 32 MiB in flight, and their packed form for the disk
def contents_of_large_properties(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Plain contents with properties of the largest size, a thousand in flight."""
    count = 10_000 if heavy else 600
    table = entries(33_000)
    with minimal_client(broker.endpoint) as client:
        client.ask("Resource.Create", resource="plain")
        writer = client.lease("Writer", resources=["plain"], confirm="full")
        done = 0
        for number in range(count):
            while number - done >= UNDER_WAY:
                done = settled(writer)
            writer.content(number + 1, b"", table=table)
        while done < count:
            done = settled(writer)
        yield f"{count:,} contents of 8,250 properties"


@scenario(memory=400)
def readers_that_read_nothing(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Large contents without confirmation for peers with a small queue, in the profiles test and log."""
    count, readers = (1_000, 4) if heavy else (150, 2)
    body = os.urandom(limits.MAX_CONTENT // 2)
    with minimal_client(broker.endpoint) as client, minimal_client(broker.endpoint, "test") as test:
        client.ask("Resource.Create", resource="large", durability="os")
        deaf = []
        for _ in range(readers):
            deaf.append(client.lease("Reader", resources=["large"], hwm=1, **{"from": "earliest"}))
            deaf[-1].summon("large")
            deaf.append(test.lease("Reader", resources=["resource"], hwm=1))
            deaf[-1].summon("resource")
        writer = client.lease("Writer", resources=["large"], confirm="full")
        fan = test.lease("Writer", resources=["resource"])
        for number in range(1, count + 1):
            writer.content(number, body)
            fan.content(number, body)
            if number > 8:
                settled(writer)
        fan.quiet()
        time.sleep(0.5)  # waiting shows that nothing more happens and that memory does not grow
        yield f"{2 * readers} readers, {count:,} contents of 2 MiB for each"


@scenario(memory=640)  # INBOUND_OCTETS, PLAIN_WAITING messages in libzmq, and their packed form for the disk
def a_flood_above_the_rate_of_the_disk(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Contents without confirmation, faster than they can be stored: excess ones are dropped and counted."""
    octets = (4 << 30) if heavy else (256 << 20)
    body = os.urandom(MIB)
    with minimal_client(broker.endpoint) as client:
        client.ask("Resource.Create", resource="flood")
        writer = client.lease("Writer", resources=["flood"], confirm="none")
        for number in range(octets // len(body)):
            writer.content(number + 1, body, table=EMPTY)
        writer.quiet()
        yield f"{octets >> 20:,} MiB without confirmation"


@scenario()
def commands_out_of_turn(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Commands that must get no answer: of unknown peers, Confirms without contents, truncated headers."""
    count = 200_000 if heavy else 10_000
    with minimal_client(broker.endpoint) as client:
        client.ask("Resource.Create", resource="a")
        flow = client.lease("Reader", resources=["a"], confirm="full")
        stranger = client.connect(client.granted("Writer", resources=["a"])["port"])
        frames = [
            b"",
            b"\x05",
            b"\x06" + u64(1) + b"\x02",
            b"\x06" + u64(0) + b"\x01",
            b"\x06" + u64(2**64 - 1) + b"\x01",
            b"\x07" + u64(9) + b"\x00\x01",
            b"\x05" + u64(1) + short("a") + EMPTY,
            b"\x02" + u64(1),
            b"\x09",
            b"\xff" * 300,
        ]
        for number in range(count):
            for link in (flow, stranger):
                link.dealer.send_multipart([frames[number % len(frames)], b"x"])
        flow.quiet()
        yield f"{2 * count:,} commands"
