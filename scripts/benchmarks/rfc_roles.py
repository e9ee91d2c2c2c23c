"""Roles that are clients of RFC 11 only: pyzmq, JSON and struct, without this project's client."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import zmq

from mtl.net.descriptors import raise_file_limit

Result = dict[str, object]
Work = Callable[[], Result]
Prepared = tuple[Result, Work]
Socket = zmq.Socket[bytes]

LEASE, RESPONSE, SUMMON, CONTENT, CONFIRM, PING = 1, 2, 3, 5, 6, 8
NO_PROPERTIES = bytes(4)
TURN = 256
"""Contents that are sent before the publisher reads Confirms, and read before the reader confirms them."""


def rfc_publish(endpoint: str, resource: str, octets: int, count: int, connections: int = 1) -> Prepared:
    """Publish `count` contents, in turn from each of `connections`, until all are confirmed."""
    return _publish(_flows(endpoint, "Writer", resource, connections), resource, octets, count)


def bare_publish(port: int, resource: str, octets: int, count: int, connections: int) -> Prepared:
    """The same for a peer without leases; it answers as if there were one."""
    context = _context(connections)
    flows: list[Socket] = [context.socket(zmq.DEALER) for _ in range(connections)]
    for flow in flows:
        flow.connect(f"tcp://127.0.0.1:{port}")
    return _publish(flows, resource, octets, count)


def _publish(flows: Sequence[Socket], resource: str, octets: int, count: int) -> Prepared:
    kind, tail, body = bytes([CONTENT]), _short(resource) + NO_PROPERTIES, bytes(octets)
    sends, number_of = [flow.send for flow in flows], struct.Struct(">Q").pack
    each = count // len(flows)

    def work() -> Result:
        began = time.monotonic()
        confirmed = [0] * len(flows)
        for first in range(1, each + 1, TURN):
            for number in range(first, min(first + TURN, each + 1)):
                header = kind + number_of(number) + tail
                for send in sends:
                    send(header, zmq.SNDMORE)
                    send(body)
            for at, flow in enumerate(flows):
                while flow.poll(0):
                    confirmed[at] = _confirmed(flow, confirmed[at])
        for at, flow in enumerate(flows):
            while confirmed[at] < each:
                confirmed[at] = _confirmed(flow, confirmed[at])
        return {"began": began, "ended": time.monotonic(), "count": sum(confirmed)}

    return {}, work


def rfc_read(endpoint: str, resource: str, count: int) -> Prepared:
    """Read `count` contents from the beginning of an empty resource, and confirm them from time to time."""
    flow = _flow(endpoint, "Reader", resource)
    flow.send_multipart([_command(SUMMON, 2, _short(resource)), b""])
    _expect(flow.recv_multipart(), 2)
    receive = flow.recv

    def work() -> Result:
        began = time.monotonic()
        read = octets = 0
        while read < count:
            header, body = receive(), receive()
            if header[0] != CONTENT:
                continue  # a Ping: the next received message shows that the broker is alive
            read += 1
            octets += len(body)
            if read % TURN == 0 or read == count:
                (sequence,) = struct.unpack_from(">Q", header, 1)
                assert sequence == read, f"content {sequence} came as number {read}"
                flow.send(_command(CONFIRM, sequence, b"\1"), zmq.SNDMORE)
                flow.send(b"")
        return {"began": began, "ended": time.monotonic(), "count": read, "octets": octets}

    return {}, work


def rfc_confirm(endpoint: str, resource: str, octets: int, count: int) -> Prepared:
    """The time to its Confirm of each of `count` contents, sent one after the other."""
    flow = _flow(endpoint, "Writer", resource)
    tail, body = _short(resource) + NO_PROPERTIES, bytes(octets)

    def work() -> Result:
        latencies = []
        for number in range(1, count + 1):
            began = time.perf_counter()
            flow.send(_command(CONTENT, number, tail), zmq.SNDMORE)
            flow.send(body)
            while _confirmed(flow, 0) < number:
                pass
            latencies.append(time.perf_counter() - began)
        return {"latencies": latencies}

    return {}, work


def _flow(endpoint: str, kind: str, resource: str) -> Socket:
    [flow] = _flows(endpoint, kind, resource, 1)
    return flow


def _flows(endpoint: str, kind: str, resource: str, count: int) -> list[Socket]:
    """Data flows with a lease each, by the requests of RFC 11 alone."""
    context = _context(count)
    request: Socket = context.socket(zmq.REQ)
    request.connect(endpoint)
    _ask(request, "Connection.Open", "201", protocol={"name": "MTL", "version": 1})
    _ask(request, "Connection.Profile", "200", profile="log")
    flows = []
    for _ in range(count):
        lease = _ask(request, f"Connection.{kind}", "202", resources=[resource], confirm="full")
        flow: Socket = context.socket(zmq.DEALER)
        flow.connect(f"tcp://{urlsplit(endpoint).hostname}:{lease['port']}")
        flow.send_multipart([_command(LEASE, 1, _short(str(lease["lease"]))), b""])
        _expect(flow.recv_multipart(), 1)
        flows.append(flow)
    return flows


def _context(sockets: int) -> zmq.Context[Socket]:
    """A context with room for so many sockets, in ZeroMQ and in the system."""
    context: zmq.Context[Socket] = zmq.Context.instance()
    context.set(zmq.MAX_SOCKETS, max(sockets + 1, context.get(zmq.MAX_SOCKETS)))
    raise_file_limit()
    return context


def _ask(request: Socket, name: str, expected: str, **body: object) -> Result:
    request.send_multipart([name.encode(), json.dumps(body).encode()])
    code, reply = request.recv_multipart()
    assert code.decode() == expected, f"{name} got {code!r} {reply!r}"
    answer: Result = json.loads(reply)
    return answer


def _expect(frames: list[bytes], number: int) -> None:
    assert frames == [_command(RESPONSE, number), b"200"], f"the broker answered {frames}"


def _confirmed(flow: Socket, confirmed: int) -> int:
    """The number that the next command confirms; a Ping confirms nothing, and a Reject is a failure."""
    header, _ = flow.recv_multipart()
    if header[0] == PING:
        return confirmed
    assert header[0] == CONFIRM, f"the broker sent {header!r}"
    number: int = struct.unpack_from(">Q", header, 1)[0]
    return number


def _command(kind: int, number: int, rest: bytes = b"") -> bytes:
    return struct.pack(">BQ", kind, number) + rest


def _short(text: str) -> bytes:
    raw = text.encode()
    return bytes([len(raw)]) + raw


ROLES: dict[str, Callable[..., Prepared]] = {
    "rfc_publish": rfc_publish,
    "bare_publish": bare_publish,
    "rfc_read": rfc_read,
    "rfc_confirm": rfc_confirm,
}
