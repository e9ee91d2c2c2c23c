"""Roles of the limits: ZeroMQ and the disk alone, which move the same octets without any guarantee."""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import zmq

from benchmarks.looking import read_all_octets
from benchmarks.segments import portions
from mtl.log.chunk import checksum

Result = dict[str, object]
Work = Callable[[], Result]
Prepared = tuple[Result, Work]

QUEUE = 1_000
"""Messages queued per socket, libzmq's default: a full queue makes the sender wait."""
PACKED_QUEUE = 32
"""The same for messages of a megabyte, as in the broker."""
TURN = 256
"""Messages forwarded before the poller is asked again."""
GROUP = 4_000
"""Messages of very many peers that are synced together."""

Socket = zmq.Socket[bytes]


def forwarder() -> Prepared:
    """DEALER -> ROUTER -> DEALER: every frame of the publisher is sent to the reader, in one process."""
    router, port = _router(QUEUE)

    def work() -> Result:
        reader = b""
        while not reader:
            identity, *frames = router.recv_multipart()
            if frames == [b"read"]:
                reader = identity
        router.send_multipart([reader, b"here"])
        while True:
            router.poll()
            _forward(router, reader)

    return {"port": port}, work


def _forward(router: Socket, reader: bytes) -> None:
    for _ in range(TURN):
        try:
            router.recv(zmq.DONTWAIT)
        except zmq.Again:
            return
        header, body = router.recv(), router.recv()
        router.send(reader, zmq.SNDMORE)
        router.send(header, zmq.SNDMORE)
        router.send(body)


def durable_forwarder(target: str) -> Prepared:
    """The same, but messages are written to a file and synced before they are forwarded: the least work of a broker in
    one process that delivers only contents that survive a crash.
    """
    router, port = _router(QUEUE)
    file = os.open(target, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    Path(target).unlink()

    def work() -> Result:
        reader = b""
        waiting: list[bytes] = []
        while True:
            router.poll()
            for _ in range(TURN):
                try:
                    identity = router.recv(zmq.DONTWAIT)
                except zmq.Again:
                    break
                header = router.recv()
                if header == b"read":
                    reader = identity
                    router.send_multipart([reader, b"here"])
                else:
                    waiting += [header, router.recv()]
            if waiting:
                _write_fully(file, memoryview(b"".join(waiting)))
                _sync(file)
            for header, body in _pairs(waiting):
                router.send(reader, zmq.SNDMORE)
                router.send(header, zmq.SNDMORE)
                router.send(body)
            waiting.clear()

    return {"port": port}, work


def _pairs(frames: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(frames[::2], frames[1::2], strict=True)


def raw_publish(port: int, header: str, octets: int, count: int) -> Prepared:
    """Send the frames of `count` Contents, each with its number, as a publisher has to encode them; `header` is the
    first one's.
    """
    dealer = _dealer(port, QUEUE)
    first, body = bytes.fromhex(header), bytes(octets)
    kind, tail, number_of = first[:1], first[9:], struct.Struct(">Q").pack

    def work() -> Result:
        began = time.monotonic()
        for number in range(1, count + 1):
            dealer.send(kind + number_of(number) + tail, zmq.SNDMORE)
            dealer.send(body)
        return {"began": began}

    return {}, work


def raw_read(port: int, count: int) -> Prepared:
    """Receive `count` messages."""
    dealer = _dealer(port, QUEUE)
    dealer.send(b"read")

    def work() -> Result:
        dealer.recv()
        for _ in range(count):
            dealer.recv()
            dealer.recv()
        return {"ended": time.monotonic()}

    return {}, work


def raw_send(log: str, header: str, *, summed: bool = False) -> Prepared:
    """Send every chunk's body from mapped segments, without copying, to the requester; with `summed` its checksum is
    computed first.
    """
    router, port = _router(PACKED_QUEUE)
    found = portions(Path(log))
    views = [_mapped(portion.path) for portion in found]
    count = sum(len(portion.bodies) for portion in found)
    first = bytes.fromhex(header)

    def work() -> Result:
        while True:
            reader, _ = router.recv_multipart()
            for portion, view in zip(found, views, strict=True):
                for start, end in portion.bodies:
                    if summed:
                        checksum(view[start:end])
                    router.send(reader, zmq.SNDMORE)
                    router.send(first, zmq.SNDMORE)
                    router.send(view[start:end], copy=False)

    return {"port": port, "count": count}, work


def raw_receive(port: int, count: int) -> Prepared:
    """Receive `count` messages of two frames, without copying, and read all their octets."""
    dealer = _dealer(port, PACKED_QUEUE)
    read_octets = read_all_octets()

    def work() -> Result:
        began = time.monotonic()
        dealer.send(b"read")
        octets = 0
        for _ in range(count):
            dealer.recv(copy=False)
            octets += read_octets(dealer.recv(copy=False).buffer)
        return {"began": began, "ended": time.monotonic(), "octets": octets}

    return {}, work


def write_file(log: str, target: str, *, summed: bool = False) -> Prepared:
    """Write a log's octets into one plain file, in the same groups, each followed by fdatasync; with `summed` their
    checksum is computed first.
    """
    groups = []
    for portion in portions(Path(log)):
        view = _mapped(portion.path)
        groups += [view[start:end] for start, end in portion.groups]
    file = os.open(target, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)

    def work() -> Result:
        began = time.monotonic()
        octets = 0
        for group in groups:
            if summed:
                checksum(group)
            octets += _write_fully(file, group)
            _sync(file)
        ended = time.monotonic()
        Path(target).unlink()
        return {"began": began, "ended": ended, "octets": octets, "groups": len(groups)}

    return {}, work


def sync(target: str, octets: int, count: int) -> Prepared:
    """The duration of a write of `octets` with its fdatasync, each of `count`."""
    file = os.open(target, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    data = memoryview(bytes(octets))

    def work() -> Result:
        latencies = []
        for _ in range(count):
            began = time.perf_counter()
            _write_fully(file, data)
            _sync(file)
            latencies.append(time.perf_counter() - began)
        Path(target).unlink()
        return {"latencies": latencies}

    return {}, work


def echo(target: str, octets: int) -> Prepared:
    """Answer every message after a write of `octets` and its fdatasync: a broker without any other work."""
    router, port = _router(QUEUE)
    file = os.open(target, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    Path(target).unlink()
    data = memoryview(bytes(octets))

    def work() -> Result:
        while True:
            identity, header, _ = router.recv_multipart()
            _write_fully(file, data)
            _sync(file)
            router.send_multipart([identity, header, b""])

    return {"port": port}, work


def grouped_echo(target: str) -> Prepared:
    """Write and sync the received contents, and send each sender the number of its last one, in the format of a
    Confirm: the least work of a broker in one process.
    """
    router, port = _router(QUEUE)
    file = os.open(target, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    Path(target).unlink()

    def work() -> Result:
        while True:
            router.poll()
            waiting: list[bytes] = []
            last: dict[bytes, bytes] = {}
            for _ in range(GROUP):
                try:
                    identity = router.recv(zmq.DONTWAIT)
                except zmq.Again:
                    break
                last[identity] = header = router.recv()
                waiting += [header, router.recv()]
            _write_fully(file, memoryview(b"".join(waiting)))
            _sync(file)
            for identity, header in last.items():
                router.send_multipart([identity, b"\6" + header[1:9] + b"\1", b""])

    return {"port": port}, work


def round_trip(port: int, header: str, octets: int, count: int) -> Prepared:
    """The time to its echo of each of `count` contents, sent one after the other."""
    dealer = _dealer(port, QUEUE)
    first, body = bytes.fromhex(header), bytes(octets)

    def work() -> Result:
        latencies = []
        for _ in range(count):
            began = time.perf_counter()
            dealer.send(first, zmq.SNDMORE)
            dealer.send(body)
            dealer.recv_multipart()
            latencies.append(time.perf_counter() - began)
        return {"latencies": latencies}

    return {}, work


_sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
"""macOS has no fdatasync."""


def _write_fully(file: int, data: memoryview) -> int:
    done = 0
    while done < len(data):
        done += os.write(file, data[done:])
    return done


def _mapped(path: str) -> memoryview:
    with Path(path).open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _router(queue: int) -> tuple[Socket, int]:
    router: Socket = zmq.Context.instance().socket(zmq.ROUTER)
    router.set(zmq.ROUTER_MANDATORY, 1)  # a full queue blocks instead of dropping
    router.set_hwm(queue)
    return router, router.bind_to_random_port("tcp://127.0.0.1")


def _dealer(port: int, queue: int) -> Socket:
    dealer: Socket = zmq.Context.instance().socket(zmq.DEALER)
    dealer.set_hwm(queue)
    dealer.connect(f"tcp://127.0.0.1:{port}")
    return dealer


ROLES: dict[str, Callable[..., Prepared]] = {
    "forwarder": forwarder,
    "durable_forwarder": durable_forwarder,
    "raw_publish": raw_publish,
    "raw_read": raw_read,
    "raw_send": raw_send,
    "raw_receive": raw_receive,
    "write_file": write_file,
    "sync": sync,
    "echo": echo,
    "grouped_echo": grouped_echo,
    "round_trip": round_trip,
}
